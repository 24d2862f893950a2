"""States that are checked together are refused, or stored, as if each were checked by itself."""

import math
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import App, Event, ProcessingElement
from penstock.runtime import arrivals, container, live, wire
from penstock.testing import TopologyDriver

VALUES = {
    "number": 7,
    "float": 1.5,
    "nan": math.nan,
    "too large": 2**70,
    "text": "word",
    "half a character": "\ud800",
    "list": [1, 2],
    "tuple": (1, 2),
    "list of texts": ["a"],
    "bool": True,
    "decimal": Decimal("1.50"),
    "set": {1},
    "function": len,
    "time in another zone": datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=2))),
    "time": datetime(2026, 1, 1, tzinfo=UTC),
    "long": "x" * 3_000,
}


class Asked(Event):
    key: int
    value: str
    ends: str


class Seen(Event):
    key: int
    seen: int
    values: list[str]


def application():
    app = App("checked")
    asked = app.source("Asked", Asked)
    seen = app.stream("Seen", Seen)
    app.sink("Out", seen)

    @app.element(asked, key="key", emits=seen)
    class Keeper(ProcessingElement):
        seen: int = 0
        thing: int | float | str | list[int] | None = None
        at: datetime | None = None
        by_name: dict[str, list[float]] = {}
        ends: str = ""

        def on_event(self, event):
            value = VALUES[event.value]
            self.seen += 1
            if event.value.startswith("time"):
                self.at = value
            elif isinstance(value, float):
                self.by_name[event.value] = [value]
            else:
                self.thing = value
            self.ends = event.ends

        def on_batch(self):
            if self.ends == "spoilt":
                self.thing = 2**80
            if self.ends == "raises":
                raise ValueError("not now")
            yield seen(self.key, self.seen, sorted(map(str, self.by_name)))

    return app


def left_by(events, cut):
    driver = TopologyDriver(application(), dead_letters=True)
    for place in range(0, len(events), cut):
        driver.batch({"Asked": events[place : place + cut]})
    tallies = {name: (tally.events, tally.instances) for name, tally in driver.elements.items()}
    stored = {place: store._content for place, store in driver._committed.stores.items()}
    return stored, driver._committed.outputs, tallies


asked = st.builds(
    Asked, st.integers(0, 9), st.sampled_from(["number"] * 8 + [*VALUES]), st.sampled_from(["well"] * 8 + ["spoilt", "raises"])
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(asked, max_size=30),
    st.sampled_from([1, 4, 30]),
    st.sampled_from([1, 3, 1000]),
    st.sampled_from([1, 200, 1 << 20]),
    st.sampled_from([2, 30]),
)
def test_together_is_one_by_one(events, cut, ended, read_back, delivered):
    """Whatever the cut into micro-batches and deliveries, and however many are looked at together."""
    with (
        patch.object(arrivals, "DECODED", arrivals.Limits(delivered, 0, delivered)),
        patch.object(wire, "EVENTS_PER_BLOCK", 2),
        patch.object(live, "LARGEST_STATE", 2_000),
    ):
        with patch.object(live.LiveInstances, "_come_back", lambda self, part: False):
            one_by_one = left_by(events, cut)
        with patch.object(container, "ENDED_AT_ONCE", ended), patch.object(live, "READ_BACK_AT_ONCE", read_back):
            assert left_by(events, cut) == one_by_one
