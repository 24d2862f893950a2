"""A hop: the containers that one partition runs between two shuffles, for one micro-batch."""

import gc
from collections.abc import Iterator, Sized
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from penstock.app.element import Element
from penstock.runtime.column_container import ColumnContainer, ColumnDelivery
from penstock.runtime.container import Container
from penstock.runtime.delivery import Delivery
from penstock.runtime.lineage import Ints, LineageColumns
from penstock.runtime.pages import PageStore
from penstock.runtime.stage import Stage
from penstock.runtime.wire import Block
from penstock.runtime.wiring import Wiring

Handed = TypeVar("Handed", bound=Sized, contravariant=True)
_decode = msgspec.msgpack.Decoder(Block).decode


def run_hop(
    wiring: Wiring, stage: Stage, blocks: list[bytes], store: PageStore, now: float, watermark: float | None
) -> float | None:
    """Hand blocks of events to the containers of a hop, and let their timers fire.

    Parameters
    ----------
    blocks: are taken out of the list, so that each goes as soon as it has been read.
    now: the micro-batch's processing time; watermark: the event time it has reached, if there is
        one; both in seconds since the epoch.

    Returns the earliest time at which a timer in this partition is due, if there is one.
    """
    with collector_paused():
        return _run_hop(wiring, stage, blocks, store, now, watermark)


@contextmanager
def collector_paused() -> Iterator[None]:
    """Within the block, no garbage collection.

    A micro-batch keeps hundreds of thousands of objects alive until it ends; searching them for
    cycles again and again took half of a container's time.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _run_hop(
    wiring: Wiring, stage: Stage, blocks: list[bytes], store: PageStore, now: float, watermark: float | None
) -> float | None:
    arrived: dict[Element, list[Block]] = {}
    for block in map(_decode, blocks):
        arrived.setdefault(wiring.deliveries[block.target][0], []).append(block)
    blocks.clear()
    dues = []
    for element in wiring.hop(stage.tally.stage):
        own = arrived.pop(element, [])
        if element.state is None:
            container = Container(element, stage, store, now, watermark)
            dues.append(_hand(stage, element, container, _in_order(wiring, own)))
        else:
            in_columns = ColumnContainer(element, stage, store, now, watermark)
            dues.append(_hand(stage, element, in_columns, _columns_in_order(stage, element, own)))
    return min((due for due in dues if due is not None), default=None)


class _Handler(Protocol[Handed]):
    def handle(self, delivery: Handed) -> None: ...
    def finish(self) -> float | None: ...


def _hand(stage: Stage, element: Element, container: _Handler[Handed], delivery: Handed) -> float | None:
    stage.tally.count("received", element.name, len(delivery))
    container.handle(delivery)
    return container.finish()


def _in_order(wiring: Wiring, own: list[Block]) -> Delivery:
    """An element's events, in the order in which their sources delivered them."""
    streams: list[Any] = []
    events: list[Any] = []
    blocks: list[memoryview] = []
    lineage, order = _ordered(own)
    flat = all(wiring.codec(wiring.deliveries[block.target][1].event_type).flat for block in own)
    while own:  # a block that is needed no more goes before the next one is decoded
        block = own.pop(0)
        _, stream = wiring.deliveries[block.target]
        decoded = wiring.codec(stream.event_type).decode_block(block.events)
        streams.extend([stream] * len(decoded))
        events.extend(decoded)
        if not flat:
            blocks.append(block.events)
    if order is None:
        return Delivery(wiring, streams, events, lineage, blocks, None)
    rows = order.tolist()
    streams, events = [streams[row] for row in rows], [events[row] for row in rows]
    return Delivery(wiring, streams, events, lineage.take(order), blocks, rows)


def _columns_in_order(stage: Stage, element: Element, own: list[Block]) -> ColumnDelivery:
    """The same of an element whose instances lie in columns."""
    schema = stage.wiring.codec(element.inputs[0].event_type).schema
    batches = [pa.ipc.read_record_batch(pa.py_buffer(block.events), schema) for block in own]
    events = pa.concat_batches(batches or [pa.RecordBatch.from_pylist([], schema=schema)])
    lineage, order = _ordered(own)
    if order is not None:
        events, lineage = events.take(pa.array(order)), lineage.take(order)
    return ColumnDelivery(element, stage, events, lineage)


def _ordered(blocks: list[Block]) -> tuple[LineageColumns, Ints | None]:
    """The lineages of the events of blocks, and how to put them in order; None where they are."""
    columns = [np.stack(block.lineage_columns) for block in blocks]
    numbers = [block.first + np.arange(part.shape[1]) for block, part in zip(blocks, columns, strict=True)]
    lineage = LineageColumns(*np.concatenate([np.empty((4, 0), np.int64), *columns], axis=1))
    order = np.lexsort((np.concatenate([np.empty(0, np.int64), *numbers]), lineage.minor, lineage.major))
    return lineage, None if np.array_equal(order, np.arange(len(order))) else order
