"""What is emitted is as it was by then; what a key begins with is its own; one failure keeps no other result from coming."""

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec
import pytest

from penstock import App, Event, Global, ProcessingElement, Session, Sliding, Tumbling, reducers
from penstock.errors import EventSchemaError
from penstock.testing import TopologyDriver

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Reading(Event):
    key: str
    x: int
    at: datetime


class Numbers(Event):
    key: str
    xs: list[int]


class Number(Event):
    key: str
    n: int


class Mutable(Event, frozen=False):
    key: str
    n: int


def at(second):
    return NOON + timedelta(seconds=second)


def built(kind, **more):
    app = App("own")
    stream = app.stream("Results", kind)
    app.sink("Out", stream)
    return app, app.source("Readings", Reading, event_time="at", **more), stream


def run(app, batches, **how):
    driver = TopologyDriver(app, partitions=1, **how)
    for batch in batches:
        driver.batch({"Readings": batch})
    driver.finish()
    return driver


THREE = [Reading("a", number, at(number)) for number in range(3)]
CUTS = [[THREE], [[one] for one in THREE], [THREE[:2], THREE[2:]]]


@pytest.mark.parametrize("batches", CUTS)
def test_an_element_in_order_emits_its_list_as_it_is_by_then(batches):
    app, readings, results = built(Numbers)

    @app.element(readings, key="key", emits=results, ordered=True)
    class Kept(ProcessingElement):
        xs: list[int] = []

        def on_event(self, reading):
            self.xs.append(reading.x)
            return results(self.key, self.xs)

    assert [row.xs for row in run(app, batches).output("Out")] == [[0], [0, 1], [0, 1, 2]]


@pytest.mark.parametrize("batches", [CUTS[0], CUTS[1]])
def test_a_window_of_all_emits_its_list_as_it_is_by_then(batches):
    app, readings, results = built(Numbers)

    @app.element(readings, key="key", window=Global(every="1 s"), emits=results)
    class Kept(ProcessingElement):
        xs: list[int] = []

        def on_event(self, reading):
            self.xs.append(reading.x)

        def merge(self, other):
            self.xs += other.xs

        def on_close(self):
            return results(self.key, self.xs)

    assert [row.xs for row in run(app, batches).output("Out")] == [[0], [0, 1], [0, 1, 2]]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_list_may_be_emptied_once_it_is_emitted(is_async):
    app, readings, results = built(Numbers)

    class Kept(ProcessingElement):
        xs: list[int] = []

        def on_event(self, reading):
            self.xs.append(reading.x)
            yield results(self.key, self.xs)
            self.xs.clear()

    class KeptAsync(Kept):
        async def on_event(self, reading):
            self.xs.append(reading.x)
            await asyncio.sleep(0)
            yield results(self.key, self.xs)
            self.xs.clear()

    app.element(readings, key="key", emits=results)(KeptAsync if is_async else Kept)
    assert [row.xs for row in run(app, CUTS[0]).output("Out")] == [[0], [1], [2]]


def test_a_keyless_function_may_go_on_with_its_list():
    app, readings, results = built(Numbers)

    @app.element(readings, emits=results)
    def growing(reading):
        xs = []
        for number in range(3):
            xs.append(number)
            yield results(reading.key, xs)

    assert [row.xs for row in run(app, [THREE[:1]]).output("Out")] == [[0], [0, 1], [0, 1, 2]]


# --- what a key begins with ---------------------------------------------------------------------------


class Nested(Event):
    items: list[int] = []


@dataclass
class Data:
    items: list[int] = field(default_factory=list)


class Tuple(NamedTuple):
    items: list[int]


def element_of(results, kind, default, windowed=False):
    class Kept(ProcessingElement):
        seen: kind = default

        def on_event(self, reading):
            self.items().append(reading.x)
            if reading.x < 0:
                raise ValueError("below zero")
            if not windowed:
                return results(self.key, self.items())
            return None

        def items(self):
            return self.seen[0] if isinstance(self.seen, tuple) else self.seen.items

    class Closing(Kept):
        def merge(self, other):
            self.items().extend(other.items())

        def on_close(self):
            return results(self.key, self.items())

    return Closing if windowed else Kept


DEFAULTS = [
    (Nested, Nested()),
    (Data, Data()),
    (Tuple, Tuple([])),
    (tuple[list[int], int], ([], 0)),
    (Nested, msgspec.field(default=Nested())),
]
ELEMENTS = [{}, {"ordered": True}, *({"window": w} for w in (Tumbling("1 h"), Session("1 h"), Sliding("1 h", "1 h")))]


@pytest.mark.parametrize(("kind", "default"), DEFAULTS, ids=str)
@pytest.mark.parametrize("how", ELEMENTS, ids=str)
def test_a_default_that_can_be_changed_is_each_keys_own(kind, default, how):
    app, readings, results = built(Numbers)
    app.element(readings, key="key", emits=results, **how)(element_of(results, kind, default, "window" in how))
    keys = [Reading(key, x, at(number)) for number, (key, x) in enumerate([("a", 1), ("b", 2), ("c", -3), ("c", 4)])]
    driver = run(app, [keys[:2], keys[2:3], keys[3:]], dead_letters=True)
    assert {row.key: row.xs for row in driver.output("Out")} == {"a": [1], "b": [2], "c": [4]}


def test_a_default_of_an_event_that_can_be_changed_is_refused():
    class Whole(Event):
        part: Nested = Nested()

    with pytest.raises(EventSchemaError, match=r"Whole\.part has a default that can be changed.*default_factory"):
        App("x").source("Wholes", Whole)


def test_events_that_can_be_changed_are_copied():
    app, readings, results = built(Mutable)
    more = app.stream("More", Mutable)
    app.sink("Other", more)

    @app.element(readings, key="key", emits=results)
    class Total(ProcessingElement):
        total: Mutable | None = None

        def on_event(self, reading):
            self.total = self.total or Mutable(self.key, 0)
            self.total.n += reading.x
            yield results.emit(self.total)

    @app.element(results, emits=more)
    def doubled(event):
        event.n *= 2
        yield more.emit(event)

    driver = run(app, [THREE])
    assert [row.n for row in driver.output("Out")] == [0, 1, 3]
    assert [row.n for row in driver.output("Other")] == [0, 2, 6]


# --- one failure --------------------------------------------------------------------------------------

EDGES = [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)]
WINDOWS = [Tumbling("1 day"), Tumbling("10 s"), Sliding("90 s", "1 min"), Sliding("1 day", "1 h"), Session("1 min")]


@pytest.mark.parametrize("edge", EDGES, ids=str)
@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("results", ["final", "updates", "both"])
def test_an_event_at_the_edge_of_time_fares_among_many_as_among_few(edge, window, results):
    def outcome(others):
        app, readings, into = built(Number)
        app.aggregate(readings, key="key", window=window, into=into, results=results, n=reducers.count())
        rows = [Reading("a", number, NOON) for number in range(others)]
        driver = run(app, [[*rows, Reading("b", 0, edge)]], dead_letters=True)
        return sorted(row.n for row in driver.output("Out") if row.key == "b"), [one["error"] for one in driver.dead_letters]

    assert outcome(5) == outcome(100)


def test_a_window_whose_early_result_fails_keeps_no_other_from_coming():
    app, readings, results = built(Number, lateness="1 h")

    @app.element(readings, key="key", window=Tumbling("10 s"), emits=results)
    class Sum(ProcessingElement):
        n: int = 0

        def on_event(self, reading):
            self.n += reading.x

        def on_batch(self):
            if self.n < 0:
                raise ValueError("below zero")
            return results(self.key, self.n)

    first = [Reading("a", 1, at(1)), Reading("a", -5, at(11)), Reading("a", 3, at(21))]
    driver = run(app, [first, [Reading("a", 4, at(31))], [Reading("a", 5, at(41))]], dead_letters=True)
    assert [row.n for row in driver.output("Out")] == [1, 3, 4, 5]
    assert [one["error"] for one in driver.dead_letters] == ["ValueError: below zero"]


def test_an_event_that_fails_only_when_it_is_replayed_is_a_dead_letter():
    app, readings, results = built(Number)
    seen = []

    @app.element(readings, key="key", emits=results)
    class Sum(ProcessingElement):
        n: int = 0

        def on_event(self, reading):
            if reading.x == 7:
                raise ValueError("seven")
            seen.append(reading.x)
            if seen.count(1) > 1 and reading.x == 1:
                raise ConnectionError("the server is away")
            self.n += reading.x
            return results(self.key, self.n)

    driver = run(app, [[Reading("a", x, at(number)) for number, x in enumerate((1, 2, 7, 4))]], dead_letters=True)
    assert sorted(one["error"] for one in driver.dead_letters) == ["ConnectionError: the server is away", "ValueError: seven"]
    assert driver.output("Out")[-1].n == 6


# --- the end ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize(("window", "number"), [(Sliding("1 day", "1 min"), 1440), (Sliding("1 h", "1 s"), 3600)], ids=str)
def test_all_windows_close_at_the_end_in_order_too(ordered, window, number):
    app, readings, results = built(Number)

    @app.element(readings, key="key", window=window, emits=results, ordered=ordered)
    class Sum(ProcessingElement):
        n: int = 0

        def on_event(self, reading):
            self.n += 1

        def merge(self, other):
            self.n += other.n

        def on_close(self):
            return results(self.key, self.n)

    driver = run(app, [THREE[:1]])
    assert len(driver.output("Out")) == number
    assert driver.elements["Sum"].instances == {0: 0}


@pytest.mark.parametrize("ordered", [False, True])
def test_a_timer_that_sets_itself_again_ends_with_the_input(ordered):
    app, readings, results = built(Number)

    @app.element(readings, key="key", emits=results, ordered=ordered, timers="event")
    class Ticking(ProcessingElement):
        n: int = 0

        def on_event(self, reading):
            self.set_timer(at=reading.at)

        def on_timer(self):
            self.n += 1
            yield results(self.key, self.n)
            self.set_timer(at=self.watermark + timedelta(minutes=1))

    driver = run(app, [THREE[:1], [Reading("b", 1, at(600))], [Reading("b", 2, at(700))]], dead_letters=True)
    assert [row.n for row in driver.output("Out") if row.key == "a"][:3] == [1, 2, 3]
    assert driver.dead_letters == []


@pytest.mark.parametrize("ordered", [False, True])
def test_a_timer_that_is_always_due_ends(ordered):
    app, readings, results = built(Number)

    @app.element(readings, key="key", emits=results, ordered=ordered, timers="event")
    class Always(ProcessingElement):
        n: int = 0

        def on_event(self, reading):
            self.set_timer(at=reading.at)

        def on_timer(self):
            self.n += 1
            self.set_timer(at=self.watermark)
            return results(self.key, self.n)

    assert run(app, [THREE[:2]]).output("Out")


def test_a_timer_for_the_end_of_all_times_fires_at_the_end():
    app, readings, results = built(Number)

    @app.element(readings, key="key", emits=results, timers="event")
    class Last(ProcessingElement):
        n: int = 0

        def on_event(self, reading):
            self.n += 1
            self.set_timer(at=datetime(9999, 12, 31, tzinfo=UTC))

        def on_timer(self):
            return results(self.key, self.n)

    assert [row.n for row in run(app, [THREE[:2], THREE[2:]]).output("Out")] == [3]


def test_a_timer_in_order_that_sets_itself_again_goes_on_from_micro_batch_to_micro_batch():
    app, readings, results = built(Number)

    @app.element(readings, key="key", emits=results, ordered=True, timers="event")
    class Ticking(ProcessingElement):
        n: int = 0

        def on_event(self, reading):
            if reading.key == "a":
                self.set_timer(at=reading.at)

        def on_timer(self):
            self.n += 1
            self.set_timer(at=self.watermark + timedelta(seconds=1))
            return results(self.key, self.n)

    driver = TopologyDriver(app, partitions=1)
    driver.batch({"Readings": [Reading("a", 0, at(0))]})
    for minute in range(1, 26):
        driver.batch({"Readings": [Reading("b", 0, at(60 * minute))]})
    assert len(driver.output("Out")) > 1400
