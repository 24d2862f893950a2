"""The divisibility example in the batch dialect: the checks in NumPy, a partial count for each Arrow batch."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock import App, Event, ProcessingElement


class RawWord(Event):
    text: str


class Found(Event):
    by: str
    count: int


class Total(Event):
    by: str
    count: int


app = App("divisibility_batch")
keys = app.parameter("keys", 4, choices=[1, 2, 4, 8], help="How many times each word is checked.")
raw_words = app.source("RawWords", RawWord)
found = app.stream("Found", Found)
totals = app.stream("Totals", Total)
app.sink("Output", totals)


def check(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Count the numbers divisible by 3, and by 11."""
    texts = batch["text"].filter(pc.match_substring_regex(batch["text"], "^[0-9]+$"))
    ends = np.cumsum(pc.binary_length(texts).to_numpy(zero_copy_only=False))
    text = "".join(texts.to_pylist()).encode()
    digits = np.frombuffer(text, np.uint8).astype(np.int16) - 48
    starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)
    places = np.arange(len(digits)) - np.repeat(starts, ends - starts)
    signs = np.where(places % 2 == 0, 1, -1).astype(np.int16)
    three = eleven = 0
    for _ in range(keys if len(starts) else 0):  # each key's receivers check for themselves
        three += int(np.count_nonzero(np.add.reduceat(digits, starts) % 3 == 0))
        eleven += int(np.count_nonzero(np.add.reduceat(digits * signs, starts) % 11 == 0))
    return pa.RecordBatch.from_pydict({"by": ["Three", "Eleven"], "count": [three, eleven]})


app.batch(raw_words, emits=found)(check)


@app.element(found, key="by", emits=totals)
class AggregationReceiver(ProcessingElement):
    total: int = 0

    def on_event(self, event):
        self.total += event.count

    def on_batch(self):
        yield totals(self.key, self.total)
