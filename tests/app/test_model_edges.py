"""Edges of the model of programming: what one micro-batch gives, several give; what one format gives, the others give."""

import json
from collections import Counter
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import App, Count, Event, Global, ProcessingElement, Tumbling, reducers
from penstock.app.duration import multiple_after
from penstock.errors import StateError, TopologyError
from penstock.testing import TopologyDriver

T0 = datetime(2026, 1, 1, tzinfo=UTC)


class Item(Event):
    k: str
    v: int = 0


class Told(Event):
    k: str
    told: str


def one_element(body, **options):
    """An application of one element from items to texts, and its driver."""
    app = App("edges")
    items, told = app.source("Items", Item), app.stream("Told", Told)
    app.sink("Out", told)
    app.element(items, emits=told, **options)(body(told))
    return TopologyDriver(app, dead_letters=True)


@pytest.mark.parametrize("every", ["50 ms", "100 ms", "200 ms", "300 ms", "1100 ms", "1 s"])
def test_an_interval_is_called_once_a_micro_batch_at_most(every):
    def body(told):
        class Each(ProcessingElement):
            n: int = 0

            def on_event(self, item):
                pass

            def on_interval(self):
                self.n += 1
                yield told(self.key, str(self.n))

        return Each

    driver = one_element(body, key="k", every=every)
    driver.batch({"Items": [Item("a")]})
    for _ in range(8):
        driver.advance(2)
        driver.batch()
    assert [one.told for one in driver.output("Out")] == [str(number + 1) for number in range(8)]


@given(st.integers(1_500_000_000_000, 2_000_000_000_000), st.sampled_from([1, 50, 100, 300, 1_100, 60_000]))
def test_the_next_multiple_lies_after_the_time_and_not_beyond_one_interval(ms, every):
    time, interval = ms / 1e3, every / 1e3
    found = multiple_after(time, interval)
    assert time < found <= time + interval + 1e-6
    assert round(found * 1e6) % round(interval * 1e6) == 0


class Price(Event):
    k: str
    at: datetime
    v: Decimal


class Total(Event):
    k: str
    total: Decimal


@given(st.permutations(["12345678901234567890.123456789012345678", "0.000000000000000001", "-12345678901234567890", "1e-18"]))
def test_decimals_are_summed_exactly_in_any_order(texts):
    app = App("sums")
    prices, totals = app.source("Prices", Price, event_time="at"), app.stream("Totals", Total)
    app.aggregate(prices, key="k", window=Tumbling("1 d"), into=totals, total=reducers.sum("v"))
    app.sink("Out", totals)
    driver = TopologyDriver(app)
    for text in texts:
        driver.batch({"Prices": [Price("a", T0, Decimal(text))]})
    driver.finish()
    assert [one.total for one in driver.output("Out")] == [Decimal("0.123456789012345680")]
    summed = reducers.sum("v")
    assert summed.merge_all([0, *map(Decimal, texts)]) == summed.merge(
        Decimal(texts[0]), summed.merge_all(map(Decimal, texts[1:]))
    )


def test_an_event_of_another_type_becomes_one_of_the_streams():
    class Secret(Event):
        k: str
        told: str
        more: str = "hidden"

    class OfType(Event):
        name: str

    app = App("types")
    items, told, types = app.source("Items", Item), app.stream("Told", Told), app.stream("Types", OfType)
    app.sink("Out", told)
    app.sink("Names", types)

    @app.element(items, emits=told)
    def publish(item):
        yield told.emit(Secret(item.k, "x"))

    @app.element(told, emits=types)
    def name(one):
        yield types(type(one).__name__)

    driver = TopologyDriver(app)
    driver.batch({"Items": [Item("a")]})
    assert [json.loads(line) for line in driver._committed.outputs["Out"]] == [{"k": "a", "told": "x"}]
    assert driver.output("Names") == [OfType("Told")]


class Row(Event):
    k: str
    tags: list[str]


def test_a_function_that_changes_its_row_changes_that_of_no_other_event(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"k":"a","tags":["x"]}\n')
    app = App("looked")
    items, told = app.source("Items", Item), app.stream("Told", Told)
    app.sink("Out", told)

    @app.lookup(items, f"jsonl:{tmp_path / 'rows.jsonl'}", key="k", row=Row, emits=told)
    def tagged(item, row):
        row.tags.append(item.k)
        yield told(item.k, ",".join(row.tags))

    driver = TopologyDriver(app)
    for _ in range(2):
        driver.batch({"Items": [Item("a"), Item("a")]})
    assert {one.told for one in driver.output("Out")} == {"x,a"}


@pytest.mark.parametrize("window", [None, Tumbling("1 min")], ids=str)
@pytest.mark.parametrize("name", ["key", "window"])
def test_state_by_a_name_of_penstocks_own_is_refused(name, window):
    if name == "window" and window is None:
        return
    members = {"__annotations__": {name: str}, name: "mine", "on_event": lambda self, item: None, "on_close": lambda self: None}
    if window is None:
        del members["on_close"]
    app = App("reserved")
    moments = app.source("Moments", Moment, event_time="at")
    with pytest.raises(StateError, match=f"self.{name} is Penstock's own"):
        app.element(moments, key="k", **({} if window is None else {"window": window}))(
            type("Own", (ProcessingElement,), members)
        )


class Moment(Event):
    k: str
    at: datetime


class Within(Event):
    k: str
    moments: list[Moment] = []


HALF_PAST = datetime(2026, 1, 1, 0, 30, tzinfo=timezone(timedelta(hours=2)))


@pytest.mark.parametrize("keyed", [{}, {"key": "k"}], ids=["keyless", "keyed"])
@pytest.mark.parametrize("form", ["object", "text"])
@pytest.mark.parametrize("nested", [False, True])
def test_an_element_sees_times_in_utc_whatever_the_format(keyed, form, nested):
    event = Within("a", [Moment("b", HALF_PAST)]) if nested else Moment("a", HALF_PAST)
    app = App("zones")
    moments, told = app.source("Moments", type(event)), app.stream("Told", Told)
    app.sink("Out", told)

    def day(moment):
        return told("a", str((moment.moments[0] if nested else moment).at.date()))

    if keyed:

        @app.element(moments, emits=told, **keyed)
        class Keyed(ProcessingElement):
            def on_event(self, moment):
                yield day(moment)

    else:
        app.element(moments, emits=told)(day)
    driver = TopologyDriver(app)
    driver.batch({"Moments": [event if form == "object" else json.dumps(plain(event)).encode()]})
    assert [one.told for one in driver.output("Out")] == ["2025-12-31"]


def plain(event):
    return {name: [plain(one) for one in value] if isinstance(value, list) else str(value) for name, value in vars_of(event)}


def vars_of(event):
    return [(name, getattr(event, name)) for name in event.__struct_fields__]


class Shape(Event):
    k: str


class Circle(Shape):
    r: int = 0


def test_state_that_would_lose_its_class_is_a_dead_letter_at_once():
    def body(told):
        class Keeps(ProcessingElement):
            last: Shape | None = None
            numbers: list[float] = []

            def on_event(self, item):
                yield told(item.k, repr(self.last))
                self.numbers.append(float("nan"))
                self.last = Circle(item.k) if item.v else Shape(item.k)

        return Keeps

    for batches in ([[0, 1], [0]], [[0], [1], [0]]):
        driver = one_element(body, key="k")
        for values in batches:
            driver.batch({"Items": [Item("a", value) for value in values]})
        assert [one.told for one in driver.output("Out")] == ["None", "Shape(k='a')"]
        [letter] = driver.dead_letters
        assert "would not come back as it is: " in letter["error"]


@pytest.mark.parametrize("default", [Counter(), Circle("a")], ids=lambda default: type(default).__name__)
def test_a_default_of_a_class_that_would_be_lost_is_refused(default):
    annotation = dict[str, int] if isinstance(default, Counter) else Shape

    def body(told):
        return type(
            "Own", (ProcessingElement,), {"__annotations__": {"s": annotation}, "s": default, "on_event": lambda *_: None}
        )

    with pytest.raises(StateError, match=f"the default of state 's' is a {type(default).__name__}, which would come back as a"):
        one_element(body, key="k")


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("window", [Count(2), Global(after=2)], ids=str)
def test_a_result_that_fails_is_left_out_in_order_too(ordered, window):
    app = App("counted")
    moments, told = app.source("Moments", Numbered, event_time="at"), app.stream("Told", Told)
    app.sink("Out", told)

    @app.element(moments, key="k", window=window, emits=told, **({"ordered": True} if ordered else {}))
    class Pair(ProcessingElement):
        values: list[int] = []

        def on_event(self, one):
            self.values.append(one.v)

        def on_close(self):
            if sum(self.values[-2:]) == 0:
                raise ValueError("nothing")
            yield told(self.key, str(self.values[-2:]))

    driver = TopologyDriver(app, dead_letters=True)
    driver.batch({"Moments": [Numbered("a", T0 + timedelta(seconds=n), v) for n, v in enumerate([0, 0, 1, 2, 3, 4])]})
    driver.finish()
    assert [one.told for one in driver.output("Out")][:2] == ["[1, 2]", "[3, 4]"]
    assert [letter["event"] for letter in driver.dead_letters] == [None]


@pytest.mark.parametrize("fault", [ValueError, SystemExit])
def test_an_event_that_fails_in_order_where_a_result_is_due_is_a_dead_letter(fault):
    app = App("counted")
    moments, told = app.source("Moments", Numbered, event_time="at"), app.stream("Told", Told)
    app.sink("Out", told)

    @app.element(moments, key="k", window=Count(2), emits=told, ordered=True)
    class Pair(ProcessingElement):
        values: list[int] = []

        def on_event(self, one):
            if one.v == 13:
                raise fault(13)
            self.values.append(one.v)

        def on_close(self):
            yield told(self.key, str(self.values))

    driver = TopologyDriver(app, dead_letters=True)
    driver.batch({"Moments": [Numbered("a", T0 + timedelta(seconds=n), v) for n, v in enumerate([0, 13, 1, 2, 3])]})
    driver.finish()
    assert [one.told for one in driver.output("Out")] == ["[0, 1]", "[2, 3]"]
    assert [letter["event"]["v"] for letter in driver.dead_letters] == [13]


class Numbered(Event):
    k: str
    at: datetime
    v: int


@pytest.mark.parametrize(
    "reducer",
    [reducers.min("clock"), reducers.max("clock"), reducers.top(2, by="clock")],
    ids=lambda reducer: type(reducer).__name__,
)
def test_spark_orders_no_texts_that_stand_for_other_values(reducer):
    class Clocked(Event):
        k: str
        at: datetime
        clock: time
        id: UUID

    class Out(Event):
        k: str
        found: list[Clocked] if isinstance(reducer, reducers.top) else time

    app = App("texts")
    source, out = app.source("Clocked", Clocked, event_time="at", late="drop"), app.stream("Out", Out)
    with pytest.raises(TopologyError, match="is over clock, which Spark orders as a text"):
        app.aggregate(source, key="k", window=Tumbling("1 d"), into=out, dialect="query", found=reducer)


@pytest.mark.parametrize("nested", [False, True])
def test_a_time_that_utc_does_not_have_is_a_dead_letter_and_stops_no_run(nested):
    ends = ["2026-01-01T00:00:00+02:00", "9999-12-31T23:59:59-05:00", "0001-01-01T00:00:00+05:00"]
    app = App("ends")
    moments, told = app.source("Moments", Within if nested else Moment), app.stream("Told", Told)
    app.sink("Out", told)

    @app.element(moments, emits=told)
    def seen(moment):
        yield told(moment.k, "seen")

    lines = [{"k": str(number), "at": end} for number, end in enumerate(ends)]
    if nested:
        lines = [{"k": line["k"], "moments": [line]} for line in lines]
    driver = TopologyDriver(app, dead_letters=True)
    driver.batch({"Moments": [json.dumps(line).encode() for line in lines]})
    assert [one.k for one in driver.output("Out")] == ["0"]
    assert len(driver.dead_letters) == 2
