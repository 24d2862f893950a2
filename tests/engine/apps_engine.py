"""Applications for the tests of the engine alone."""

import time
from datetime import UTC, datetime, timedelta
from typing import Annotated

import msgspec
from pyspark.sql import functions as F

from penstock import App, Event, ProcessingElement, Sliding, Tumbling, reducers


class Word(Event):
    text: str
    size: int = 0


class Count(Event):
    text: str
    seen: int


class Size(Event):
    size: int
    words: int


# --- a counter, for formats, sources, resuming -----------------------------------------------------

counter = App("counter")
words = counter.source("Words", Word, sample=lambda number: Word(f"w{number % 5}", number))
counts = counter.stream("Counts", Count)
counter.sink("Out", counts)


@counter.element(words, key="text", emits=counts)
class Counter(ProcessingElement):
    seen: int = 0

    def on_event(self, word):
        self.seen += 1

    def on_batch(self):
        yield counts(self.key, self.seen)


# --- no state, for sources and sinks ----------------------------------------------------------------

passing = App("passing")
passed_words = passing.source("Words", Word, sample=lambda number: Word(f"w{number % 5}", number))
passing.sink("Out", passed_words)
passing.sink("Memory", passed_words)
passing.sink("Console", passed_words)


class Line(Event):
    text: str


lines = App("lines")
lines.sink("Out", lines.source("Lines", Line))


# --- stops at the first failure ---------------------------------------------------------------------

stopping = App("stopping", on_error="stop")
stop_words = stopping.source("Words", Word)
stopped = stopping.stream("Stopped", Word)
stopping.sink("Out", stopped)


@stopping.element(stop_words, emits=stopped)
def stop_at_bad(word):
    if word.text == "bad":
        raise ValueError("will not do")
    yield stopped.emit(word)


# --- the query dialect ------------------------------------------------------------------------------

native = App("native")
native_words = native.source("Words", Word)
long_words = native.stream("LongWords", Word)
shouted = native.stream("Shouted", Word)
native.sink("Out", shouted)


@native.query(native_words, emits=long_words)
def keep_long(frame):
    return frame.where(F.length("text") > 2)


@native.query(long_words, emits=shouted)
def shout(frame):
    return frame.select(F.upper("text").alias("text"), "size")


class Person(Event, rename="camel"):
    first_name: str
    home_town: str = ""


class Stay(Event, rename="camel", tag=True):
    how_long: timedelta | None


class Household(Event, rename="camel", tag=True):
    head_person: Person
    grown_up: int
    since: datetime
    lasting: timedelta
    pause: timedelta | None
    away_for: list[timedelta | None]
    by_town: dict[str, Stay]
    last_stay: Stay | None = None


SINCE = datetime(2026, 11, 25, 12, 0, 0, 123456, tzinfo=UTC)
renamed = App("renamed")
persons = renamed.source("Persons", Person)
households = renamed.stream("Households", Household)
for kept in ("Lines", "Columns", "Rows"):
    renamed.sink(kept, households)


@renamed.query(persons, emits=households)
def settle(frame):
    nothing = F.lit(None).cast("interval day to second")
    lengths = F.array(F.lit(timedelta(days=2, hours=1)), F.lit(timedelta(seconds=-5, microseconds=-1)), nothing)
    return frame.select(
        F.struct("first_name", "home_town").alias("head_person"),
        F.lit(2).alias("grown_up"),
        F.lit(SINCE).alias("since"),
        lengths[0].alias("lasting"),
        nothing.alias("pause"),
        lengths.alias("away_for"),
        F.create_map("home_town", F.struct(lengths[0].alias("how_long"))).alias("by_town"),
        F.lit(None).cast("struct<how_long: interval day to second>").alias("last_stay"),
    )


class Moment(Event, rename="camel", kw_only=True):
    at_noon: datetime
    local: Annotated[datetime, msgspec.Meta(tz=False)]
    how_long: timedelta
    by: bytes = b"\xff\x00"


MOMENT = Moment(at_noon=SINCE, local=datetime(2026, 11, 25, 12), how_long=timedelta(seconds=-5, microseconds=-1))
handed = App("handed")
people = handed.source("Persons", Person)
before, between, after = (handed.stream(name, Moment) for name in ("Before", "Between", "After"))
handed.sink("Out", after)


@handed.element(people, emits=before)
def begin(person):
    yield before.emit(MOMENT)


@handed.query(before, emits=between)
def hand_on(frame):
    return frame


stamped = App("stamped")
stamped_words = stamped.source("Persons", Person)
stamps = stamped.stream("Stamps", Moment)
stamped.sink("Out", stamps, key=("how_long", "at_noon", "local"))


@stamped.query(stamped_words, emits=stamps)
def stamp(frame):
    return frame.select(*(F.lit(getattr(MOMENT, name)).alias(name) for name in ("at_noon", "local", "how_long", "by")))


@handed.element(between, emits=after)
def end(moment):
    yield after.emit(moment)


# --- query elements before, between and beside the others ------------------------------------------

mixed = App("mixed")
mixed_words = mixed.source("Words", Word)
trimmed = mixed.stream("Trimmed", Word)
tallied = mixed.stream("Tallied", Count)
doubled = mixed.stream("Doubled", Count)
beside = mixed.stream("Beside", Word)
mixed.sink("Out", doubled)
mixed.sink("Beside", beside)


@mixed.query(mixed_words, emits=trimmed)
def trim(frame):
    return frame.withColumn("text", F.trim("text"))


@mixed.element(mixed_words, emits=beside)
def look(word):
    yield beside.emit(word)


@mixed.element(trimmed, key="text", emits=tallied)
class Tally(ProcessingElement):
    seen: int = 0

    def on_event(self, word):
        self.seen += 1

    def on_batch(self):
        yield tallied(self.key, self.seen)


@mixed.query(tallied, emits=doubled)
def double(frame):
    return frame.withColumn("seen", F.col("seen") * 2)


# --- timers on processing time ----------------------------------------------------------------------

ticking = App("ticking")
tick_words = ticking.source("Words", Word, sample=lambda number: Word("only", number))
ticks = ticking.stream("Ticks", Count)
ticking.sink("Out", ticks)


@ticking.element(tick_words, key="text", emits=ticks, every="1 s")
class Ticker(ProcessingElement):
    seen: int = 0

    def on_event(self, word):
        self.seen += 1

    def on_interval(self):
        yield ticks(self.key, self.seen)


# --- what a query element may return ----------------------------------------------------------------

crooked = App("crooked")
crooked_words = crooked.source("Words", Word)
crooked_out = crooked.stream("Out", Count)
crooked.sink("End", crooked_out)


@crooked.query(crooked_words, emits=crooked_out)
def without_a_column(frame):
    return frame.select("text")


# --- windows in the query dialect -------------------------------------------------------------------


class Bid(Event):
    item: str
    price: int
    at: datetime


class Closed(Event):
    item: str
    bids: int


class Both(Event):
    item: str
    bids: int
    low: int


joined = App("joined")
bids = joined.source("Bids", Bid)
both = joined.stream("Both", Both)
joined.sink("Out", both)


@joined.query(bids, emits=both)
def join_windows(frame):
    marked = frame.withWatermark("at", "0 seconds")
    counted = marked.groupBy(F.window("at", "10 seconds"), "item").agg(F.count("*").alias("bids"))
    lowest = marked.groupBy(F.window("at", "10 seconds"), "item").agg(F.min("price").alias("low"))
    return counted.join(lowest, ["window", "item"]).select("item", "bids", "low")


closing = App("closing")
late_bids = closing.source("Bids", Bid)
closed = closing.stream("Closed", Closed)
closing.sink("Out", closed)


@closing.query(late_bids, emits=closed)
def close_windows(frame):
    marked = frame.withWatermark("at", "0 seconds")
    return marked.groupBy(F.window("at", "10 seconds"), "item").agg(F.count("*").alias("bids")).select("item", "bids")


# --- work that takes its time, for latencies --------------------------------------------------------

SLOW_S = 0.6
slow = App("slow")
slow_words = slow.source("Words", Word)
slowed = slow.stream("Slowed", Word)
slow.sink("Out", slowed)


@slow.element(slow_words, emits=slowed)
def slowly(word):
    time.sleep(SLOW_S)
    yield slowed(word.text)


# --- the end of the input ---------------------------------------------------------------------------


class Sold(Event):
    item: str
    start: datetime
    end: datetime
    bids: int


class Most(Event):
    start: datetime
    item: str
    bids: int


ending = App("ending")
timed_bids = ending.source("Bids", Bid, event_time="at", lateness="3 seconds")
sold = ending.stream("Sold", Sold)
most = ending.stream("Most", Most)
ending.sink("Out", sold)
ending.sink("Top", most)
ending.aggregate(timed_bids, key="item", window=Sliding("10 s", "5 s"), into=sold, bids=reducers.count(), name="sell")


@ending.element(sold, key="start", window=Tumbling("5 s", at="end"), emits=most)
class Best(ProcessingElement):
    bids: int = 0
    item: str = ""

    def on_event(self, event):
        self.bids, self.item = max((self.bids, self.item), (event.bids, event.item))

    def on_close(self):
        yield most(self.key, self.item, self.bids)


sequel = App("sequel")
sequel_bids = sequel.source("Bids", Bid, event_time="at", lateness="3 seconds")
sequel_sold = sequel.stream("Sold", Sold)
raw = sequel.stream("Raw", Bid)
sequel.sink("Out", sequel_sold)
sequel.sink("All", raw)
sequel.aggregate(sequel_bids, key="item", window=Sliding("10 s", "5 s"), into=sequel_sold, bids=reducers.count(), name="sell")


@sequel.query(sequel_bids, emits=raw)
def pass_on(frame):
    return frame


class Beat(Event):
    at: datetime


def _two(name, idle):
    app = App(name)
    bids = app.source("Bids", Bid, event_time="at", lateness="3 seconds")
    beats = app.source("Beats", Beat, event_time="at", idle=idle)
    sold, echoes = app.stream("Sold", Sold), app.stream("Echoes", Beat)
    app.sink("Out", sold)
    app.sink("All", echoes)
    app.aggregate(bids, key="item", window=Sliding("10 s", "5 s"), into=sold, bids=reducers.count())
    app.element(beats, emits=echoes, name="echo")(echoes.emit)
    return app


patient, impatient = _two("patient", None), _two("impatient", "500 ms")


# --- two sources of a query, joined in another order than they are declared -------------------------


class Seen(Event):
    text: str
    size: int
    seen: int


crossed = App("crossed")
crossed_words = crossed.source("Words", Word)
crossed_counts = crossed.source("Counts", Count)
crossed_out = crossed.stream("Crossed", Seen)
crossed.sink("Out", crossed_out)


@crossed.query([crossed_words, crossed_counts], emits=crossed_out)
def cross(word_frame, count_frame):
    return count_frame.join(word_frame, "text").select("text", "size", "seen")


# --- a query that reads its source twice, and one whose result needs nothing of it -------------------

both_ways = App("both_ways")
both_words = both_ways.source("Words", Word)
both_out = both_ways.stream("Both", Word)
both_ways.sink("Out", both_out)


@both_ways.query(both_words, emits=both_out)
def both_sides(frame):
    return frame.where("size > 1").union(frame.where("size <= 1"))


looked_up = App("looked_up")
looked_words = looked_up.source("Words", Word)
looked_out = looked_up.stream("Looked", Word)
looked_up.sink("Out", looked_out)


@looked_up.query(looked_words, emits=looked_out)
def look_up(frame):
    nothing = frame.sparkSession.createDataFrame([], "text string")
    return frame.join(nothing, "text").select("text", "size")


# --- one stream to sinks of many kinds ----------------------------------------------------------------

spread = App("spread")
spread_words = spread.source("Words", Word)
spread_copies = spread.stream("Copies", Word)
KINDS = ("Lines", "Columns", "Rows", "Upserted", "Log", "Delta", "Iceberg", "Kept")
for kind in KINDS:
    spread.sink(kind, spread_copies, key="text" if kind == "Upserted" else ())


@spread.element(spread_words, emits=spread_copies)
def copy_word(word):
    if word.text == "bad":
        raise ValueError("bad")
    yield spread_copies(word.text, word.size)


class Noted(Event):
    text: str
    size: int | None = None


noted = App("noted")
noted.sink("Out", noted.source("Words", Noted))


# --- two elements, which may be in two groups ---------------------------------------------------------

relayed = App("relayed")
relayed_words = relayed.source("Words", Word)
relayed_first, relayed_copies = relayed.stream("First", Word), relayed.stream("Copies", Word)
relayed.sink("Out", relayed_copies)


@relayed.element(relayed_words, emits=relayed_first, name="first")
def first_copy(word):
    yield relayed_first(word.text, word.size)


@relayed.element(relayed_first, emits=relayed_copies, name="copy_word")
def second_copy(word):
    yield relayed_copies(word.text, word.size)


refusable = App("refusable")
refusable_words = refusable.source("Words", Word)
refusable_out = refusable.stream("Results", Word)


@refusable.query(refusable_words, emits=refusable_out)
def as_they_are(frame):
    return frame


refusable.sink("Out", refusable_out)
refusable.sink("Own", refusable_out)
