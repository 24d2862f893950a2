"""Applications for the tests of Kafka, tables, the log and the adapter."""

from datetime import timedelta

from pyspark.sql import functions as F

from penstock import App, Event, ProcessingElement


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
