"""Joins in memory, against joins by brute force over the whole input."""

from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import App, Event
from penstock.errors import TopologyError
from penstock.runtime import arrivals, wire
from penstock.testing import TopologyDriver
from penstock.testing.driver import Crash

T0 = datetime(2026, 1, 1, tzinfo=UTC)
LATENESS = 5


class Order(Event):
    item: int
    number: int
    at: datetime


class Payment(Event):
    item: int
    amount: int
    at: datetime


class Paid(Event):
    number: int | None
    amount: int | None


def at(seconds):
    return T0 + timedelta(seconds=seconds)


def sources(order=Order, payment=Payment):
    app = App("joins")
    orders = app.source("Orders", order, event_time="at", lateness=LATENESS)
    payments = app.source("Payments", payment, event_time="at", lateness=LATENESS)
    paid = app.stream("Paid", Paid)
    app.sink("Out", paid)
    return app, orders, payments, paid


def interval(within, how):
    app, orders, payments, paid = sources()

    @app.join(orders, payments, key="item", within=within, emits=paid, how=how)
    def match(order, payment):
        return paid(order and order.number, payment and payment.amount)

    return app


def latest(how="left", within=None):
    app, orders, payments, paid = sources()

    @app.join_latest(orders, payments, key="item", emits=paid, how=how, within=within)
    def match(order, payment):
        return paid(order.number, payment and payment.amount)

    return app


def results(driver):
    return sorted(((p.number, p.amount) for p in driver.output("Out")), key=str)


times = st.integers(0, 40).map(at)
orders_given = st.lists(st.tuples(st.integers(0, 1), times), max_size=12)


def numbered(kind, rows):
    return [kind(item, number, time) for number, (item, time) in enumerate(rows)]


def deliver(driver, events, data):
    """In an order shaken within the lateness, cut anywhere, with crashes."""
    shaken = {id(event): event.at + timedelta(seconds=data.draw(st.integers(0, LATENESS))) for event in events}
    left = sorted(events, key=lambda event: shaken[id(event)])
    while left:
        count = data.draw(st.integers(1, len(left)))
        part = {}
        for event in left[:count]:
            part.setdefault(f"{type(event).__name__}s", []).append(event)
        if "Orders" in part and data.draw(st.booleans()):
            driver.crash_at(0)
            with pytest.raises(Crash):
                driver.batch(part)
        driver.batch(part)
        left = left[count:]
    driver.finish()


@pytest.mark.parametrize("how", ["inner", "left", "full"])
@pytest.mark.parametrize("within", [("-4 s", "3 s"), (0, "6 s"), ("2 s", "4 s"), (-6.0, -1.0)])
@given(left=orders_given, right=orders_given, data=st.data())
@settings(max_examples=15, deadline=None)
def test_an_interval_join_is_that_of_the_definition(within, how, left, right, data):
    orders, payments = numbered(Order, left), numbered(Payment, right)
    driver = TopologyDriver(interval(within, how))
    deliver(driver, [*orders, *payments], data)
    low, high = (float(str(end).removesuffix(" s")) for end in within)
    pairs = [(o, p) for o in orders for p in payments if o.item == p.item and low <= (p.at - o.at).total_seconds() <= high]
    wanted = [(o.number, p.amount) for o, p in pairs]
    if how != "inner":
        wanted += [(o.number, None) for o in orders if o not in [o for o, _ in pairs]]
    if how == "full":
        wanted += [(None, p.amount) for p in payments if p not in [p for _, p in pairs]]
    assert results(driver) == sorted(wanted, key=str)


class Parcel(Event):
    item: int
    weight: int
    at: datetime


class Sent(Event):
    number: int
    amount: int | None
    weight: int | None


def three_ways(within, how, **more):
    app = App("three")
    orders = app.source("Orders", Order, event_time="at", lateness=LATENESS)
    payments = app.source("Payments", Payment, event_time="at", lateness=LATENESS)
    parcels = app.source("Parcels", Parcel, event_time="at", lateness=LATENESS)
    sent = app.stream("Sent", Sent)
    app.sink("Sent", sent)

    @app.join(orders, [payments, parcels], key="item", within=within, emits=sent, how=how, **more)
    def match(order, payment, parcel):
        return sent(order.number, payment and payment.amount, parcel and parcel.weight)

    return app


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("within", [[("-4 s", "3 s"), (0, "20 s")], [("2 s", "9 s"), (-6.0, -1.0)], ("-3 s", "-1 s")])
@given(left=orders_given, right=orders_given, third=orders_given, data=st.data())
@settings(max_examples=25, deadline=None)
def test_three_streams_are_joined_as_by_the_definition(within, how, left, right, third, data):
    orders, payments, parcels = numbered(Order, left), numbered(Payment, right), numbered(Parcel, third)
    driver = TopologyDriver(three_ways(within, how))
    deliver(driver, [*orders, *payments, *parcels], data)
    intervals = within if isinstance(within, list) else [within, within]
    wanted = []
    for order in orders:
        near = []
        for side, ends in zip((payments, parcels), intervals, strict=True):
            low, high = (float(str(end).removesuffix(" s")) for end in ends)
            near.append([e for e in side if e.item == order.item and low <= (e.at - order.at).total_seconds() <= high])
        if how == "left":
            near = [side or [None] for side in near]
        wanted += [(order.number, p and p.amount, w and w.weight) for p in near[0] for w in near[1]]
    found = [(one.number, one.amount, one.weight) for one in driver.output("Sent")]
    assert sorted(found, key=str) == sorted(wanted, key=str)


def bounded_latest():
    app, orders, payments, paid = sources()

    @app.join_latest(orders, payments, key="item", emits=paid, max_held=3)
    def match(order, payment):
        return paid(order.number, None)

    return app


@pytest.mark.parametrize(
    ("make", "sink"), [(lambda: three_ways((0, "9 s"), "left", max_held=3), "Sent"), (bounded_latest, "Out")]
)
def test_what_a_join_may_not_hold_is_dead_lettered(make, sink):
    app = make()
    driver = TopologyDriver(app, dead_letters=True)
    driver.batch({"Orders": [Order(1, number, at(number)) for number in range(5)] + [Order(2, 9, at(0))]})
    driver.finish()
    assert [letter["event"]["number"] for letter in driver.dead_letters] == [3, 4]
    assert "as many as max_held= allows" in driver.dead_letters[0]["error"]
    assert sorted(one.number for one in driver.output(sink)) == [0, 1, 2, 9]


@pytest.mark.parametrize(("how", "within"), [("left", None), ("inner", None), ("left", "5 s")])
@given(left=orders_given, right=st.lists(st.tuples(st.integers(0, 1), times), max_size=12, unique=True), data=st.data())
@settings(max_examples=15, deadline=None)
def test_each_event_meets_the_version_in_force(how, within, left, right, data):
    orders, payments = numbered(Order, left), numbered(Payment, right)
    driver = TopologyDriver(latest(how, within))
    deliver(driver, [*orders, *payments], data)
    wanted = []
    for order in orders:
        versions = [p for p in payments if p.item == order.item and p.at <= order.at]
        version = max(versions, key=lambda p: p.at, default=None)
        if version is not None and within is not None and order.at - version.at > timedelta(seconds=5):
            version = None
        if version is not None or how == "left":
            wanted.append((order.number, version and version.amount))
    assert results(driver) == sorted(wanted, key=str)


def test_what_cannot_match_any_more_is_dropped():
    driver = TopologyDriver(interval(("-1 s", "1 s"), "inner"), partitions=1)
    sizes = []
    for second in range(0, 1500, 10):
        driver.batch({"Orders": [Order(1, second, at(second))], "Payments": [Payment(1, second, at(second))]})
        sizes.append(sum(len(content) for store in driver._committed.stores.values() for content in store._content.values()))
    assert max(sizes[50:]) <= max(sizes[:50])
    assert len(driver.output("Out")) == 150


def test_the_unmatched_are_said_once_nothing_can_match_them_and_not_before():
    driver = TopologyDriver(interval((0, "10 s"), "left"))
    driver.batch({"Orders": [Order(1, 1, at(0)), Order(2, 2, at(15))], "Payments": [Payment(3, 3, at(15))]})
    driver.batch()
    assert results(driver) == []  # the watermark is 10: a payment of that time would match
    driver.batch({"Orders": [Order(2, 3, at(15.001))], "Payments": [Payment(3, 3, at(15.001))]})
    driver.batch()
    assert results(driver) == [(1, None)]


class Reading(Event):
    sensor: str
    value: int
    at: datetime


@given(rows=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 60)), max_size=30), cut=st.integers(1, 5))
@settings(max_examples=50, deadline=None)
def test_events_pass_once_within_a_time(rows, cut):
    app = App("once")
    readings = app.source("Readings", Reading, event_time="at")
    into = app.stream("Fresh", Reading)
    app.sink("Out", into)
    app.distinct(readings, key="sensor", within="10 s", into=into)
    driver = TopologyDriver(app)
    events = [Reading(sensor, n, at(second)) for n, (sensor, second) in enumerate(sorted(rows, key=lambda row: row[1]))]
    for place in range(0, len(events), cut):
        driver.batch({"Readings": events[place : place + cut]})
    wanted, last = [], {}
    for event in events:
        if event.at - last.get(event.sensor, at(-100)) >= timedelta(seconds=10):
            wanted.append(event)
            last[event.sensor] = event.at
    assert sorted(driver.output("Out"), key=lambda r: r.value) == wanted


def test_wrong_joins_are_refused():
    app, orders, payments, paid = sources()
    derived = app.stream("Derived", Payment)
    parcels = app.source("Parcels", Parcel, event_time="at")

    def pair(one, other): ...

    for make, words in (
        (lambda: app.join(orders, payments, key="item", within=("3 s", "-3 s"), emits=paid)(pair), ["lesser end"]),
        (lambda: app.join(orders, orders, key="item", within=(0, 1), emits=paid)(pair), ["told apart"]),
        (lambda: app.join(orders, payments, key="item", within=(0, 1), emits=paid, how="outer")(pair), ["'outer'", "full"]),
        (lambda: app.join_latest(orders, payments, key="item", emits=paid, how="full")(pair), ["'full'", "inner"]),
        (
            lambda: app.join(orders, [payments, derived], key="item", within=(0, 1), emits=paid, at=(None, None, "at"))(pair),
            ["Payments and Derived", "told apart"],
        ),
        (
            lambda: app.join(orders, [payments, parcels], key="item", within=(0, 1), emits=paid, how="full")(pair),
            ["inner, left"],
        ),
        (lambda: app.join(orders, payments, key="item", within=[(0, 1), (0, 2)], emits=paid)(pair), ["one for each"]),
        (lambda: app.join(orders, payments, key="item", within=(0, 1), emits=paid, max_held=0)(pair), ["max_held=0"]),
        (lambda: app.join(orders, [], key="item", within=(0, 1), emits=paid)(pair), ["no stream on its right"]),
        (lambda: app.join(orders, payments, key="item", within=(0, 1), emits=paid, at="at")(pair), ["Orders, Payments"]),
        (lambda: app.join(orders, payments, key="item", within=(0, 1), emits=paid, at=("at",) * 3)(pair), ["Orders, Payments"]),
        (lambda: app.join(orders, derived, key="item", within=(0, 1), emits=paid)(pair), ["Derived", "at="]),
        (lambda: app.distinct(orders, key="item", within=0, into=app.stream("Same", Order)), ["longer"]),
        (lambda: app.distinct(orders, key="item", within=1, into=paid), ["Order"]),
    ):
        with pytest.raises(TopologyError) as refusal:
            make()
        assert all(word in str(refusal.value) for word in words), refusal.value
    app.join(orders, derived, key="item", within=("-1 min", "5 min"), emits=paid, at=(None, "at"))(pair)
    assert app._elements[-1].note == "join -1 min to 5 min, inner"


def test_a_pairing_that_fails_keeps_no_other_from_being_made():
    app, orders, payments, paid = sources()

    @app.join(orders, payments, key="item", within=(0, "1 s"), emits=paid, how="left")
    def match(order, payment):
        if order.number == 2:
            raise ValueError("not this one")
        yield paid(order.number, None)

    driver = TopologyDriver(app, dead_letters=True)
    driver.batch({"Orders": [Order(1, number, at(number)) for number in (1, 2, 3)]})
    driver.finish()
    assert results(driver) == [(1, None), (3, None)]
    (letter,) = driver.dead_letters
    assert (letter["event"]["number"], letter["error"]) == (2, "ValueError: not this one")


def test_a_version_stays_for_what_windows_say_in_the_same_micro_batch():
    from penstock import Tumbling, reducers

    class Closed(Event):
        item: int
        end: datetime
        count: int

    app, orders, payments, paid = sources()
    closed = app.stream("Closed", Closed)
    app.aggregate(orders, key="item", window=Tumbling("10 s"), into=closed, count=reducers.count())

    @app.join_latest(closed, payments, key="item", emits=paid, at=("end", None))
    def look(window, payment):
        return paid(window.count, payment and payment.amount)

    driver = TopologyDriver(app)
    driver.batch({"Orders": [Order(1, 1, at(1))], "Payments": [Payment(1, second, at(second)) for second in (5, 12, 13)]})
    driver.batch({"Orders": [Order(2, 2, at(30))], "Payments": [Payment(2, 0, at(30))]})
    driver.batch({"Payments": [Payment(1, 31, at(31))]})
    driver.finish()
    assert (1, 5) in results(driver)


def test_nothing_is_kept_of_keys_that_are_seen_no_more():
    app = App("once")
    readings = app.source("Readings", Reading, event_time="at")
    into = app.stream("Fresh", Reading)
    app.sink("Out", into)
    app.distinct(readings, key="sensor", within="5 s", into=into)
    driver = TopologyDriver(app, partitions=1)
    sizes = []
    for second in range(200):
        driver.batch({"Readings": [Reading(f"{second}-{n}", n, at(second)) for n in range(20)]})
        sizes.append(sum(len(content) for store in driver._committed.stores.values() for content in store._content.values()))
    assert max(sizes[100:]) <= 1.2 * max(sizes[:100])


def failing(how, three, *, restored):
    """A join whose function refuses some combinations; its steps are undone, or its state restored from what is stored."""
    app, orders, payments, paid = sources()
    if three:
        parcels = app.source("Parcels", Parcel, event_time="at", lateness=LATENESS)
        others, within = [payments, parcels], [("-4 s", "3 s"), (0, "6 s")]
    else:
        others, within = payments, ("-4 s", "3 s")

    @app.join(orders, others, key="item", within=within, emits=paid, how=how, max_held=5)
    def match(order, payment, *_):
        if ((order and order.number) or 0) + ((payment and payment.amount) or 0) in (1, 4):
            raise ValueError("refused")
        return paid(order and order.number, payment and payment.amount)

    if restored:
        app.topology().elements[0].prototype.immutable = False
    return app


@pytest.mark.parametrize(
    ("how", "three"), [("inner", False), ("left", False), ("full", False), ("inner", True), ("left", True)]
)
@given(left=orders_given, right=orders_given, third=orders_given, data=st.data())
@settings(max_examples=25, deadline=None)
def test_steps_that_are_undone_leave_what_a_state_that_is_restored_does(how, three, left, right, third, data):
    events = [*numbered(Order, left), *numbered(Payment, right), *(numbered(Parcel, third) if three else ())]
    drivers = [TopologyDriver(failing(how, three, restored=restored), dead_letters=True) for restored in (False, True)]
    left_over = data.draw(st.permutations(events))
    while left_over:
        count = data.draw(st.integers(1, len(left_over)))
        part = {}
        for event in left_over[:count]:
            part.setdefault(f"{type(event).__name__}s", []).append(event)
        drivers[0].batch(part)
        with in_parts(2):
            drivers[1].batch(part)
        left_over = left_over[count:]
    for driver in drivers:
        driver.finish()
    first, second = drivers
    assert results(first) == results(second)
    assert sorted(map(str, first.dead_letters)) == sorted(map(str, second.dead_letters))


@contextmanager
def in_parts(size):
    """Within, a container gets so many events at once, and its state is encoded between."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire, "EVENTS_PER_BLOCK", size)
        patch.setattr(arrivals, "DECODED", arrivals.Limits(size, 0, size))
        yield


class NotedPayment(Event):
    item: int
    amount: float
    at: datetime
    note: str = "none"


@pytest.mark.parametrize("how", ["inner", "full"])
def test_held_events_are_read_by_newer_types(how):
    seen = []

    def joined(payment_type):
        app, orders, payments, paid = sources(payment=payment_type)

        @app.join(orders, payments, key="item", within=(0, "9 s"), emits=paid, how=how)
        def match(order, payment):
            seen.append((order and order.number, payment.amount, payment.note))

        return app

    driver = TopologyDriver(joined(Payment))
    driver.batch({"Payments": [Payment(1, 5, at(1)), Payment(1, 6, at(60))]})
    driver = driver.upgraded(joined(NotedPayment))
    driver.batch({"Orders": [Order(1, 7, at(59))]})
    driver.finish()
    assert sorted(seen, key=str) == [(7, 6.0, "none"), *([(None, 5.0, "none")] if how == "full" else [])]
    assert all(type(amount) is float for _, amount, _ in seen)


def test_what_matches_nothing_is_not_decoded(monkeypatch):
    app = interval((0, "1 s"), "inner")
    driver = TopologyDriver(app)
    driver.batch({"Payments": [Payment(1, second, at(second)) for second in range(100)]})
    prototype = app.topology().elements[0].prototype
    decoded = []

    def decode(content):
        decoded.append(msgspec.msgpack.decode(content, type=Payment))
        return decoded[-1]

    monkeypatch.setattr(prototype, "decoders", (None, decode))
    driver.batch({"Orders": [Order(1, 7, at(50))]})
    assert results(driver) == [(7, 50), (7, 51)]
    assert {payment.amount for payment in decoded} == {50, 51}


class Changeable(Event, frozen=False):
    item: int
    number: int
    at: datetime


def test_an_event_that_a_pairing_spoils_is_a_dead_letter():
    app, orders, payments, paid = sources(Changeable)

    @app.join(orders, payments, key="item", within=("-9 s", "9 s"), emits=paid, how="left")
    def match(order, payment):
        order.number = "spoilt"
        return paid(1, payment and payment.amount)

    driver = TopologyDriver(app, dead_letters=True)
    driver.batch({"Orders": [Changeable(1, 1, at(0))]})
    driver.batch({"Payments": [Payment(1, 5, at(1))]})
    driver.batch({"Payments": [Payment(2, 5, at(2))]})
    assert len(driver.dead_letters) == 1


def test_a_shorter_interval_counts_for_what_is_held():
    driver = TopologyDriver(interval((0, "1 h"), "left"))
    driver.batch({"Orders": [Order(1, 0, at(0))]})
    driver = driver.upgraded(interval((0, "10 s"), "left"))
    for number in (1, 2, 3):
        driver.batch({"Orders": [Order(1, number, at(30 * number))], "Payments": [Payment(2, 0, at(30 * number))]})
    assert (0, None) in results(driver)
