"""Windows that never close, against sums over the whole input."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import App, Event, Global, ProcessingElement, reducers
from penstock.errors import TopologyError
from penstock.testing import TopologyDriver
from penstock.testing.driver import Crash

T0 = datetime(2026, 1, 1, tzinfo=UTC)
LATENESS = 5


class Sale(Event):
    shop: int
    amount: int
    at: datetime


class SoFar(Event):
    shop: int
    sales: int
    total: int
    end: datetime


def at(seconds):
    return T0 + timedelta(seconds=seconds)


def application(window, event_time="at", late="dead-letter"):
    app = App("shops")
    lateness = {"event_time": event_time, "lateness": LATENESS, "late": late} if event_time else {}
    source = app.source("Sales", Sale, **lateness)
    into = app.stream("SoFar", SoFar)
    app.sink("Out", into)
    app.aggregate(source, key="shop", window=window, into=into, sales=reducers.count(), total=reducers.sum("amount"))
    return app


def said(driver):
    return sorted((one.shop, one.end, one.sales, one.total) for one in driver.output("Out"))


sales = st.builds(
    Sale, shop=st.integers(0, 2), amount=st.integers(1, 99), at=st.integers(0, 60_000).map(lambda ms: at(ms / 1000))
)


@given(events=st.lists(sales, max_size=40), data=st.data())
@settings(max_examples=40, deadline=None)
def test_results_are_sums_of_all_before_whatever_the_order_the_cut_and_the_crashes(events, data):
    shaken = {id(event): event.at + timedelta(seconds=data.draw(st.floats(0, LATENESS))) for event in events}
    left = sorted(events, key=lambda event: shaken[id(event)])
    driver = TopologyDriver(application(Global(every="10 s")), partitions=2)
    while left:
        count = data.draw(st.integers(1, len(left)))
        if data.draw(st.booleans()):
            driver.crash_at(data.draw(st.integers(0, count - 1)))
            with pytest.raises(Crash):
                driver.batch({"Sales": left[:count]})
        driver.batch({"Sales": left[:count]})
        left = left[count:]
    driver.finish()
    expected = []
    for shop in range(3):
        for end in range(10, 80, 10):
            own = [sale.amount for sale in events if sale.shop == shop and sale.at < at(end)]
            if any(sale.shop == shop and at(end - 10) <= sale.at < at(end) for sale in events):
                expected.append((shop, at(end), len(own), sum(own)))
    assert said(driver) == expected


@pytest.mark.parametrize("event_time", ["at", None])
def test_a_result_after_so_many_events_and_the_rest_at_the_end(event_time):
    driver = TopologyDriver(application(Global(after=3), event_time), partitions=1)
    for number in range(8):
        driver.batch({"Sales": [Sale(1, 10**number, at(number))]})
    assert [one.sales for one in driver.output("Out")] == [3, 6]
    driver.finish()
    assert [one.sales for one in driver.output("Out")] == ([3, 6, 8] if event_time else [3, 6])
    assert driver.output("Out")[1].total == 111_111


def test_an_event_of_a_span_whose_result_was_said_is_late():
    driver = TopologyDriver(application(Global(every="10 s")), dead_letters=True)
    driver.batch({"Sales": [Sale(1, 1, at(2)), Sale(1, 2, at(30))]})
    driver.batch({"Sales": [Sale(1, 4, at(30))]})
    driver.batch({"Sales": [Sale(1, 8, at(3))]})
    driver.finish()
    assert said(driver) == [(1, at(10), 1, 1), (1, at(40), 3, 7)]
    assert len(driver.dead_letters) == 1


@pytest.mark.parametrize("late", ["dead-letter", "drop", "process"])
def test_windows_by_count_do_with_late_events_what_the_source_says(late):
    driver = TopologyDriver(application(Global(after=2), late=late), dead_letters=True)
    driver.batch({"Sales": [Sale(1, 1, at(100)), Sale(1, 1, at(101))]})
    driver.batch({"Sales": [Sale(1, 10, at(3)), Sale(1, 10, at(4))]})
    assert [one.total for one in driver.output("Out")] == ([2, 22] if late == "process" else [2])
    assert len(driver.dead_letters) == (2 if late == "dead-letter" else 0)


def test_a_span_whose_sum_cannot_be_kept_is_left_out():
    driver = TopologyDriver(application(Global(every="10 s")), dead_letters=True)
    driver.batch({"Sales": [Sale(1, 2**63 - 1, at(second)) for second in (1, 11, 21)] + [Sale(1, 0, at(31))]})
    driver.finish()
    assert [(s, total) for _, _, s, total in said(driver)] == [(1, 2**63 - 1), (2, 2**64 - 2), (3, 2**64 - 2)]
    assert len(driver.dead_letters) == 1


def failing(where):
    app = App("failing")
    source = app.source("Sales", Sale, event_time="at", lateness=LATENESS)
    into = app.stream("SoFar", SoFar)
    app.sink("Out", into)

    @app.element(source, key="shop", window=Global(every="10 s"), emits=into)
    class Sum(ProcessingElement):
        sales: int = 0
        total: int = 0

        def on_event(self, sale):
            self.sales += 1
            self.total += sale.amount

        def merge(self, other):
            self.sales += other.sales
            if where == "merge" and other.total == 13:
                raise ValueError("thirteen")
            self.total += other.total

        def on_close(self):
            if where == "on_close" and self.sales == 2:
                raise ValueError("two")
            yield into(self.key, self.sales, self.total, self.window.end)

    return app


@pytest.mark.parametrize(
    ("where", "kept"),
    [("on_close", [(1, at(10), 1, 1), (1, at(30), 3, 18)]), ("merge", [(1, at(10), 1, 1), (1, at(30), 2, 5)])],
)
def test_a_span_that_fails_is_a_dead_letter_and_the_others_go_on(where, kept):
    driver = TopologyDriver(failing(where), dead_letters=True)
    driver.batch({"Sales": [Sale(1, 1, at(1)), Sale(1, 13, at(11)), Sale(1, 4, at(21))]})
    driver.finish()
    assert said(driver) == kept
    assert len(driver.dead_letters) == 1


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Global(), "say when"),
        (lambda: Global(every="1 s", after=3), "say when"),
        (lambda: Global(after=0), "more than zero"),
        (lambda: Global(every=0), "more than zero"),
        (lambda: Global(after="100"), "whole number"),
        (lambda: Global(after=2.5), "whole"),
        (lambda: application(Global(every="1 s"), None).topology(), "need a time"),
    ],
)
def test_wrong_use_is_refused(make, words):
    with pytest.raises(TopologyError, match=words):
        make()


def test_wrong_bodies_are_refused():
    app = App("wrong")
    source = app.source("Sales", Sale, event_time="at")

    class Mute(ProcessingElement):
        def on_event(self, sale): ...

        def on_batch(self): ...

    class Loud(Mute):
        def on_close(self): ...

    class Unmerged(ProcessingElement):
        def on_event(self, sale): ...

        def on_close(self): ...

    for body, words in ((Mute, "give it on_close"), (Loud, "leave out on_batch"), (Unmerged, "def merge")):
        with pytest.raises(TopologyError, match=words):
            app.element(source, key="shop", window=Global(every="1 s"))(body)
