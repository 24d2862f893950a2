"""What user code may do to its events, its state and its keys without losing or doubling anything. In memory."""

import asyncio
import sys
from collections import Counter
from datetime import datetime
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import App, Event, ProcessingElement
from penstock.connectors.registry import bind_sinks
from penstock.runtime import live, pages
from penstock.runtime.events import EventBatch
from penstock.runtime.lineage import LineageColumns
from penstock.runtime.output import FileOutput, SinkFiles
from penstock.runtime.stage import Stage
from penstock.runtime.wiring import Wiring
from penstock.testing import TopologyDriver


class Order(Event):
    key: str
    amounts: list[int]


class Total(Event):
    key: str
    sum: int


def totals(handle, partitions=1, **options):
    """A driver of one keyed element, whose ``on_event`` is ``handle(self, event)``."""
    app = App("totals")
    orders, out = app.source("Orders", Order), app.stream("Totals", Total)
    app.sink("Out", out)

    @app.element(orders, key="key", emits=out, **options)
    class Adder(ProcessingElement):
        sum: int = 0
        log: list[str] = []

        def on_event(self, event):
            return handle(self, event, out)

        def on_batch(self):
            yield out(self.key, self.sum)

    return TopologyDriver(app, partitions=partitions, dead_letters=True)


def last(driver):
    return {total.key: total.sum for total in driver.output("Out")}


def test_a_hook_that_changes_its_event_and_fails_later_loses_no_state():
    def handle(self, event, out):
        while event.amounts:
            self.sum += event.amounts.pop()
            if self.sum > 600:
                raise ValueError("too much")

    driver = totals(handle)
    driver.batch({"Orders": [Order("a", [100, 200]), Order("a", [999, 5]), Order("a", [300])]})
    assert last(driver) == {"a": 600}
    assert [letter["event"]["amounts"] for letter in driver.dead_letters] == [[999, 5]], "as it came"


def test_a_keyless_element_that_changes_its_event_changes_it_for_nobody_else():
    app = App("two")
    orders, out = app.source("Orders", Order), app.stream("Totals", Total)
    app.sink("Out", out)
    app.sink("Copy", orders)

    @app.element(orders, emits=out)
    def greedy(event):
        event.amounts.clear()
        raise ValueError("gone")

    @app.element(orders, emits=out)
    def adder(event):
        yield out(event.key, sum(event.amounts))

    driver = TopologyDriver(app, dead_letters=True)
    driver.batch({"Orders": [Order("a", [1, 2])]})
    assert last(driver) == {"a": 3}
    assert driver.output("Copy") == [Order("a", [1, 2])]
    assert driver.dead_letters[0]["event"]["amounts"] == [1, 2]


def counting(out):
    class Counting(ProcessingElement):
        seen: int = 0

        def on_event(self, event):
            self.seen += 1

        def on_batch(self):
            yield out("x", self.seen)

    return Counting


@pytest.mark.parametrize(
    ("kind", "values", "instances"),
    [
        (float, [0.0, -0.0, 1.5], 2),
        (Decimal, [Decimal("1.0"), Decimal("1.00"), Decimal("1E+2"), Decimal(100), Decimal("-0")], 3),
        (datetime, [datetime.fromisoformat(f"2026-01-01T{at}") for at in ("12:00:00+00:00", "13:00:00+01:00")], 1),
        (float | None, [None, 0.0, -0.0], 2),
    ],
)
def test_keys_that_are_equal_are_one_instance(kind, values, instances):
    class Reading(Event):
        at: kind
        part: float = 0.0

    for key in ("at", ("part", "at")):
        app = App("equal")
        readings, out = app.source("Readings", Reading), app.stream("Totals", Total)
        app.sink("Out", out)

        app.element(readings, key=key, emits=out, name="Counter")(counting(out))
        driver = TopologyDriver(app, partitions=3, dead_letters=True)
        driver.batch({"Readings": [Reading(value) for value in values]})
        driver.batch({"Readings": [Reading(value) for value in reversed(values)]})
        assert sum(driver.elements["Counter"].instances.values()) == instances
        assert sum(total.sum for total in driver.output("Out")) == 3 * len(values)


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("no words")


FAULTS = {
    "surrogate": lambda: ValueError("\ud800"),
    "speechless": Unspeakable,
    "exit": lambda: SystemExit(3),
    "cancelled": asyncio.CancelledError,
    "deep": lambda: RecursionError("deep"),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("keyed", [True, False])
def test_whatever_an_element_raises_is_a_dead_letter(fault, keyed):
    def handle(self, event, out):
        if event.amounts == [13]:
            raise fault()
        if self is not None:
            self.sum += sum(event.amounts)

    if keyed:
        driver = totals(handle)
    else:
        app = App("keyless")
        orders, out = app.source("Orders", Order), app.stream("Totals", Total)
        app.sink("Out", out)
        app.element(orders, emits=out, name="plain")(lambda event: handle(None, event, out))
        driver = TopologyDriver(app, dead_letters=True)
    driver.batch({"Orders": [Order("a", [1]), Order("a", [13]), Order("a", [2])]})
    [letter] = driver.dead_letters
    assert letter["error"].startswith(type(fault()).__name__)
    if keyed:
        assert last(driver) == {"a": 3}


@pytest.mark.parametrize("bad", [2**70, -(2**63) - 1, 0.5, "text", "\ud800", object()])
def test_an_event_that_leaves_state_which_cannot_be_kept_is_a_dead_letter(bad):
    def handle(self, event, out):
        before = self.sum
        self.sum = bad if event.amounts == [13] else self.sum + sum(event.amounts)
        yield out(f"{self.key} emitted", before)

    driver = totals(handle)
    driver.batch({"Orders": [Order("a", [1]), Order("a", [13]), Order("b", [5])]})
    driver.batch({"Orders": [Order("a", [2])]})
    assert last(driver) == {"a": 3, "b": 5, "a emitted": 1, "b emitted": 0}
    [letter] = driver.dead_letters
    assert letter["event"] == {"key": "a", "amounts": [13]}
    assert "the state of key 'a' cannot be kept" in letter["error"]
    assert Counter(total.key for total in driver.output("Out"))["a emitted"] == 2, "but not by the event at fault"


@pytest.mark.parametrize("on_error", ["dead-letter", "stop"])
def test_text_that_is_no_unicode_ends_nothing(on_error):
    app = App("surrogates")
    orders, out = app.source("Orders", Order), app.stream("Totals", Total)
    app.sink("Out", out)

    @app.element(orders, emits=out)
    def mangle(event):
        yield out(event.key + "\ud800", 1)
        yield out(event.key, 2)

    driver = TopologyDriver(app, dead_letters=True)
    driver.batch({"Orders": [Order("a", [1]), b'{"key": "\\ud800", "amounts": []}', b'{"key": "b\xff", "amounts": []}']})
    assert last(driver) == {"a": 2}
    assert len(driver.dead_letters) >= 2


def test_pages_are_bounded_in_bytes(monkeypatch):
    monkeypatch.setattr(pages, "BYTES_PER_PAGE", 10_000)

    def handle(self, event, out):
        self.log = ["x" * 1000] * 5

    driver = totals(handle)
    driver.batch({"Orders": [Order(f"k{number}", [1]) for number in range(200)]})
    store = driver._committed.stores[1, 0]
    sizes = [len(content) for (_, page), content in store._content.items() if page >= 0]
    assert len(sizes) >= 100
    assert max(sizes) < 60_000
    driver.batch({"Orders": [Order(f"k{number}", [1]) for number in range(200)]})
    assert sum(driver.elements["Adder"].instances.values()) == 200


def test_a_state_too_large_is_refused_with_its_key(monkeypatch):
    monkeypatch.setattr(live, "LARGEST_STATE", 10_000)

    def handle(self, event, out):
        self.log.append("x" * 6_000)
        self.sum += 1

    driver = totals(handle)
    driver.batch({"Orders": [Order("big", [1]), Order("big", [2])]})
    assert last(driver) == {"big": 1}
    assert "the state of key 'big' has 12," in driver.dead_letters[0]["error"]


@pytest.mark.parametrize("keys", [1, 2_000])
def test_failures_cost_no_more_than_their_events(keys):
    """Counted, not timed: how often events are applied to undo failures."""
    applied = 0

    def handle(self, event, out):
        nonlocal applied
        applied += 1
        self.sum += 1
        if event.amounts == [13]:
            raise ValueError("no")

    driver = totals(handle)
    events = [Order(f"k{number % keys}", [13 if number // keys % 2 else 1]) for number in range(4_000)]
    driver.batch({"Orders": events})
    assert sum(last(driver).values()) == 2_000
    assert len(driver.dead_letters) == 2_000
    assert applied < 4 * len(events)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(-5, 13)), max_size=40),
    st.integers(1, 3),
    st.lists(st.integers(1, 10), min_size=1, max_size=4),
)
def test_failed_events_leave_no_trace_whatever_the_cut(events, partitions, cuts):
    def handle(self, event, out):
        self.log.append("x" * abs(event.amounts[0]))
        self.sum += event.amounts.pop()
        if self.sum % 3 == 1:
            raise ValueError("one too many")
        if self.sum % 7 == 6:
            self.sum = 2**80

    expected: dict[str, int] = {}
    for key, amount in events:
        total = expected.get(key, 0) + amount
        if total % 3 != 1 and total % 7 != 6:
            expected[key] = total
    driver, start = totals(handle, partitions), 0
    for cut in [*cuts, sys.maxsize]:
        driver.batch({"Orders": [Order(key, [amount]) for key, amount in events[start : start + cut]]})
        start += cut
    assert last(driver) == expected
    assert len(driver.dead_letters) + sum(1 for _ in _applied(events)) == len(events)


def _applied(events):
    totals_: dict[str, int] = {}
    for key, amount in events:
        total = totals_.get(key, 0) + amount
        if total % 3 != 1 and total % 7 != 6:
            totals_[key] = total
            yield key


def letter_files(directory):
    return SinkFiles("dead-letters", "jsonl", str(directory / "letters"), role="letters")


def test_numbers_that_sqlite_would_not_keep_are_dead_letters(tmp_path):
    class Mean(Event):
        name: str
        mean: float
        spread: float | None = None

    app = App("means")
    means = app.source("Means", Mean)
    sink = bind_sinks([app.sink("Out", means, uri=f"sqlite:{tmp_path / 'm.sqlite'}")], {}, tmp_path)["Out"]
    sink.claim("run", ())
    files = (sink.files, letter_files(tmp_path))
    output = FileOutput(files, "0")
    stage = Stage(Wiring(app.topology(), 1, files, "dead-letter"), 0, 0, output)
    nan = float("nan")
    events = [Mean("a", 1.0, nan), Mean("b", nan), Mean("c", 2.0)]
    stage.route(EventBatch(means, LineageColumns.read(*np.zeros((3, 3), np.int64)), events=events))
    stage.finish()
    sink.deliver("main", 0, [file for file in stage.tally.files if file.sink == "Out"])
    assert [mean.name for mean in sink.read()] == ["a", "c"]
    assert stage.tally.elements["Out"].dead_letters == 1
