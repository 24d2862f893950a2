"""Sequences of events, against every sequence by brute force."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import App, Event
from penstock.errors import TopologyError
from penstock.testing import TopologyDriver

T0 = datetime(2026, 1, 1, tzinfo=UTC)


class Payment(Event):
    card: int
    kind: str
    at: datetime


class Alarm(Event):
    card: int
    first: datetime
    last: datetime


def application(without=None):
    app = App("fraud")
    payments = app.source("Payments", Payment, event_time="at", lateness="5 s")
    alarms = app.stream("Alarms", Alarm)
    app.sink("Out", alarms)

    @app.pattern(
        payments,
        key="card",
        then=[lambda p: p.kind == "a", lambda p: p.kind == "b", lambda p: p.kind == "c"],
        without=without,
        within="10 s",
        emits=alarms,
    )
    def suspicious(first, second, third):
        yield alarms(first.card, first.at, third.at)

    return app


def by_brute_force(events, without):
    """For each first event the next that fits, and the next after that."""
    found = []
    for card in {event.card for event in events}:
        own = sorted((event for event in events if event.card == card), key=lambda event: event.at)
        for place, first in enumerate(own):
            if first.kind != "a":
                continue
            wanted = iter("bc")
            kind = next(wanted)
            for event in own[place + 1 :]:
                if event.at - first.at > timedelta(seconds=10) or (without and event.kind == "x"):
                    break
                if event.kind == kind:
                    kind = next(wanted, None)
                    if kind is None:
                        found.append(Alarm(card, first.at, event.at))
                        break
    return sorted(found, key=repr)


@pytest.mark.parametrize("without", [None, lambda payment: payment.kind == "x"], ids=["passing", "without"])
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 1), st.sampled_from("abcx"), st.integers(0, 400)), max_size=40, unique_by=lambda row: row[2]
    ),
    cut=st.integers(1, 9),
    seed=st.randoms(use_true_random=False),
)
@settings(max_examples=40, deadline=None)
def test_sequences_are_found_whatever_the_order_and_the_cut(without, rows, cut, seed):
    events = [Payment(card, kind, T0 + timedelta(seconds=tenth / 10)) for card, kind, tenth in rows]
    shaken = sorted(events, key=lambda event: event.at + timedelta(seconds=seed.uniform(0, 5)))
    driver = TopologyDriver(application(without))
    for place in range(0, len(shaken), cut):
        driver.batch({"Payments": shaken[place : place + cut]})
    driver.finish()
    assert sorted(driver.output("Out"), key=repr) == by_brute_force(events, without)


def test_what_is_no_pattern_is_refused():
    app = App("wrong")
    payments = app.source("Payments", Payment, event_time="at")
    alarms = app.stream("Alarms", Alarm)

    def found(*events): ...

    for options, words in (
        ({"then": [found], "within": "1 s"}, "two or more"),
        ({"then": [found, "b"], "within": "1 s"}, "functions"),
        ({"then": [found, found], "within": 0}, "longer"),
    ):
        with pytest.raises(TopologyError, match=words):
            app.pattern(payments, key="card", emits=alarms, **options)(found)
    app.pattern(payments, key="card", then=[found, found], within="5 min", emits=alarms)(found)
    assert app._elements[-1].note == "2 steps within 5 min, in order"
