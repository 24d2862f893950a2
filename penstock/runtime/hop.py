"""A hop: the containers that one partition runs between two shuffles, for one micro-batch."""

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.app.element import Element
from penstock.app.stream import Stream
from penstock.runtime.column_container import ColumnContainer, ColumnDelivery
from penstock.runtime.container import Container
from penstock.runtime.delivery import Delivery
from penstock.runtime.lineage import Ints, LineageColumns
from penstock.runtime.pages import PageStore
from penstock.runtime.stage import Stage
from penstock.runtime.wire import Block
from penstock.runtime.wiring import Wiring


def run_hop(
    wiring: Wiring, stage: Stage, blocks: Iterable[bytes], store: PageStore, now: float, watermark: float | None
) -> float | None:
    """Hand blocks of events to the containers of a hop, and let their timers fire.

    Parameters
    ----------
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
    wiring: Wiring, stage: Stage, blocks: Iterable[bytes], store: PageStore, now: float, watermark: float | None
) -> float | None:
    arrived = [msgspec.msgpack.decode(block, type=Block) for block in blocks]
    dues = []
    for element in wiring.hop(stage.tally.stage):
        if element.state is None:
            container = Container(element, stage, store, now, watermark)
            delivery = _in_order(wiring, element, arrived)
            stage.tally.count("received", element.name, len(delivery.events))
            container.handle(delivery)
            dues.append(container.finish())
        else:
            in_columns = ColumnContainer(element, stage, store, now, watermark)
            batch = _columns_in_order(stage, element, arrived)
            stage.tally.count("received", element.name, len(batch))
            in_columns.handle(batch)
            dues.append(in_columns.finish())
    return min((due for due in dues if due is not None), default=None)


def _in_order(wiring: Wiring, element: Element, arrived: list[Block]) -> Delivery:
    """An element's events, in the order in which their sources delivered them."""
    streams: list[Any] = []
    events: list[Any] = []
    blocks: list[tuple[Stream[Any], bytes]] = []
    columns = [np.empty((4, 0), np.int64)]
    numbers = [np.empty(0, np.int64)]
    for block in arrived:
        listener, stream = wiring.deliveries[block.target]
        if listener is element:
            decoded = wiring.codec(stream.event_type).decode_block(block.events)
            streams.extend([stream] * len(decoded))
            events.extend(decoded)
            blocks.append((stream, block.events))
            columns.append(np.stack(block.lineage_columns))
            numbers.append(np.arange(block.first, block.first + len(decoded)))
    lineage, order = _ordered(columns, numbers)
    if order is None:
        return Delivery(wiring, streams, events, lineage, blocks, None)
    rows = order.tolist()
    return Delivery(
        wiring,
        [streams[row] for row in rows],
        [events[row] for row in rows],
        LineageColumns(*(column[order] for column in lineage)),
        blocks,
        rows,
    )


def _columns_in_order(stage: Stage, element: Element, arrived: list[Block]) -> ColumnDelivery:
    """The same of an element whose instances lie in columns."""
    wiring = stage.wiring
    schema = wiring.codec(element.inputs[0].event_type).schema
    batches: list[pa.RecordBatch] = []
    columns = [np.empty((4, 0), np.int64)]
    numbers = [np.empty(0, np.int64)]
    for block in arrived:
        if wiring.deliveries[block.target][0] is element:
            batches.append(pa.ipc.read_record_batch(block.events, schema))
            columns.append(np.stack(block.lineage_columns))
            numbers.append(np.arange(block.first, block.first + batches[-1].num_rows))
    lineage, order = _ordered(columns, numbers)
    events = pa.concat_batches(batches or [pa.RecordBatch.from_pylist([], schema=schema)])
    if order is not None:
        events, lineage = events.take(pa.array(order)), lineage.take(order)
    return ColumnDelivery(element, stage, events, lineage)


def _ordered(columns: list[NDArray[np.int64]], numbers: list[Ints]) -> tuple[LineageColumns, Ints | None]:
    """The lineages of blocks, and how to put their events in order; None where they are."""
    lineage = LineageColumns(*np.concatenate(columns, axis=1))
    order = np.lexsort((np.concatenate(numbers), lineage.minor, lineage.major))
    return lineage, None if np.array_equal(order, np.arange(len(order))) else order
