"""A hop: runs the containers of keyed elements in one partition between two shuffles, for one micro-batch."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from penstock.app.element import Element
from penstock.runtime.arrivals import ArrivedBlocks
from penstock.runtime.column_container import ColumnContainer, ColumnDelivery
from penstock.runtime.container import Container
from penstock.runtime.lineage import in_order, joined
from penstock.runtime.log import AtWork, working
from penstock.runtime.pages import PageStore
from penstock.runtime.stage import Stage

SENT_AT_ONCE = 8 << 20
"""Rows for later stages are passed on once they have this many bytes."""


class Hop:
    """Delivers events to the containers of a hop, and lets their timers fire.

    Args:
        now: the micro-batch's processing time.
        watermark: its event-time watermark, or None without event time. Both are in seconds since the epoch.
    """

    def __init__(self, stage: Stage, arrivals: ArrivedBlocks, store: PageStore, now: float, watermark: float | None) -> None:
        self._stage, self._arrivals, self._store = stage, arrivals, store
        self._now, self._watermark = now, watermark
        self.due: float | None = None
        """After `run`, when the next timer in this partition is due, in seconds since the epoch; None without one."""

    def run(self) -> Iterator[pa.RecordBatch]:
        """Run all elements; yields the rows for later stages, and at last the tally."""
        for element in self._stage.wiring.hop(self._stage.tally.stage):
            if element.state is None:
                yield from self._run(element)
            else:
                self._run_columns(element)
        yield self._stage.finish()

    def _run(self, element: Element) -> Iterator[pa.RecordBatch]:
        """Run an element of the event dialect, delivery by delivery."""
        container = self._container(element)
        settled = True
        for delivery in self._arrivals.deliveries(element):
            with collector_paused():
                if not settled:
                    container.settle()
                container.handle(delivery)
            settled = False
            if self._stage.outbox.bytes >= SENT_AT_ONCE:
                yield self._stage.outbox.take()
        parts = container.finish()
        while _next_part(parts):
            if self._stage.outbox.bytes >= SENT_AT_ONCE:
                yield self._stage.outbox.take()
        self._note(container.due)

    def _container(self, element: Element) -> Container:
        return Container(element, self._stage, self._store, self._now, self._watermark)

    def _run_columns(self, element: Element) -> None:
        """Run an element of the batch dialect, with all its events in one delivery."""
        container = ColumnContainer(element, self._stage, self._store, self._now, self._watermark)
        with collector_paused(), working(AtWork(self._stage.tally.log, element.name)):
            delivery = self._columns_in_order(element)
            container.handle(delivery)
            self._note(container.finish())

    def _note(self, due: float | None) -> None:
        """Keep the earliest time at which a timer is due."""
        self.due = min((time for time in (due, self.due) if time is not None), default=None)

    def _columns_in_order(self, element: Element) -> ColumnDelivery:
        """Return all events for an element as one delivery of columns, in the order of delivery."""
        schema = self._stage.wiring.codec(element.inputs[0].event_type).schema
        blocks = list(self._arrivals.take(element))
        batches = [pa.ipc.read_record_batch(pa.py_buffer(block.events), schema) for block in blocks]
        events = pa.concat_batches(batches or [pa.RecordBatch.from_pylist([], schema=schema)])
        lineage = joined([block.lineage_columns for block in blocks])
        order = in_order(lineage, [block.numbers for block in blocks])
        if order is not None:
            events, lineage = events.take(pa.array(order)), lineage.take(order)
        return ColumnDelivery(element, self._stage, events, lineage)


def _next_part(parts: Iterator[int]) -> int:
    """Return the next number; 0 after the last. No yield is within `collector_paused`, lest it pause the caller's collector."""
    with collector_paused():
        return next(parts, 0)


@contextmanager
def collector_paused() -> Iterator[None]:
    """Within the block, pause garbage collection.

    The events of a delivery stay alive until it has been handled, so repeated searches for cycles among them find nothing; they
    took half of a container's time.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
