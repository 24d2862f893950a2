"""Lengths of words, in the query dialect."""

from pyspark.sql import functions as F

from penstock import App, Event


class Word(Event):
    key: int
    text: str


class Length(Event):
    key: int
    length: int


app = App("lengths_query")
words = app.source("Words", Word, sample=lambda number: Word(number % 500, f"{number:032d}"))
lengths = app.stream("Lengths", Length)
app.sink("Out", lengths)


def measure(frame):
    """Keep the words with an even key, and say how long each is without its ones."""
    length = F.length(F.replace("text", F.lit("1"), F.lit(""))).cast("bigint")
    return frame.where(F.col("key") % 2 == 0).select("key", length.alias("length"))


app.query(words, emits=lengths)(measure)
