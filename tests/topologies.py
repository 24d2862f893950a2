"""Topologies that the shared suite runs through the in-memory driver and through Spark alike."""

from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Annotated

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock import App, Event, ProcessingElement, Session, Sliding, Tumbling, reducers


class Word(Event):
    text: str


class Length(Event):
    text: str
    length: int


class Tagged(Event):
    source: str
    text: str


class Count(Event):
    key: str
    seen: int


class Reading(Event):
    site: str
    sensor: int
    value: float


class Track(Event):
    key: str
    values: list[float]
    kinds: dict[str, int]


class Timed(Event):
    key: str
    at: datetime


class Closed(Event):
    key: str
    seen: int
    at: datetime


# --- fan-out, fan-in, several streams from one element, a sink on a source -------------------------

fans = App("fans")
fan_words = fans.source("Words", Word)
short, long = fans.stream("Short", Word), fans.stream("Long", Word)
tagged = fans.stream("Tagged", Tagged)
fans.sink("Everything", fan_words)
fans.sink("Tags", tagged)


@fans.element(fan_words, emits=[short, long])
def divide(word):
    yield (short if len(word.text) < 4 else long)(word.text)


@fans.element(short, emits=tagged)
def tag_short(word):
    return tagged("short", word.text)


@fans.element([short, long], emits=tagged)
def tag_both(word):
    return [tagged("both", word.text), tagged("both", word.text.upper())]


# --- one keyed hop ----------------------------------------------------------------------------------

counting = App("counting")
counted = counting.source("Words", Word)
counts = counting.stream("Counts", Count)
counting.sink("Out", counts)


@counting.element(counted, key="text", emits=counts)
class Counter(ProcessingElement):
    seen: int = 0

    def on_event(self, word):
        self.seen += 1

    def on_batch(self):
        yield counts(self.key, self.seen)


# --- two keyed hops, with rows that pass the first by ---------------------------------------------

hops = App("hops")
hop_words = hops.source("Words", Word)
measured = hops.stream("Measured", Length)
firsts = hops.stream("Firsts", Length)
summary = hops.stream("Summary", Count)
hops.sink("Out", summary)
hops.sink("Firsts", firsts)


@hops.element(hop_words, emits=measured)
def measure(word):
    yield measured(word.text, len(word.text))


@hops.element(measured, key="text", emits=firsts)
class FirstSeen(ProcessingElement):
    known: bool = False

    def on_event(self, event):
        if not self.known:
            self.known = True
            yield firsts(event.text, event.length)


@hops.element([firsts, measured], key="length", emits=summary)
class PerLength(ProcessingElement):
    events: int = 0

    def on_event(self, event):
        self.events += 1

    def on_batch(self):
        yield summary(str(self.key), self.events)


# --- keys of several fields, structured state, order -----------------------------------------------

tracks = App("tracks")
readings = tracks.source("Readings", Reading)
tracked = tracks.stream("Tracked", Track)
tracks.sink("Out", tracked)


@tracks.element(readings, key=["site", "sensor"], emits=tracked)
class Tracker(ProcessingElement):
    values: list[float] = []
    kinds: dict[str, int] = {}

    def on_event(self, reading):
        self.values.append(reading.value)
        kind = "high" if reading.value > 5 else "low"
        self.kinds[kind] = self.kinds.get(kind, 0) + 1

    def on_batch(self):
        site, sensor = self.key
        yield tracked(f"{site}/{sensor}", self.values, self.kinds)


# --- two event types into one prototype -------------------------------------------------------------

joins = App("joins")
left, right = joins.source("Left", Count), joins.source("Right", Reading)
joined = joins.stream("Joined", Track)
joins.sink("Out", joined)


@joins.element(left, emits=(), name="ignore")
def ignore(event):
    return None


sites = joins.stream("Sites", Count)


@joins.element(left, emits=sites)
def forward(event):
    yield sites.emit(event)


by_key = joins.stream("ByKey", Track)


@joins.element(right, emits=by_key)
def rename(reading):
    yield by_key(reading.site, [reading.value], {})


@joins.element([sites, by_key], key="key", emits=joined)
class Joiner(ProcessingElement):
    total: int = 0
    values: list[float] = []

    def on_event(self, event):
        if isinstance(event, Count):
            self.total += event.seen
        else:
            self.values.extend(event.values)

    def on_batch(self):
        yield joined(self.key, sorted(self.values), {"total": self.total})


# --- failures ---------------------------------------------------------------------------------------

failing = App("failing")
risky = failing.source("Words", Word)
passed = failing.stream("Passed", Word)
elsewhere = failing.stream("Elsewhere", Word)
survived = failing.stream("Survived", Count)
failing.sink("Passed", passed)
failing.sink("Out", survived)


@failing.element(risky, emits=passed)
def keyless(word):
    yield passed(word.text)
    if word.text == "raise":
        raise ValueError("told to")
    if word.text == "undeclared":
        yield elsewhere(word.text)
    if word.text == "mistyped":
        yield passed(len(word.text))


@failing.element(passed, key="text", emits=survived)
class Keyed(ProcessingElement):
    seen: int = 0

    def on_event(self, word):
        self.seen += 1
        if word.text == "third" and self.seen == 3:
            self.seen = 2000
            raise RuntimeError("half done")

    def on_batch(self):
        if self.key == "batch":
            self.seen = 3000
            raise RuntimeError("at the end")
        yield survived(self.key, self.seen)


# --- the batch dialect between the others ----------------------------------------------------------

vectors = App("vectors")
plain_words = vectors.source("Words", Word)
lengths = vectors.stream("Lengths", Length)
perlength = vectors.stream("PerLength", Count)
vectors.sink("Lengths", lengths)
vectors.sink("Out", perlength)


@vectors.batch(plain_words, emits=lengths)
def lengths_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    if "poison" in batch["text"].to_pylist():
        raise ValueError("cannot swallow poison")
    kept = batch.filter(pc.not_equal(batch["text"], "skip"))
    return pa.RecordBatch.from_pydict({"length": pc.utf8_length(kept["text"]), "text": kept["text"]})


@vectors.element(lengths, key="length", emits=perlength)
class LengthCounter(ProcessingElement):
    seen: int = 0

    def on_event(self, event):
        self.seen += 1

    def on_batch(self):
        yield perlength(str(self.key), self.seen)


# --- event time ---------------------------------------------------------------------------------------


def _windows(name, late):
    app = App(name)
    timed = app.source("Timed", Timed, event_time="at", lateness="10 s", late=late)
    closed = app.stream("Closed", Closed)
    app.sink("Out", closed)

    @app.element(timed, key="key", emits=closed, timers="event", name="Window")
    class Window(ProcessingElement):
        seen: int = 0

        def on_event(self, event):
            self.seen += 1
            if self.seen == 1:
                self.set_timer(at=datetime.fromtimestamp(event.at.timestamp() // 60 * 60 + 60, UTC))

        def on_timer(self):
            yield closed(self.key, self.seen, self.watermark)
            self.seen = 0

    return app


windows_dead = _windows("windows_dead", "dead-letter")
windows_drop = _windows("windows_drop", "drop")
windows_process = _windows("windows_process", "process")


# --- windows and joins --------------------------------------------------------------------------------


class Sold(Event):
    key: str
    start: datetime
    seen: int


class Other(Event):
    key: str
    number: int
    at: datetime


class Met(Event):
    key: str
    at: datetime
    number: int | None


spans = App("spans")
spans_timed = spans.source("Timed", Timed, event_time="at", lateness="10 s")
for _window, _name in ((Sliding("60 s", "20 s"), "Sliding"), (Session("15 s"), "Sessions"), (Tumbling("60 s"), "Tumbling")):
    sold = spans.stream(f"{_name}Sold", Sold)
    spans.aggregate(spans_timed, key="key", window=_window, into=sold, seen=reducers.count())
    spans.sink(_name, sold)
busiest = spans.stream("Busiest", Sold)
spans.sink("Most", busiest)


@spans.element(sold, key="start", window=Tumbling("60 s", at="start"), emits=busiest)
class Busiest(ProcessingElement):
    seen: int = 0
    name: str = ""

    def on_event(self, sold):
        self.seen, self.name = max((self.seen, self.name), (sold.seen, sold.key))

    def on_close(self):
        yield busiest(self.name, self.window.start, self.seen)


meets = App("meets")
meets_timed = meets.source("Timed", Timed, event_time="at", lateness="10 s")
meets_others = meets.source("Others", Other, event_time="at", lateness="10 s")
meets_met = meets.stream("Met", Met)
meets.sink("Out", meets_met)


@meets.join(meets_timed, meets_others, key="key", within=("-5 s", "20 s"), emits=meets_met, how="left")
def meet(timed, other):
    yield meets_met(timed.key, timed.at, other and other.number)


# --- fields of every kind -----------------------------------------------------------------------------


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Place(Event):
    name: str
    height: float | None = None


class Everything(Event):
    flag: bool
    number: int
    ratio: float
    text: str
    raw: bytes
    at: datetime
    colour: Colour
    place: Place
    tags: list[str]
    scores: dict[str, float]
    note: str | None = None
    local: Annotated[datetime, msgspec.Meta(tz=False)] | None = None
    took: timedelta | None = None


kinds = App("kinds")
everything = kinds.source("Everything", Everything)
echoed = kinds.stream("Echoed", Everything)
kinds.sink("Out", echoed)


@kinds.element(everything, key="colour", emits=echoed)
class Echo(ProcessingElement):
    last: Everything | None = None

    def on_event(self, event):
        self.last = event
        yield echoed.emit(event)


# --- keys whose type MessagePack does not have, read back when a timer opens the page --------------------

ticking = App("ticking")
ticks = ticking.source("Everything", Everything)
ticked = ticking.stream("Ticked", Place)
ticking.sink("Out", ticked)


@ticking.element(ticks, key=["colour", "at"], emits=ticked, every="1 s")
class Ticker(ProcessingElement):
    seen: int = 0

    def on_event(self, event):
        self.seen += 1

    def on_interval(self):
        colour, at = self.key
        yield ticked(f"{colour.name} {at.year}", float(self.seen))
