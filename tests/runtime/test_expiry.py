"""A timer that was due before its instance expired fires, however long the next micro-batch lets wait."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from penstock import App, Event, ProcessingElement
from penstock.testing import TopologyDriver

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Read(Event, frozen=True):
    key: str
    at: datetime


class Said(Event):
    key: str
    n: int


class Kept(Event):
    n: int = 0


def streams(clock):
    app = App("late")
    timed = {"event_time": "at", "late": "process"} if clock == "event" else {}
    reads, said = app.source("Reads", Read, **timed), app.stream("Saids", Said)
    app.sink("Out", said)
    return app, reads, said


def of_events(clock, wait=3, expires="10 s"):
    app, reads, said = streams(clock)

    @app.element(reads, key="key", emits=said, timers=clock, expires=expires)
    class Waits(ProcessingElement):
        n: int = 0

        def on_event(self, read):
            self.n += 1
            self.set_timer(at=(read.at if clock == "event" else self.now) + timedelta(seconds=wait))

        def on_timer(self):
            if self.key == "bad":
                raise ValueError("bad")
            yield said(self.key, self.n)

    return app


def in_columns(clock, wait=3, expires="10 s"):
    app, reads, said = streams(clock)

    @app.batch(
        reads,
        key="key",
        state=Kept,
        emits=said,
        timers=clock,
        expires=expires,
        on_timer=lambda states: {"key": states.keys["key"], "n": states.n},
    )
    def waits(batch, at, states):
        np.add.at(states.n, at, 1)
        for place, read in zip(at, batch["at"].to_pylist(), strict=True):
            moment = np.datetime64(read.replace(tzinfo=None), "us") if clock == "event" else states.now
            states.due[place] = moment + np.timedelta64(wait, "s")

    return app


@pytest.mark.parametrize(
    ("seconds", "then"), [(4, ()), (4, ("x",)), (60, ()), (60, ("x",)), (60, ("a",))]
)  # an event of its own in time would set the timer anew
@pytest.mark.parametrize("clock", ["processing", "event"])
@pytest.mark.parametrize("make", [of_events, in_columns])
def test_what_was_due_fires_before_it_expires(make, clock, seconds, then):
    driver = TopologyDriver(make(clock), start=NOON, partitions=1)
    driver.batch({"Reads": [Read("a", NOON)]})
    if clock == "event":
        driver.batch({"Reads": [Read("b", NOON + timedelta(seconds=5))]})
    driver.advance(seconds)
    driver.batch({"Reads": [Read(key, NOON + timedelta(seconds=seconds)) for key in then]})
    assert [out for out in driver.output("Out") if out.key == "a"] == [Said("a", 1)]


@pytest.mark.parametrize("make", [of_events, in_columns])
def test_of_several_each_has_its_own_times(make):
    """At 11 s the timers of the first two are due, the first has expired, and the third has just come."""
    driver = TopologyDriver(make("processing"), start=NOON, partitions=1)
    driver.batch({"Reads": [Read("a", NOON)]})
    driver.advance(2)
    driver.batch({"Reads": [Read("b", NOON)]})
    driver.advance(9)
    driver.batch({"Reads": [Read("c", NOON)]})
    assert driver.output("Out") == [Said("a", 1), Said("b", 1)]


@pytest.mark.parametrize("make", [of_events, in_columns])
def test_a_timer_that_is_due_after_the_expiry_does_not_fire(make):
    driver = TopologyDriver(make("processing", wait=15), start=NOON, partitions=1)
    driver.batch({"Reads": [Read("a", NOON)]})
    driver.advance(60)
    driver.batch({"Reads": [Read("b", NOON)]})
    assert driver.output("Out") == []


def test_what_fails_then_is_a_dead_letter():
    driver = TopologyDriver(of_events("processing"), start=NOON, partitions=1, dead_letters=True)
    driver.batch({"Reads": [Read("bad", NOON), Read("good", NOON)]})
    driver.advance(60)
    driver.batch()
    assert driver.output("Out") == [Said("good", 1)]
    assert [letter["error"] for letter in driver.dead_letters] == ["ValueError: bad"]


@pytest.mark.parametrize("seconds", [4, 60])
def test_an_interval_that_was_due_is_not_lost_either(seconds):
    app, reads, said = streams("processing")

    @app.element(reads, key="key", emits=said, every="3 s", expires="10 s")
    class Waits(ProcessingElement):
        n: int = 0

        def on_event(self, read):
            self.n += 1

        def on_interval(self):
            yield said(self.key, self.n)

    driver = TopologyDriver(app, start=NOON, partitions=1)
    driver.batch({"Reads": [Read("a", NOON)]})
    driver.advance(seconds)
    driver.batch()
    assert driver.output("Out") == [Said("a", 1)]


def test_a_key_that_has_expired_is_not_begun_anew_by_an_event_that_fails():
    class Reading(Event):
        key: str
        x: int

    class Row(Event):
        key: str
        n: int

    app = App("expiry")
    readings, rows = app.source("Readings", Reading), app.stream("Rows", Row)
    app.sink("Out", rows)

    @app.element(readings, key="key", emits=rows, every="4 s", expires="5 s")
    class Counted(ProcessingElement):
        n: int = 0

        def on_event(self, reading):
            if reading.x < 0:
                raise ValueError("below zero")
            self.n += 1

        def on_interval(self):
            return rows(self.key, self.n)

    driver = TopologyDriver(app, partitions=1, dead_letters=True)
    driver.batch({"Readings": [Reading("a", 1)]})
    driver.advance(4)
    driver.batch()
    driver.advance(2)
    driver.batch({"Readings": [Reading("a", -1)]})
    before = driver.output("Out")
    driver.advance(3)
    driver.batch()
    assert driver.output("Out") == before
    assert driver.elements["Counted"].instances == {0: 0}


@pytest.mark.parametrize("make", [of_events, in_columns], ids=["events", "columns"])
def test_an_expiry_beyond_all_times_never_comes(make):
    driver = TopologyDriver(make("processing", expires="300000000 days"), start=NOON, partitions=1)
    for _ in range(3):
        driver.batch({"Reads": [Read("a", NOON)]})
        driver.advance(2)
    driver.advance(60)
    driver.batch()
    assert driver.output("Out") == [Said("a", 3)]


def test_what_is_swept_is_counted_one_by_one():
    """The number of instances is what the number of pages, and the counts of a move, follow from."""
    app, reads, said = streams("processing")

    @app.element(reads, key="key", emits=said, expires="10 s")
    class Counter(ProcessingElement):
        n: int = 0

        def on_event(self, read):
            self.n += 1

    driver = TopologyDriver(app)
    driver.batch({"Reads": [Read(f"k{number}", NOON) for number in range(40)]})
    driver.advance(5)
    driver.batch({"Reads": [Read(f"k{number}", NOON) for number in range(3)]})
    driver.advance(7)  # 37 have expired, and 3 have not
    driver.batch({"Reads": [Read("k0", NOON)]})
    [tally] = driver.elements.values()
    assert sum(tally.instances.values()) == 3
