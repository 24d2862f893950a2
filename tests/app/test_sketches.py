"""`reducers.approx_distinct` against sets of all values."""

import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import App, Event, Session, Sliding, Tumbling, reducers
from penstock.errors import MissingExtraError, TopologyError
from penstock.testing import TopologyDriver

T0 = datetime(2026, 1, 1, tzinfo=UTC)


class Visit(Event):
    page: int
    user: str
    at: datetime


class Visitors(Event):
    page: int
    start: datetime
    exactly: int
    about: int


def counting(window):
    app = App("visitors")
    source = app.source("Visits", Visit, event_time="at", lateness="5 s")
    into = app.stream("Visitors", Visitors)
    app.sink("Out", into)
    app.aggregate(
        source, key="page", window=window, into=into, exactly=reducers.distinct("user"), about=reducers.approx_distinct("user")
    )
    return app


@pytest.mark.parametrize("window", [Tumbling("10 s"), Sliding("10 s", "2 s"), Session("3 s")], ids=str)
@given(visits=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 30), st.integers(0, 40)), max_size=60))
@settings(max_examples=15, deadline=None)
def test_few_values_are_counted_exactly_however_windows_merge(window, visits):
    driver = TopologyDriver(counting(window))
    events = [Visit(page, f"u{user}", T0 + timedelta(seconds=at)) for page, user, at in sorted(visits, key=lambda v: v[2])]
    for place in range(0, len(events), 7):
        driver.batch({"Visits": events[place : place + 7]})
    driver.finish()
    assert all(one.about == one.exactly for one in driver.output("Out"))


def test_many_values_are_counted_to_some_percent_in_little_space():
    reducer = reducers.approx_distinct("user")
    one, other = reducer.start(), reducer.start()
    for number in range(60_000):
        one = reducer.add(one, f"user {number}", 0)
        other = reducer.add(other, f"user {number + 30_000}", 0)
    both = reducer.merge(one, other)
    assert reducer.result(both) == pytest.approx(90_000, rel=0.05)  # three standard errors
    assert reducer.result(one) == pytest.approx(60_000, rel=0.05)
    assert len(both) < 4200


@pytest.mark.parametrize(
    "equals",
    [
        (0.0, -0.0),
        (Decimal("1.0"), Decimal("1.00"), Decimal(1)),
        (Decimal(0), Decimal("0E+3")),
        (b"ab", b"ab"),
        (True, True),
        (T0, T0.astimezone(tz=None)),
        (None, None),
        (7, 7),
        ("", ""),
        (b"", b""),
    ],
)
def test_equal_values_are_one(equals):
    reducer, state = reducers.approx_distinct("user"), b""
    for value in equals:
        state = reducer.add(state, value, 0)
    assert reducer.result(state) == 1


def test_different_values_are_several():
    reducer, state = reducers.approx_distinct("user"), b""
    for value in ("", "none", "\0", None, b"", 0, 1.5, "text "):
        state = reducer.add(state, value, 0)
    assert reducer.result(state) == 8


def test_what_cannot_be_counted_is_refused():
    class Tagged(Event):
        tags: list[str]
        at: datetime

    with pytest.raises(TopologyError, match="is none of int, str"):
        reducers.approx_distinct("tags").kind(Tagged)
    with pytest.raises(TopologyError, match="no field 'user'"):
        reducers.approx_distinct("user").kind(Tagged)


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasketches", None)
    with pytest.raises((MissingExtraError, ImportError)) as raised:
        reducers.approx_distinct("user")
    assert "sketches" in str(raised.value)
