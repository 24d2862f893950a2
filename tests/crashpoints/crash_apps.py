"""Applications whose results do not depend on how their input is divided into micro-batches, so that any crash must leave the
same.
"""

from datetime import datetime, timedelta

import numpy as np

from penstock import App, Event, ProcessingElement, Tumbling, reducers


class Word(Event):
    text: str
    number: int


class Count(Event):
    text: str
    seen: int


class Timed(Event):
    key: str
    at: datetime


class Second(Event):
    key: str
    at: datetime


class Spanned(Event):
    key: str
    start: datetime
    seen: int


class Met(Event):
    key: str
    at: datetime
    other: datetime | None


def words_app(name: str, key: str | None, *, copied: bool = False) -> App:
    """Words are checked, and counted by text; a word that is refused is a dead letter. Good ones may be copied besides."""
    app = App(name)
    words = app.source("Words", Word)
    clean, counts = app.stream("Clean", Word), app.stream("Counts", Count)
    app.sink("Clean", clean)
    app.sink("Out", counts, key=key)

    @app.element(words, emits=clean)
    def check(word):
        if word.text == "bad":
            raise ValueError("a bad word")
        yield clean(word.text, word.number)

    @app.element(clean, key="text", emits=counts)
    class Counter(ProcessingElement):
        seen: int = 0

        def on_event(self, word):
            self.seen += 1
            yield counts(self.key, self.seen)

    if copied:
        copies = app.stream("Copies", Word)
        app.sink("Copies", copies)

        @app.element(clean, emits=copies)
        def copy(word):
            yield copies(word.text, word.number)

    return app


words = words_app("words", None)
shared = words_app("shared", None, copied=True)
latest = words_app("latest", "text")

spans = App("spans")
timed = spans.source("Timed", Timed, event_time="at", lateness="10 s")
spanned, alarms = spans.stream("Spanned", Spanned), spans.stream("Alarms", Count)
spans.aggregate(timed, key="key", window=Tumbling("60 s"), into=spanned, seen=reducers.count())
spans.sink("Out", spanned)
spans.sink("Alarms", alarms)


@spans.element(timed, key="key", emits=alarms, timers="event")
class Watcher(ProcessingElement):
    seen: int = 0

    def on_event(self, event):
        self.seen += 1
        self.set_timer(at=event.at + timedelta(seconds=30))

    def on_timer(self):
        yield alarms(self.key, self.seen)
        self.seen = 0


planned = App("planned")
"""Windows that Spark plans and keeps."""
times = planned.source("Timed", Timed, event_time="at", lateness="10 s", late="drop")
spans_of_spark = planned.stream("Spanned", Spanned)
planned.aggregate(times, key="key", window=Tumbling("60 s"), into=spans_of_spark, dialect="query", seen=reducers.count())
planned.sink("Out", spans_of_spark)


class Known(Event):
    seen: int = 0


columns = App("columns")
"""The number of each key's events, in columns."""
readings, numbers = columns.source("Timed", Timed), columns.stream("Counts", Count)
columns.sink("Alarms", numbers, key="text")


@columns.batch(readings, key="key", state=Known, emits=numbers)
def count_in_columns(batch, at, states):
    states.seen += np.bincount(at, minlength=len(states))
    return {"text": states.keys["key"], "seen": states.seen}


meets = App("meets")
lefts = meets.source("Lefts", Timed, event_time="at", lateness="10 s")
rights = meets.source("Rights", Second, event_time="at", lateness="10 s")
met = meets.stream("Met", Met)
meets.sink("Out", met)


@meets.join(lefts, rights, key="key", within=("0 s", "20 s"), emits=met, how="left")
def meet(left, right):
    yield met(left.key, left.at, right and right.at)
