"""Keyed elements of the batch dialect: what the same element does in the event dialect, whatever the micro-batches."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock import App, Event, ProcessingElement
from penstock.app.state import check_state_fits, describe_state
from penstock.errors import IncompatibleStateError, PenstockError, StateError, TopologyError
from penstock.runtime.column_pages import PER_PAGE, ColumnPages, Instances, PageForm, fields_of
from penstock.runtime.compressed import restored
from penstock.runtime.pages import HEADER, MemoryStore
from penstock.testing import Crash, TopologyDriver

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Reading(Event):
    key: str
    other: int
    value: int
    at: datetime


class Sum(Event):
    key: str
    other: int
    count: int
    total: int
    longest: str


class Kept(Event):
    count: int = 0
    total: int = 0
    longest: str = ""


def in_objects(timers: str, expires: float | None) -> App:
    """Counts and sums by key; an event of 13 fails; three seconds after its last event a key says its sums, and begins anew."""
    app, readings, sums, ends = _streams()

    @app.element(readings, key=["key", "other"], emits=[sums, ends], timers=timers, expires=expires)
    class Summing(ProcessingElement):
        count: int = 0
        total: int = 0
        longest: str = ""

        def on_event(self, event):
            if event.value == 13:
                raise ValueError("13")
            self.count += 1
            self.total += event.value
            self.longest = max(self.longest, "x" * event.value)
            self.set_timer(at=(event.at if timers == "event" else self.now) + timedelta(seconds=3))
            yield sums(*self.key, self.count, self.total, self.longest)

        def on_timer(self):
            yield ends(*self.key, self.count, self.total, self.longest)
            self.count, self.total, self.longest = 0, 0, ""

    return app


def in_columns(timers: str, expires: float | None) -> App:
    """The same in columns. One stream, in which the sums at the end are marked."""
    app, readings, sums, ends = _streams()
    both = app.stream("Both", Marked)

    def ended(states):
        made = _row(states.keys, states, states.count, states.total, states.longest, True)
        states.count, states.total, states.longest = (0 * states.count, 0 * states.total, np.full(len(states), "", object))
        return made

    @app.batch(readings, key=["key", "other"], state=Kept, emits=both, on_timer=ended, timers=timers, expires=expires)
    def summing(batch, at, states):
        if (batch["value"].to_numpy() == 13).any():
            raise ValueError("13")
        counts, totals, longest = [], [], []
        for place, value, time in zip(at, batch["value"].to_pylist(), batch["at"].to_pylist(), strict=True):
            states.count[place] += 1
            states.total[place] += value
            states.longest[place] = max(states.longest[place], "x" * value)
            moment = np.datetime64(time.replace(tzinfo=None), "us") if timers == "event" else states.now
            states.due[place] = moment + np.timedelta64(3, "s")
            counts.append(states.count[place])
            totals.append(states.total[place])
            longest.append(states.longest[place])
        return _row(batch, states, counts, totals, longest, False)

    @app.element(both, emits=[sums, ends])
    def part(event):
        stream = ends if event.ended else sums
        return stream(event.key, event.other, event.count, event.total, event.longest)

    return app


class Marked(Sum, frozen=True):
    ended: bool


def _streams() -> Any:
    app = App("sums")
    readings = app.source("Readings", Reading, event_time="at", lateness="2 s", late="dead-letter")
    sums, ends = app.stream("Sums", Sum), app.stream("Ends", Sum)
    app.sink("Out", sums)
    app.sink("Over", ends)
    return app, readings, sums, ends


def _row(keys: Any, states: Any, counts: Any, totals: Any, longest: Any, ended: bool) -> dict[str, Any]:
    return {
        "key": keys["key"],
        "other": keys["other"],
        "count": counts,
        "total": totals,
        "longest": longest,
        "ended": [ended] * len(counts),
    }


readings = st.builds(
    Reading,
    st.sampled_from(["a", "b", "c", "é", ""]),
    st.integers(0, 2),
    st.integers(0, 13),
    st.integers(0, 20).map(lambda second: NOON + timedelta(seconds=second)),
)
batches = st.lists(st.tuples(st.lists(readings, max_size=12), st.booleans()), min_size=1, max_size=6)
"""Events, and whether handling them crashes half-way the first time."""


FAILING = [([Reading("a", 0, value, NOON)], False) for value in (0, 13)]


@settings(deadline=None, max_examples=60)
@example(FAILING, "event", 4.0, 1)  # the event that fails keeps its instance from expiring
@given(batches, st.sampled_from(["event", "processing"]), st.sampled_from([None, 4.0]), st.integers(1, 3))
def test_it_does_what_the_event_dialect_does(
    given: list[tuple[list[Reading], bool]], timers: str, expires: float | None, partitions: int
) -> None:
    found = []
    for make in (in_objects, in_columns):
        driver = TopologyDriver(make(timers, expires), partitions=partitions, start=NOON, dead_letters=True)
        for events, crash in given:
            if crash and events:
                driver.crash_at(len(events) // 2)
                with pytest.raises(Crash):
                    driver.batch({"Readings": events})
            driver.batch({"Readings": events})
            driver.advance(2)
        driver.batch()
        driver.finish()
        found.append(_found(driver))
    assert found[0] == found[1]


def _found(driver: TopologyDriver) -> Any:
    """What has come out, the sums of a key in order; and what was counted of the element that keeps them."""
    by_key: dict[Any, list[Sum]] = {}
    for one in driver.output("Out"):
        by_key.setdefault((one.key, one.other), []).append(one)
    over = sorted(driver.output("Over"), key=repr)
    letters = sorted((repr(letter["event"]), letter["error"]) for letter in driver.dead_letters)
    [keyed] = (tally for name, tally in driver.elements.items() if name in ("Summing", "summing"))
    return by_key, over, letters, keyed.late, keyed.events, keyed.dead_letters


class Number(Event):
    key: float
    value: int = 1


class Counted(Event):
    key: float
    seen: int


class Seen(Event):
    seen: int = 0


def counting(event: type[Event] = Number, **options: Any) -> tuple[App, Callable[..., Any]]:
    app = App("counting")
    numbers, counted = app.source("Numbers", event), app.stream("Counted", Counted)
    app.sink("Out", counted)
    return app, app.batch(numbers, emits=counted, **({"key": "key", "state": Seen} | options))


def count(batch: Any, at: Any, states: Any) -> Any:
    states.seen += np.bincount(at, minlength=len(states))
    return {"key": states.keys["key"], "seen": states.seen}


def test_keys_that_are_equal_are_one() -> None:
    app, declare = counting()
    declare(count)
    driver = TopologyDriver(app)
    driver.batch({"Numbers": [Number(0.0), Number(-0.0), Number(2.5), Number(-0.0)]})
    assert sorted((one.key, one.seen) for one in driver.output("Out")) == [(0.0, 3), (2.5, 1)]


class Timed(Event):
    key: datetime | None
    value: int = 1


class TimedCount(Event):
    key: datetime | None
    seen: int


def test_a_key_may_be_a_time_or_missing() -> None:
    app = App("times")
    numbers, counted = app.source("Numbers", Timed), app.stream("Counted", TimedCount)
    app.sink("Out", counted)

    def again(states):
        return {"key": states.keys["key"], "seen": -states.seen}

    @app.batch(numbers, emits=counted, key="key", state=Seen, on_timer=again)
    def body(batch, at, states):
        states.due[:] = states.now
        return count(batch, at, states)

    driver = TopologyDriver(app)
    driver.batch({"Numbers": [Timed(NOON), Timed(None), Timed(NOON)]})
    found = {(one.key, one.seen) for one in driver.output("Out")}
    assert found == {(NOON, 2), (None, 1), (NOON, -2), (None, -1)}


class Since(Event):
    at: datetime = NOON.astimezone(timezone(timedelta(hours=5)))
    until: datetime | None = None


def test_a_time_in_state_begins_with_its_default() -> None:
    app = App("since")
    numbers, counted = app.source("Numbers", Timed), app.stream("Counted", Timed)
    app.sink("Out", counted)

    @app.batch(numbers, emits=counted, key="value", state=Since)
    def body(batch, at, states):
        found = {"key": states.at.copy(), "value": np.isnat(states.until).astype(int)}
        states.at += np.timedelta64(1, "h")
        return found

    driver = TopologyDriver(app)
    for _ in range(2):
        driver.batch({"Numbers": [Timed(None, 1), Timed(None, 2)]})
    later = NOON + timedelta(hours=1)
    assert [(one.key, one.value) for one in driver.output("Out")] == [(NOON, 1), (NOON, 1), (later, 1), (later, 1)]


def test_nothing_need_be_emitted() -> None:
    app, declare = counting(name="quiet")
    declare(lambda batch, at, states: None)
    driver = TopologyDriver(app)
    driver.batch({"Numbers": [Number(1.0)]})
    assert driver.output("Out") == []
    assert driver.elements["quiet"].events == 1


WRONG = {
    "are 2 instances": lambda states: setattr(states, "seen", np.zeros(5, np.int64)),
    "of type float64": lambda states: setattr(states, "seen", states.seen + 0.5),
    "did you mean seen": lambda states: setattr(states, "sen", states.seen),
    "cannot be set": lambda states: setattr(states, "keys", None),
    "more than 63 bits": lambda states: setattr(states, "seen", np.full(len(states), 2**63, np.uint64)),
}


@pytest.mark.parametrize("said", WRONG)
def test_what_cannot_be_kept_is_a_dead_letter_each(said: str) -> None:
    app, declare = counting()

    @declare
    def body(batch, at, states):
        if (batch["key"].to_numpy() >= 0).all():
            return count(batch, at, states)
        WRONG[said](states)

    driver = TopologyDriver(app, partitions=1, dead_letters=True)
    driver.batch({"Numbers": [Number(1.0), Number(-1.0), Number(1.0)]})
    driver.batch({"Numbers": [Number(1.0), Number(-1.0)]})
    assert [one.seen for one in driver.output("Out")][-1] == 3
    assert [letter["event"]["key"] for letter in driver.dead_letters] == [-1.0, -1.0]
    said = said.replace("2 instances", "1 instances")
    assert all(said in letter["error"] for letter in driver.dead_letters)
    assert sum(driver.elements["body"].instances.values()) == 1


class Texts(Event):
    text: str = ""
    when: datetime | None = None


def test_texts_and_times_are_kept_as_they_are_declared() -> None:
    app, declare = counting(state=Texts)
    seen = []

    @declare
    def body(batch, at, states):
        seen.append((states.text.tolist(), states.when.tolist()))
        key = batch["key"].to_numpy()[0]
        if key == 1:
            states.text = np.array([5], object)
        elif key == 2:
            states.text = np.array([None], object)
        else:
            states.text, states.when = np.array(["é"]), np.array(["2026-01-01"], "M8[D]")

    driver = TopologyDriver(app, partitions=1, dead_letters=True)
    for key in (1.0, 2.0, 3.0, 3.0):
        driver.batch({"Numbers": [Number(key)]})
    errors = [letter["error"] for letter in driver.dead_letters]
    assert len(errors) == 2
    assert "of type str" in errors[0]
    assert "`str | None`" in errors[1]
    assert seen[-1] == (["é"], [datetime(2026, 1, 1)])


class Listed(Event):
    many: list[int] = []


class Bare(Event):
    seen: int


class Due(Event):
    due: int = 0


class Perhaps(Event):
    seen: int | None = None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"state": None}, "key= and state= go together"),
        ({"key": None}, "key= and state= go together"),
        ({"key": None, "state": None, "on_timer": print}, "timers belong to keyed instances"),
        ({"key": None, "state": None, "expires": 1.0}, "need a key"),
        ({"state": dict}, "no class of fields"),
        ({"state": Listed}, "no array can hold"),
        ({"state": Perhaps}, "no array can hold"),
        ({"state": Bare}, "no default"),
        ({"state": Due}, "another name"),
        ({"on_timer": 5}, "cannot be called"),
        ({"on_timer": lambda: None}, "the states that are due"),
        ({"key": "nothing"}, "keyed by 'nothing'"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, Any], said: str) -> None:
    app, declare = counting(**options)
    body = count if options.get("key", "key") or "state" not in options else lambda batch: batch

    def whole() -> None:
        declare(body)
        app.topology()

    with pytest.raises((TopologyError, StateError), match=said):
        whole()


def test_a_body_takes_three_arguments() -> None:
    _, declare = counting()
    with pytest.raises(TopologyError, match="the places of its instances, and their states"):
        declare(lambda batch: batch)


def test_a_change_of_dialect_is_refused_where_there_is_state() -> None:
    app, declare = counting()
    declare(count)
    in_columns = describe_state(app.topology())
    assert in_columns["count"]["kept"] == "in columns"
    in_objects = {"count": {**in_columns["count"], "kept": "in objects"}}
    for stored, present in ((in_columns, in_objects), (in_objects, in_columns)):
        with pytest.raises(IncompatibleStateError, match="as another dialect does"):
            check_state_fits(stored, present)


class Wider(Event):
    seen: float = 0.0
    more: str = "new"


def test_pages_are_divided_and_read_by_newer_code() -> None:
    store = MemoryStore()
    pages = ColumnPages("e", store, fields_of(Seen))
    number = 5 * PER_PAGE
    identities = pa.array([b"%d" % n for n in range(number)], pa.binary())
    times = np.arange(number).astype("M8[us]")
    empty = pages.read([0])
    hashes = np.random.default_rng(7).integers(0, 2**32, number)
    empty.add(Instances(identities, {"_hash": hashes, "_touched": times, "_due": times, "seen": np.arange(number)}))
    pages.header.instances = number
    pages.write(empty)
    newer = ColumnPages("e", store, fields_of(Wider))
    assert newer.header.pages == 5
    assert len(newer.due(0.0)) == 1
    assert newer.header.due[0] < number / 1e6
    read = newer.read(range(5))
    assert dict(zip(read.identities.to_pylist(), read.arrays["seen"], strict=True)) == {
        b"%d" % n: float(n) for n in range(number)
    }
    assert set(read.arrays["more"]) == {"new"}
    form, stored = PageForm(fields_of(Wider)), store.get("e", 3)
    assert stored is not None
    content = restored(stored)
    assert len(stored) < len(content)
    assert store.get("e", HEADER) is not None
    identities, entries = form.divided(content)
    dues, page = form.joined(entries, form.opened(content)["_hash"].to_numpy())
    assert form.opened(page).equals(form.opened(content))
    assert len(dues) == len(identities)


def test_the_errors_of_a_run_are_sentences() -> None:
    app, declare = counting(name="five")
    declare(lambda batch, at, states: 5)
    with pytest.raises(PenstockError, match="returned int"):
        TopologyDriver(app).batch({"Numbers": [Number(1.0)]})


def test_the_watermark_is_told() -> None:
    app = App("marked")
    readings = app.source("Readings", Reading, event_time="at", lateness="2 s")

    told = []

    @app.batch(readings, emits=app.stream("Sums", Sum), key="key", state=Kept)
    def marked(batch, at, states):
        told.append(states.watermark)

    driver = TopologyDriver(app)
    driver.batch({"Readings": [Reading("a", 0, 1, NOON)]})
    driver.batch({"Readings": [Reading("a", 0, 1, NOON)]})
    assert np.isnat(told[0])
    assert told[1] == np.datetime64("2026-01-01T11:59:58", "us")
