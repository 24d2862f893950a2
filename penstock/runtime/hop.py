"""A hop: the containers that one partition runs between two shuffles, for one micro-batch."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.runtime.container import Container
from penstock.runtime.lineage import Lineage
from penstock.runtime.pages import PageStore
from penstock.runtime.plan import Plan
from penstock.runtime.stage import Stage


class Delivered(NamedTuple):
    """Rows of the wire as a hop receives them: arrays of one length, in the wire's order of columns."""

    target: NDArray[np.int32]
    payload: NDArray[np.object_]
    born: NDArray[np.int64]
    time: NDArray[np.int64]
    major: NDArray[np.int64]
    minor: NDArray[np.int64]
    sub: NDArray[np.int32]

    @classmethod
    def none(cls) -> "Delivered":
        """No rows."""
        ints, times = np.empty(0, np.int32), np.empty(0, np.int64)
        return cls(ints, np.empty(0, object), times, times, times, times, ints)


def run_hop(
    plan: Plan, stage: Stage, delivered: Delivered, store: PageStore, now: float, watermark: float | None
) -> float | None:
    """Hand delivered events to the containers of a hop, and let their timers fire.

    Returns the earliest time at which a timer in this partition is due, if there is one.
    """
    dues = []
    for element in plan.hop(stage.tally.stage):
        container = Container(element, stage, store, now, watermark)
        mine = [number for number, (listener, _) in enumerate(plan.deliveries) if listener is element]
        rows = np.flatnonzero(np.isin(delivered.target, mine))
        order = rows[np.lexsort((delivered.sub[rows], delivered.minor[rows], delivered.major[rows]))]
        streams, events = _decode(plan, delivered, order)
        lineages = [*_lineages(delivered, order)]
        stage.tally.received[element.name] = stage.tally.received.get(element.name, 0) + len(events)
        container.handle(streams, events, lineages)
        dues.append(container.finish())
    return min((due for due in dues if due is not None), default=None)


def _decode(plan: Plan, delivered: Delivered, order: NDArray[np.intp]) -> tuple[list[Any], list[Any]]:
    targets, payloads = delivered.target[order].tolist(), delivered.payload[order].tolist()
    streams = [plan.deliveries[target][1] for target in targets]
    decoders = {
        number: plan.codec(stream.event_type).decode_msgpack for number, (_, stream) in enumerate(plan.deliveries)
    }
    return streams, [decoders[target](payload) for target, payload in zip(targets, payloads, strict=True)]


def _lineages(delivered: Delivered, order: NDArray[np.intp]) -> Iterator[Lineage]:
    columns = (delivered.born, delivered.time, delivered.major, delivered.minor)
    return map(Lineage, *(column[order].tolist() for column in columns))
