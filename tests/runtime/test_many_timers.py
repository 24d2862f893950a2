"""Where many timers are due they fire part by part, with the results of firing them at once, and in little memory."""

from collections import defaultdict
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import App, Event, ProcessingElement, Session, Sliding, Tumbling, reducers
from penstock.runtime import timers
from penstock.runtime.live import LiveInstances
from penstock.testing import TopologyDriver

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
AT_ONCE = (timers.PAGES_AT_ONCE, timers.BYTES_AT_ONCE)


class Reading(Event):
    key: int
    name: str
    value: int
    at: datetime


class Summary(Event):
    key: int
    start: datetime
    readings: int
    total: int


class Named(Event):
    name: str
    of: str
    number: int


MANY = [Reading(key, f"name {key}", key % 7, NOON + timedelta(seconds=key % 11)) for key in range(900)]


def windows(window):
    app = App("windows")
    readings, summaries = app.source("Readings", Reading, event_time="at"), app.stream("Summaries", Summary)
    app.sink("Out", summaries)
    results = "final" if window.merges or window.size != window.every else "both"
    counted = {"readings": reducers.count(), "total": reducers.sum("value")}
    app.aggregate(readings, key="key", window=window, into=summaries, results=results, **counted)
    return app


def alarms():
    """Timers that fire again at once, that fail, and that are set anew; a later element gets what they emit."""
    app = App("alarms")
    readings = app.source("Readings", Reading, event_time="at")
    alarms, last = app.stream("Alarms", Named), app.stream("Last", Named)
    app.sink("Out", alarms)
    app.sink("Order", last)

    @app.element(readings, key="name", emits=alarms, timers="event")
    class Alarm(ProcessingElement):
        seen: int = 0
        fired: int = 0

        def on_event(self, reading):
            self.seen += 1
            self.set_timer(reading.at + timedelta(seconds=reading.value % 5))

        def on_batch(self):
            yield alarms(self.key, "batch", self.seen)

        def on_timer(self):
            self.fired += 1
            if self.key.endswith("7"):
                raise ValueError("no")
            if self.key.endswith("3") and self.fired % 3:
                self.set_timer(NOON)
            if self.key.endswith("4"):
                self.set_timer(NOON + timedelta(hours=1))
            yield alarms(self.key, "timer", self.fired)

    @app.element(alarms, key="name", emits=last)
    class Order(ProcessingElement):
        order: list[str] = []

        def on_event(self, one):
            self.order = [*self.order, one.of]
            yield last(one.name, " ".join(self.order[-5:]), len(self.order))

    return app


def results(app, batches):
    driver = TopologyDriver(app, partitions=2, dead_letters=True)
    for batch in (MANY, *batches):
        driver.batch({"Readings": batch})
    driver.finish()
    of_key = defaultdict(list)
    for sink in app.topology().sinks:
        for event in driver.output(sink.name):
            of_key[sink.name, event.key if isinstance(event, Summary) else event.name].append(event)
    letters = sorted(str((letter["element"], letter["error"])) for letter in driver.dead_letters)
    return dict(of_key), letters, {name: figures.instances for name, figures in driver.elements.items()}


@st.composite
def readings(draw, most=40):
    batches, second = [], 0
    for _ in range(draw(st.integers(1, 4))):
        second += draw(st.integers(0, 30))
        some = st.tuples(st.integers(0, 1500), st.integers(0, 9), st.integers(0, 25))
        batches.append(
            [
                Reading(key, f"name {key}", value, NOON + timedelta(seconds=second + after))
                for key, value, after in draw(st.lists(some, max_size=most))
            ]
        )
    return batches


APPS = {
    "tumbling": lambda: windows(Tumbling("10 s")),
    "tumbling, kept for late ones": lambda: windows(Tumbling("10 s", allowed="1 min")),
    "sliding": lambda: windows(Sliding("10 s", "5 s")),
    "session": lambda: windows(Session("5 s")),
    "alarms": alarms,
}


@pytest.mark.parametrize("name", APPS)
@settings(max_examples=5, deadline=None)
@given(batches=readings())
def test_timers_in_parts_do_what_they_do_at_once(name, batches):
    at_once = results(APPS[name](), batches)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timers, "PAGES_AT_ONCE", 1)
        assert results(APPS[name](), batches) == at_once
        patch.setattr(timers, "PAGES_AT_ONCE", AT_ONCE[0])
        patch.setattr(timers, "BYTES_AT_ONCE", 1)
        assert results(APPS[name](), batches) == at_once


def test_few_instances_are_decoded_at_one_time(monkeypatch):
    """20,000 windows close in a micro-batch that has one event: as many are decoded as lie on a part's pages; all are kept
    for late events."""
    most = [0]

    def watched(name):
        plain = getattr(LiveInstances, name)

        def call(self, *given):
            most[0] = max(most[0], len(self.live))
            plain(self, *given)

        monkeypatch.setattr(LiveInstances, name, call)

    monkeypatch.setattr(timers, "PAGES_AT_ONCE", 4)
    driver = TopologyDriver(windows(Tumbling("10 s", allowed="2 h")), partitions=2)
    driver.batch({"Readings": [Reading(key, "", 1, NOON) for key in range(20_000)]})
    driver.batch({"Readings": [Reading(0, "", 1, NOON + timedelta(hours=1))]})
    watched("put_back")
    watched("drop_empty")
    driver.batch({"Readings": [Reading(0, "", 1, NOON + timedelta(hours=1))]})
    assert len(driver.output("Out")) == 40_000 + 2
    assert 0 < most[0] < 4 * 256 * 3
