"""State that is known to be storable is stored as state that is encoded and decoded to see whether it is."""

from datetime import UTC, datetime, timedelta
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import App, Event, Session, Sliding, Tumbling, reducers
from penstock.runtime import live
from penstock.testing import TopologyDriver

T0 = datetime(2026, 1, 1, tzinfo=UTC)
WINDOWS = {"tumbling": Tumbling("10 s"), "sliding": Sliding("30 s", "10 s"), "session": Session("7 s")}
REDUCERS = {
    "numbers": {
        "seen": reducers.count(),
        "total": reducers.sum("number"),
        "evens": reducers.sum("number").where(lambda seen: seen.number % 2 == 0),
        "mean": reducers.mean("ratio"),
        "least": reducers.min("number"),
        "most": reducers.max("ratio"),
    },
    "others": {
        "first": reducers.first("text"),
        "last": reducers.last("number"),
        "several": reducers.distinct("text"),
        "about": reducers.approx_distinct("text"),
        "all": reducers.collect("ratio"),
    },
}


class Seen(Event):
    key: int
    number: int
    ratio: float
    text: str
    at: datetime


class Numbers(Event):
    key: int
    seen: int
    total: int
    evens: int
    mean: float
    least: int
    most: float


class Others(Event):
    key: int
    first: str
    last: int
    several: int
    about: int
    all: list[float]


def aggregate(window, kind):
    app = App("kept")
    source = app.source("Seen", Seen, event_time="at", lateness="5 s")
    out = app.stream("Sums", Numbers if kind == "numbers" else Others)
    app.sink("Out", out)
    app.aggregate(source, key="key", window=WINDOWS[window], into=out, **REDUCERS[kind])
    return app


def distinct():
    app = App("kept")
    source = app.source("Seen", Seen, event_time="at", lateness="5 s")
    once = app.stream("Once", Seen)
    app.sink("Out", once)
    app.distinct(source, key=["key", "text"], within="10 s", into=once)
    return app


events_given = st.lists(
    st.builds(
        Seen,
        st.integers(0, 2),
        st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1)),
        st.one_of(st.floats(-9, 9), st.sampled_from([float("inf"), 1e308, -0.0])),
        st.sampled_from(["", "a", "é", "a" * 70_000]),
        st.integers(0, 60).map(lambda second: T0 + timedelta(seconds=second)),
    ),
    max_size=14,
)


def left_by(app, events, cut):
    driver = TopologyDriver(app, dead_letters=True)
    for place in range(0, len(events), cut):
        driver.batch({"Seen": events[place : place + cut]})
    stored = {name: dict(store._content) for name, store in driver._committed.stores.items()}
    driver.finish()
    return stored, driver._committed.outputs


@pytest.mark.parametrize("make", [*((window, kind) for window in WINDOWS for kind in REDUCERS), ("distinct", "")])
@given(events=events_given, cut=st.integers(1, 5))
@settings(max_examples=25, deadline=None)
def test_it_is_stored_as_what_is_looked_at(make, events, cut):
    window, kind = make
    quick = left_by(distinct() if window == "distinct" else aggregate(window, kind), events, cut)
    with (
        patch.object(live, "surely_kept", lambda prototype: lambda state: False),
        patch.object(live, "reads_back", lambda prototype, inputs: False),
    ):
        looked_at = left_by(distinct() if window == "distinct" else aggregate(window, kind), events, cut)
    assert quick == looked_at
