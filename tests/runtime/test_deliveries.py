"""Events reach containers in order, a part at a time, and nothing depends on where one part ends and the next begins."""

import tracemalloc
from contextlib import contextmanager

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import App, Event, ProcessingElement
from penstock.runtime import arrivals, wire
from penstock.runtime.arrivals import ArrivedBlocks
from penstock.runtime.lineage import LineageColumns
from penstock.runtime.together.columns import column
from penstock.runtime.wire import Outbox
from penstock.runtime.wiring import Wiring
from penstock.testing import TopologyDriver


class Reading(Event):
    key: str
    values: list[int]


class Total(Event):
    key: str
    sum: int
    seen: int


def application():
    """One that fails in all the ways in which an event can, and by what it is alone."""
    app = App("failing")
    readings, totals = app.source("Readings", Reading), app.stream("Totals", Total)
    app.sink("Out", totals)

    @app.element(readings, key="key", emits=totals)
    class Adder(ProcessingElement):
        sum: int = 0
        log: list[int] = []

        def on_event(self, reading):
            [value] = reading.values
            reading.values.append(99)  # nobody else sees it
            self.sum += value
            self.log.append(value)
            if value == 1:
                raise ValueError("one")
            if value == 2:
                self.sum = 2**70  # cannot be kept
            if value == 3:
                return totals(self.key, "three", 0)  # of another type
            return totals(self.key, self.sum, len(self.log))

        def on_batch(self):
            if self.sum % 5 == 4:
                raise ValueError("four")
            yield totals(self.key, self.sum, -len(self.log))

    return app


def wiring():
    return Wiring(application().topology(), 1, (), "dead-letter")


@contextmanager
def divided(block, part, memory, part_bytes=0):
    """Within, there are so many events in a block and in a part, a part has so many bytes, and so many stay in memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire, "EVENTS_PER_BLOCK", block)
        patch.setattr(arrivals, "DECODED", arrivals.Limits(part, part_bytes, 3 * part))
        patch.setattr(arrivals, "KEPT_IN_MEMORY", memory)
        yield


places = st.tuples(st.integers(0, 3), st.integers(0, 5))
sizes = st.tuples(st.integers(1, 4), st.integers(1, 6), st.sampled_from([0, 300, 1 << 20]), st.sampled_from([0, 20, 1 << 20]))


@given(st.lists(st.lists(places, min_size=1, max_size=8), max_size=6), sizes)
def test_events_come_in_the_order_of_their_places(senders, chosen):
    at, expected = wiring(), []
    with divided(*chosen):
        arrived = ArrivedBlocks(at)
        for sender, of_sender in enumerate(senders):
            major, minor = np.array(of_sender, np.int64).T
            lineage = LineageColumns.read(np.arange(len(major)), major, minor * 10 + sender)
            events = [Reading(f"{sender}", [number]) for number in range(len(major))]
            beside = {"key": column("str", [event.key for event in events]), "value": column("int", [*range(len(events))])}
            outbox = Outbox()
            pack = outbox.pack(
                0,
                np.zeros(len(major), np.int64),
                lineage,
                lambda rows, events=events: msgspec.msgpack.encode([events[row] for row in rows]),
                beside,
            )
            for block in pack:
                arrived.add(block.content)
            expected += zip(major.tolist(), lineage.minor.tolist(), range(len(major)), events, strict=True)
        [element] = at.keyed
        deliveries = list(arrived.deliveries(element))
        found = [event for delivery in deliveries for event in delivery.events]
        again = [delivery.again(row) for delivery in deliveries for row in range(len(delivery))]
    wanted = [event for *_, event in sorted(expected, key=lambda one: one[:3])]
    assert found == again == wanted
    columns = [delivery.columns for delivery in deliveries if len(delivery)]
    keys, values = ([each[name] for each in columns] for name in ("key", "value"))
    assert [key for each in keys for key in each.listed()] == [event.key for event in wanted]
    assert [[value] for each in values for value in each.tolist()] == [event.values for event in wanted]
    assert all(delivery.lineage.major.tolist() == sorted(delivery.lineage.major) for delivery in deliveries)
    assert len(deliveries) >= 1


readings = st.lists(st.builds(Reading, st.sampled_from("abc"), st.integers(1, 9).map(lambda value: [value])), max_size=12)


def handled(batches, partitions):
    driver = TopologyDriver(application(), partitions=partitions, dead_letters=True)
    for batch in batches:
        driver.batch({"Readings": batch})
    tally = driver.elements["Adder"] if any(batches) else None
    letters = sorted((letter["error"], str(letter.get("event"))) for letter in driver.dead_letters)
    out = sorted(driver.output("Out"), key=lambda total: total.key)  # within a key the order counts
    return out, letters, tally and (tally.events, tally.dead_letters, sum(tally.instances.values()))


@given(st.lists(readings, max_size=3), st.integers(1, 2), sizes)
def test_it_makes_no_difference_in_how_many_parts_events_come(batches, partitions, chosen):
    wanted = handled(batches, partitions)
    with divided(*chosen):
        assert handled(batches, partitions) == wanted


def test_memory_does_not_grow_with_the_micro_batch():
    def peak(events):
        at = wiring()
        outbox, arrived = Outbox(), ArrivedBlocks(at)
        for first in range(0, events, 1000):
            given = [Reading("a", list(range(50))) for _ in range(1000)]
            order = np.arange(first, first + 1000)
            lineage = LineageColumns.read(order, np.zeros_like(order), order)
            for block in outbox.pack(0, np.zeros_like(order), lineage, lambda rows, given=given: msgspec.msgpack.encode(given)):
                arrived.add(block.content)
        tracemalloc.start()
        handled = sum(len(delivery) for delivery in arrived.deliveries(at.keyed[0]))
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert handled == events
        return most

    with divided(1000, 2000, 100_000):
        assert peak(40_000) < 1.5 * peak(10_000)
    with divided(1000, 1000, 100_000, 400_000):
        assert peak(40_000) < 1.5 * peak(10_000)


@pytest.mark.parametrize(("part", "part_bytes", "wanted"), [(50, 0, 20), (50, 10**6, 7), (500, 10**6, 1), (2000, 0, 1)])
def test_a_delivery_has_many_events_and_many_bytes(part, part_bytes, wanted):
    at = wiring()
    outbox, arrived = Outbox(), ArrivedBlocks(at)
    order = np.arange(1000)
    lineage = LineageColumns.read(order, np.zeros_like(order), order)
    given = [Reading("a", [1])] * 50
    with divided(50, part, 1 << 20, part_bytes):
        for block in outbox.pack(0, np.zeros_like(order), lineage, lambda rows: msgspec.msgpack.encode(given)):
            arrived.add(block.content)
        assert len(list(arrived.deliveries(at.keyed[0]))) == wanted
