"""Lengths of words, in the batch dialect."""

import pyarrow as pa
import pyarrow.compute as pc

from penstock import App, Event


class Word(Event):
    key: int
    text: str


class Length(Event):
    key: int
    length: int


app = App("lengths")
words = app.source("Words", Word)
lengths = app.stream("Lengths", Length)
app.sink("Out", lengths)


def measure(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Keep the words with an even key, and say how long each is without its ones."""
    batch = batch.filter(pc.equal(pc.bit_wise_and(batch["key"], 1), 0))
    length = pc.utf8_length(pc.replace_substring(batch["text"], "1", ""))
    return pa.RecordBatch.from_arrays([batch["key"], length.cast(pa.int64())], names=["key", "length"])


app.batch(words, emits=lengths)(measure)
