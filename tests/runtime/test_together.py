"""Windows of reducers that take many events at once come to what they would one by one: results, letters, counts and state."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import outcome_of

from penstock import App, Event, Session, Sliding, Tumbling, reducers
from penstock.runtime.together import windows
from penstock.runtime.together.windows import ways_of
from penstock.testing import TopologyDriver

T0 = datetime(2026, 1, 1, tzinfo=UTC)


class Reading(Event):
    key: str
    at: datetime
    number: int
    value: float
    text: str | None = None
    maybe: int | None = None


class Known(Event):
    key: str
    start: datetime
    n: int
    few: int
    total: int
    low: int | None
    high: int | None
    mean: float | None
    sum: float
    least: float | None
    most: float | None
    first: str | None
    last: Reading | None
    top: list[Reading]
    texts: int
    numbers: int
    about: int
    all: list[int | None]
    least_text: str | None
    most_maybe: int | None


def refuses(reading: Reading) -> bool:
    if reading.number == 13:
        raise ValueError("an unlucky number")
    return reading.number % 2 == 0


STATISTICS = {
    "n": reducers.count(),
    "few": reducers.count().where(refuses),
    "total": reducers.sum("number"),
    "low": reducers.min("number"),
    "high": reducers.max("number").where(lambda reading: reading.value > 0),
    "mean": reducers.mean("number"),
    "sum": reducers.sum("value"),
    "least": reducers.min("value"),
    "most": reducers.max("value"),
    "first": reducers.first("text"),
    "last": reducers.last(),
    "top": reducers.top(2, by="value"),
    "texts": reducers.distinct("text"),
    "numbers": reducers.distinct("number"),
    "about": reducers.approx_distinct("maybe"),
    "all": reducers.collect("maybe"),
    "least_text": reducers.min("text"),
    "most_maybe": reducers.max("maybe"),
}
WINDOWS = [
    Tumbling("10 s"),
    Tumbling("10 s", offset="3 s", allowed="20 s"),
    Tumbling("7 s", at="at"),
    Sliding("10 s", "2 s"),
    Sliding("10 s", "3 s"),
    Sliding("10 s", "10 s"),
    Session("4 s"),
    Session("4 s", allowed="15 s"),
    Tumbling("1 d", zone="Europe/Zurich"),
]
ORDINARY = st.integers(-50, 50)
FLOATS = st.one_of(st.floats(-5, 5), st.sampled_from([0.0, -0.0, 0.1, 1e308]))
STRANGE = st.one_of(ORDINARY, st.sampled_from([2**62, 2**63 - 1, -(2**63)]))
STRANGE_FLOATS = st.one_of(FLOATS, st.sampled_from([float("nan"), float("inf"), -float("inf")]))


def readings(numbers: Any, floats: Any) -> Any:
    """Batches of readings, roughly in the order of their times."""
    reading = st.builds(
        lambda key, late, number, value, text, maybe: (key, late, number, value, text, maybe),
        st.sampled_from("abc"),
        st.integers(-300, 30),
        numbers,
        floats,
        st.sampled_from([None, "", "x", "y"]),
        st.none() | st.integers(0, 9) | st.integers(0, 10**6),
    )
    return st.lists(st.lists(reading, max_size=60), min_size=1, max_size=5)


def application(window: Any, results: str, late: str) -> App:
    app = App("statistics")
    source = app.source("Readings", Reading, event_time="at", lateness=8, late=late)
    known = app.stream("Known", Known)
    app.aggregate(source, key="key", window=window, into=known, name="E", results=results, **STATISTICS)
    app.sink("Out", known)
    return app


def outcome(app: App, batches: list[list[Any]], few: int, at_once: pytest.MonkeyPatch) -> Any:
    at_once.setattr(windows, "FEW", few)
    moments = [T0 + timedelta(seconds=15 * number) for number in range(len(batches))]
    events = (
        [Reading(key, moment + timedelta(seconds=late / 10), *values) for key, late, *values in batch]
        for moment, batch in zip(moments, batches, strict=True)
    )
    return outcome_of(app, "Readings", "E", events)


def test_events_taken_between_two_that_fail_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second failure restores the state from a snapshot that the first one has left."""
    monkeypatch.setattr(windows, "MOST", 100)
    app = application(Tumbling("1 d"), "final", "dead-letter")
    unlucky = {3, 330}
    rows = [("a", 0, 13 if row in unlucky else 2, 0.5, "x", 1) for row in range(400)]
    results, letters, _ = outcome(app, [rows], 32, monkeypatch)
    assert "n=398, few=398" in results[0]
    assert len(letters) == 2


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@settings(max_examples=25)
@given(data=st.data())
def test_at_once_is_one_by_one(window: Any, data: st.DataObject) -> None:
    strange = data.draw(st.booleans())
    batches = data.draw(readings(STRANGE if strange else ORDINARY, STRANGE_FLOATS if strange else FLOATS))
    results = data.draw(st.sampled_from(["final", "updates", "both"]))
    app = application(window, results, data.draw(st.sampled_from(["dead-letter", "drop"])))
    with pytest.MonkeyPatch.context() as at_once:
        at_once.setattr(windows, "MOST", data.draw(st.sampled_from([windows.MOST, 100, 10])))  # so that there are several parts
        one_by_one = outcome(app, batches, 10**9, at_once)
        assert outcome(app, batches, 0, at_once) == one_by_one


class Sent(Event):
    key: str
    at: datetime
    paid: datetime


class Paid(Event):
    key: str
    start: datetime
    n: int


def of_payments(field: str | None) -> App:
    app = App("payments")
    sent, paid = app.source("Sent", Sent, event_time="at", lateness=60), app.stream("Paid", Paid)
    app.aggregate(sent, key="key", window=Tumbling("10 s", at=field), into=paid, n=reducers.count())
    app.sink("Out", paid)
    return app


@pytest.mark.parametrize("field", [None, "at", "paid"])
def test_windows_lie_where_their_own_field_says(field: str | None) -> None:
    """It may be another than that of the source's times."""
    events = [Sent("ab"[n % 2], T0 + timedelta(seconds=n / 4), T0 + timedelta(seconds=n % 32)) for n in range(96)]
    driver = TopologyDriver(of_payments(field))
    driver.batch({"Sent": events})
    driver.finish()
    expected = Counter((one.key, int((getattr(one, field or "at") - T0).total_seconds() // 10)) for one in events)
    found = {(one.key, int((one.start - T0).total_seconds() // 10)): one.n for one in driver.output("Out")}
    assert found == expected


@pytest.mark.parametrize(
    ("window", "taken"),
    [
        (Tumbling("10 s"), True),
        (Sliding("10 s", "2 s"), True),
        (Session("4 s"), True),
        (Tumbling("1 d", zone="Asia/Tokyo"), False),
    ],
    ids=str,
)
def test_which_windows_take_events_at_once(window: Any, taken: bool) -> None:
    [element] = application(window, "final", "drop").topology().elements
    assert isinstance(ways_of(element), str) is not taken


def test_ordinary_events_are_taken_at_once() -> None:
    """So that the comparison above compares two ways, and not one with itself."""
    taken: list[int] = []
    with pytest.MonkeyPatch.context() as counted:
        whole = windows.Together.take

        def take(self: Any, *given: Any) -> Any:
            rows = whole(self, *given)
            taken.append(int(rows.sum()))
            return rows

        counted.setattr(windows.Together, "take", take)
        for window in (Tumbling("10 s"), Sliding("10 s", "2 s"), Sliding("10 s", "3 s"), Session("4 s")):
            batch = [("abc"[n % 3], n, n % 7, 0.5 + n, "x", None) for n in range(60)]
            outcome(application(window, "both", "drop"), [batch, batch], 0, counted)
    assert sum(taken) == 4 * 2 * 60


def needs_one_by_one(window: Any, times: list[int], open_spans: list[tuple[int, int]], fired: int, panes: bool) -> bool:
    """Whether an instance's events, in the order of delivery, are to be handled one by one, by the windows' definitions."""
    if isinstance(window, Session):
        gap = window.gap_us
        if any(time + gap <= fired or time < fired - window.allowed_us for time in times):
            return True
        spans = list(open_spans)
        for time in times:
            touched = [span for span in spans if time < span[1] and span[0] < time + gap]
            if len(touched) > 1:
                return True
            start, end = touched[0] if touched else (time, time + gap)
            spans = [span for span in spans if span not in touched] + [(min(start, time), max(end, time + gap))]
        groups: list[tuple[int, int]] = []
        for time in sorted(times):
            if groups and time - groups[-1][1] + gap < gap:
                groups[-1] = (groups[-1][0], time + gap)
            else:
                groups.append((time, time + gap))
        # Two groups that one open session takes in would not merge, but are left to the other way, too.
        return any(sum(begun < end and start < until for begun, until in groups) > 1 for start, end in open_spans)
    size, every, offset = window.size_us, window.every_us, window.offset_us
    back = -(-size // every) * every
    ends = [
        [
            start + size
            for start in range((time - offset) // every * every + offset - back, time + 1, every)
            if time < start + size
        ]
        for time in times
    ]
    # A pane is handed on by windows that are still open; other windows must all be.
    return any((max if panes else min)(closing) <= fired for closing in ends)


@pytest.mark.parametrize("window", [each for each in WINDOWS if getattr(each, "zone", None) is None], ids=str)
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_just_the_instances_that_need_it_are_taken_one_by_one(window: Any, data: st.DataObject) -> None:
    """What fails in the other way is done one by one, with equal results; so that it must not fail shows only here."""
    results = data.draw(st.sampled_from(["final", "both"]))
    panes = isinstance(window, Sliding) and window.shared and results == "final"
    seconds = st.tuples(st.sampled_from("abc"), st.sampled_from(range(-600, 31, 10)))
    batches = data.draw(st.lists(st.lists(seconds, min_size=1, max_size=25), min_size=3, max_size=5))
    whole, wrong = windows.Together.take, list[Any]()

    def take(self: Any, events: Any, numbers: Any, instances: Any, times: Any) -> Any:
        if window.at is not None:
            times = events.times()
        fired, expected = windows.of_watermark(self._context.fired), dict[int, bool]()
        for number, instance in enumerate(instances):
            spans = [(start, part.end) for start, part in instance.state.open.items()]
            own = [time for time, owner in zip(times.tolist(), numbers.tolist(), strict=True) if owner == number]
            expected[number] = bool(own) and needs_one_by_one(window, own, spans, fired, panes)
        taken = whole(self, events, numbers, instances, times)
        if taken.tolist() != [not expected[number] for number in numbers.tolist()]:
            wrong.append((taken.tolist(), expected, times.tolist(), numbers.tolist(), fired))
        return taken

    with pytest.MonkeyPatch.context() as seen:
        seen.setattr(windows.Together, "take", take)
        rows = [[(key, late, n % 13, 0.5 + n, "x", None) for n, (key, late) in enumerate(batch)] for batch in batches]
        outcome(application(window, results, "dead-letter"), rows, 0, seen)
    assert not wrong


def differences(window: Any, batches: list[list[Any]], results: str = "final") -> None:
    """There are none, for batches of seconds and numbers; each batch is 15 seconds after the one before."""
    rows = [[("a", 10 * second, number, 0.1 * number, "x", None) for second, number in batch] for batch in batches]
    app = application(window, results, "dead-letter")
    with pytest.MonkeyPatch.context() as at_once:
        one_by_one = outcome(app, rows, 10**9, at_once)
        assert outcome(app, rows, 0, at_once) == one_by_one


def test_what_the_parts_of_a_delivery_have_too_late_for_some_windows_adds_up() -> None:
    first = [[("a", late, 1, 0.1, "x", None)] for late in (0, 30, 0)]
    rows = [*first, [("a", -360, n % 7, 0.1, "x", None) for n in range(30)]]
    app = application(Sliding("10 s", "2 s"), "final", "dead-letter")
    with pytest.MonkeyPatch.context() as at_once:
        at_once.setattr(windows, "MOST", 10)
        one_by_one = outcome(app, rows, 10**9, at_once)
        assert outcome(app, rows, 0, at_once) == one_by_one
    assert one_by_one[-1][1] == 30


class Total(Event):
    key: str
    n: int
    all: list[int]


class Sum(Event):
    key: str
    n: int


def in_one_window(into: type[Event], numbers: list[int], **reducing: Any) -> TopologyDriver:
    app = App("totals")
    source = app.source("Readings", Reading, event_time="at")
    totals = app.stream("Totals", into)
    app.aggregate(source, key="key", window=Tumbling("1 d"), into=totals, **reducing)
    app.sink("Out", totals)
    driver = TopologyDriver(app, dead_letters=True)
    driver.batch({"Readings": [Reading("abc"[n % 3], T0, number, 0.5) for n, number in enumerate(numbers)]})
    driver.finish()
    return driver


def test_values_that_are_collected_together_stay_in_order() -> None:
    driver = in_one_window(Total, list(range(3000)), n=reducers.count(), all=reducers.collect("number"))
    assert {total.key: total.all for total in driver.output("Out")} == {
        key: [*range(at, 3000, 3)] for at, key in enumerate("abc")
    }


def test_a_sum_that_has_no_64_bits_is_refused_in_windows_of_numbers_alone() -> None:
    numbers = [2**63, 1, 1, 2**63, 1, 1, 5, 1, 1]
    driver = in_one_window(Sum, numbers, n=reducers.sum("number"))
    assert {total.key: total.n for total in driver.output("Out")} == {"a": 2**63 + 5, "b": 3, "c": 3}
    assert len(driver.dead_letters) == 1


@pytest.mark.parametrize("seconds", [[0, 6, 1, 7, 3], [6, 0, 3], [0, 3, 6, 9], [9, 6, 3, 0], [0, 3, 20, 1, 23]], ids=str)
def test_sessions_that_join_in_any_order(seconds: list[int]) -> None:
    differences(Session("4 s"), [[(second, n + 1) for n, second in enumerate(seconds)]])
    differences(Session("4 s"), [[(2, 9)], [(second - 13, n + 1) for n, second in enumerate(seconds)]])


@pytest.mark.parametrize("results", ["final", "updates", "both"])
@pytest.mark.parametrize("window", [Session("4 s", allowed="15 s"), Tumbling("4 s", allowed="15 s")], ids=str)
def test_what_comes_late_to_a_window_that_is_kept(window: Any, results: str) -> None:
    differences(window, [[(0, 1)], [(15, 1)], [(0, 1)], [(-33, 1), (-30, 2)], [(-29, 1)], [(1, 1)]], results)


@pytest.mark.parametrize("numbers", [[-(2**63), -(2**63), 5], [-(2**63), -1, 0], [2**63 - 1, 1], [2**62, 2**62]], ids=str)
def test_sums_beyond_64_bits(numbers: list[int]) -> None:
    differences(Tumbling("10 s"), [[(0, number) for number in numbers]])


def test_a_result_whose_fields_are_to_be_named() -> None:
    class Named(Event, kw_only=True):
        key: str
        n: int = 0

    app = App("named")
    named = app.stream("Named", Named)
    app.aggregate(
        app.source("Readings", Reading, event_time="at"), key="key", window=Tumbling("10 s"), into=named, n=reducers.count()
    )
    app.sink("Out", named)
    driver = TopologyDriver(app)
    driver.batch({"Readings": [Reading("a", T0, 1, 1.0)]})
    driver.finish()
    assert driver.output("Out") == [Named(key="a", n=1)]


def test_a_predicate_that_ends_the_process_fails_its_event_alone() -> None:
    class Number(Event):
        key: str
        n: int

    def leaves(reading: Reading) -> bool:
        if reading.number == 13:
            raise SystemExit(1)
        return True

    app = App("leaves")
    numbers = app.stream("Numbers", Number)
    counted = reducers.count().where(leaves)
    app.aggregate(app.source("Readings", Reading, event_time="at"), key="key", window=Tumbling("10 s"), into=numbers, n=counted)
    app.sink("Out", numbers)
    driver = TopologyDriver(app, dead_letters=True)
    driver.batch({"Readings": [Reading("a", T0, number, 1.0) for number in range(40)]})
    driver.finish()
    assert driver.output("Out") == [Number("a", 39)]
    assert len(driver.dead_letters) == 1


def results_of(window: Any, total: Any, seconds: list[int], results: str = "final") -> list[Any]:
    class Sum(Event):
        key: str
        start: datetime
        total: list[float]

    app = App("totals")
    sums = app.stream("Sums", Sum)
    source = app.source("Readings", Reading, event_time="at")
    app.aggregate(source, key="key", window=window, into=sums, results=results, total=total)
    app.sink("Out", sums)
    driver = TopologyDriver(app, dead_letters=True)
    for second in seconds:
        driver.batch({"Readings": [Reading("a", T0 + timedelta(seconds=second), second, 1.0)] * 40})
    driver.finish()
    return [*driver.output("Out"), *driver.dead_letters]


def test_what_a_fold_leaves_is_looked_at_before_it_is_kept() -> None:
    fold = reducers.fold((0.0, 0), lambda state, event: (state[0] + 1, None), kind=tuple[float, int])
    found = results_of(Tumbling("10 s"), fold, [0, 20])
    assert len(found) == 80
    assert all("cannot be kept" in letter["error"] for letter in found)


def test_many_windows_of_many_events_take_no_memory() -> None:
    with pytest.MonkeyPatch.context() as few:
        few.setattr(windows, "MOST", 100)
        differences(Sliding("10 s", "3 s"), [[(second % 9, second) for second in range(60)]])


def test_a_window_of_ones_own_that_is_derived_from_a_kind_begins_where_it_says() -> None:
    class Shifted(Tumbling):
        def starts(self, time: int) -> Any:
            return (start + 3_000_000 for start in super().starts(time - 3_000_000))

        def end(self, start: int) -> int:
            return start + self.size_us

    [result, *_] = results_of(Shifted("10 s"), reducers.collect("value"), [4])
    assert result.start == T0 + timedelta(seconds=3)


def test_another_reducer_keeps_events_one_by_one() -> None:
    class Doubled(reducers.sum):
        def add(self, state: Any, value: Any, time: int) -> Any:
            return state + 2 * value

    class Sum(Event):
        key: str
        total: int

    app = App("doubled")
    sums = app.stream("Sums", Sum)
    app.aggregate(
        app.source("Readings", Reading, event_time="at"), key="key", window=Tumbling("10 s"), into=sums, total=Doubled("number")
    )
    [element] = app.topology().elements
    assert ways_of(element) == "total=Doubled(...) adds event by event"


def test_a_result_that_cannot_be_made_leaves_the_other_windows() -> None:
    """The results of one timer are said all or, where one fails, one by one; what has closed is as it was in between."""

    class Small(Event):
        key: str
        start: datetime
        total: Annotated[int, msgspec.Meta(le=100)]

    for window in (Tumbling("10 s"), Sliding("20 s", "10 s"), Session("4 s")):
        app = App("small")
        small = app.stream("Small", Small)
        source = app.source("Readings", Reading, event_time="at")
        app.aggregate(source, key="key", window=window, into=small, total=reducers.sum("number"))
        app.sink("Out", small)
        driver = TopologyDriver(app, dead_letters=True)
        numbers = {0: 1, 30: 1000, 60: 3}
        driver.batch({"Readings": [Reading("a", T0 + timedelta(seconds=at), n, 1.0) for at, n in numbers.items()]})
        driver.finish()
        totals = sorted(one.total for one in driver.output("Out"))
        each = 2 if window.merges is False and "every" in str(window) else 1
        assert totals == [1] * each + [3] * each
        assert len(driver.dead_letters) == each


@pytest.mark.parametrize("order", [[-1, 9], [9, -1], [-1, 9, 1], [1, 9, -1]], ids=str)
def test_two_sessions_apart_that_touch_one_that_is_open(order: list[int]) -> None:
    """The batches begin 15 seconds apart: an open session lasts from 0 to 10, and what touches both its ends comes at once."""
    open_session = [(second, 1) for second in (0, 3, 6)]
    differences(Session("4 s", allowed="30 s"), [open_session, [(second - 15, n + 1) for n, second in enumerate(order)]])
    differences(
        Session("4 s"), [[(second + 12, 1) for second in (0, 3, 6)], [(second - 3, n + 1) for n, second in enumerate(order)]]
    )
