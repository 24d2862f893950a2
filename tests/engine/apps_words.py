"""Applications for the tests of Kafka, tables, the log and the adapter."""

from datetime import datetime, timedelta

from pyspark.sql import functions as F

from penstock import App, Event, ProcessingElement, Tumbling, reducers


class Word(Event):
    text: str
    size: int = 0


class Count(Event):
    text: str
    seen: int


def counting(name: str, *sinks: str) -> App:
    app = App(name)
    words = app.source("Words", Word)
    passed = app.stream("Passed", Word)
    counts = app.stream("Counts", Count)
    for sink in sinks:
        app.sink(sink, counts, key="text")

    @app.element(words, emits=passed)
    def keep(word):
        yield passed(word.text, word.size)

    @app.element(passed, key="text", emits=counts)
    class Counter(ProcessingElement):
        seen: int = 0

        def on_event(self, word):
            self.seen += 1

        def on_batch(self):
            yield counts(self.key, self.seen)

    return app


app = counting("words", "Out")
several = counting("several", "Out", "Copy", "Third")


class Lasting(Event):
    text: str
    length: timedelta


lasting = App("lasting")
lasting.sink("Out", lasting.source("Words", Lasting))

native = App("native")
native_words = native.source("Words", Word)
native_counts = native.stream("Counts", Count)
native.sink("Out", native_counts, key="text")


@native.query(native_words, emits=native_counts)
def count(frame):
    return frame.groupBy("text").agg(F.count("*").alias("seen"))


class Sale(Event):
    text: str
    at: datetime


windowed = App("windowed")
sales = windowed.source("Words", Sale, event_time="at", late="drop")
windowed_counts = windowed.stream("Counts", Count)
windowed.aggregate(
    sales, key="text", window=Tumbling("1 s"), into=windowed_counts, dialect="query", name="sums", seen=reducers.count()
)
windowed.sink("Out", windowed_counts)

twice = App("twice")
here, there = twice.source("Words", Word), twice.source("More", Word)
both = twice.stream("Both", Word)
twice.sink("Out", both)


@twice.query([here, there], emits=both)
def put_together(first, second):
    return first.union(second)
