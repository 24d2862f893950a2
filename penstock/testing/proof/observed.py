"""A topology's driver that shows what goes on within: every stream, calls of hooks, and which events belong together."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import msgspec
import pyarrow as pa

from penstock.app.application import App
from penstock.app.element import Element
from penstock.app.topology import Topology
from penstock.runtime.codec import Codec
from penstock.runtime.container import Container
from penstock.runtime.hop import Hop, collector_paused
from penstock.runtime.wire import CLOCK, TALLY, Block
from penstock.testing.driver import Attempt, TopologyDriver
from penstock.testing.proof.outcome import last_by


class Killed(BaseException):
    """The end of the process, as far as the application can tell: no hook can catch it as an error of its own."""


class ForgetfulHop(Hop):
    """A hop in which each event is handled by itself, and the state written and read back after it."""

    def _run(self, element: Element) -> Iterator[pa.RecordBatch]:
        container = Container(element, self._stage, self._store, self._now, self._watermark)
        handled = False
        for delivery in self._arrivals.deliveries(element):
            for one in delivery.singly():
                with collector_paused():
                    if handled:
                        container.settle()
                        container.reread()
                    container.handle(one)
                handled = True
        self._note(container.finish())
        yield self._stage.outbox.take()


class ObservedDriver(TopologyDriver):
    """Keeps what is emitted into every stream.

    Parameters
    ----------
    reread: whether state is written and read back after each event.
    """

    def __init__(self, app: App, *, partitions: int, reread: bool) -> None:
        super().__init__(app, partitions=partitions, dead_letters=True)
        names = [element.name for element in self._topology.elements]
        streams = [stream.name for stream in self._topology.streams]
        self._topology = self._topology.subset(names, streams, [source.name for source in self._topology.sources])
        self._ends = False
        if reread:
            self._hop = ForgetfulHop

    def go_on_from(self, other: "ObservedDriver") -> None:
        """Take over what another driver has committed, as a process does that is started after it."""
        self._committed, self.now = other._committed, other.now

    @property
    def topology(self) -> Topology:
        """With a sink at each stream."""
        return self._topology

    @contextmanager
    def uncommitted(self) -> Iterator[None]:
        """Within the block, the process ends before a micro-batch is committed."""
        self._ends = True
        try:
            yield
        finally:
            self._ends = False

    def _commit(self, attempt: Attempt) -> None:
        if self._ends:
            raise Killed
        super()._commit(attempt)

    def reached_by(self, events: dict[str, list[bytes]]) -> set[str]:
        """What events reach before any hop: instances by element and key, and rows of tables that have keys."""
        attempt = Attempt(self, events)
        rows, wiring = attempt.enter(), attempt.wiring
        reached = set()
        for hop, content in zip(rows["hop"].to_pylist(), rows["block"].to_pylist(), strict=True):
            if hop not in (TALLY, CLOCK):
                block = msgspec.msgpack.decode(content, type=Block)
                element, stream = wiring.deliveries[block.target]
                for identity in wiring.keys[element.name].identities(
                    _events_of(block, element, wiring.codec(stream.event_type))
                ):
                    reached.add(f"{element.name}|{identity.hex()}")
        for sink in self._topology.sinks:
            if sink.key and not sink.hop:
                rows_of = [row.decode() for row in attempt.outputs.get(sink.name, [])]
                reached |= {f"{sink.name}|{key}" for key in last_by(rows_of, sink.key)}
        return reached

    @property
    def lines(self) -> dict[str, list[bytes]]:
        """What was committed, by the labels of outputs."""
        return self._committed.outputs

    def late(self) -> dict[str, int]:
        """How many events each element has taken for late."""
        return {
            name: tally.late + tally.late_in_part
            for name, tally in self.elements.items()
            if tally.late + tally.late_in_part
        }


def _events_of(block: Block, element: Element, codec: Codec) -> list[Any]:
    if element.dialect != "batch":
        return list(codec.decode_block(block.events))
    return list(codec.from_columns(pa.ipc.read_record_batch(pa.py_buffer(block.events), codec.schema)))


class Calls:
    """Counts the calls of the application's hooks, and ends the process at one of them.

    Parameters
    ----------
    hooks: their code.
    """

    def __init__(self, hooks: set[CodeType]) -> None:
        self._hooks, self._end = hooks, -1
        self.count = 0

    @contextmanager
    def counted(self, end: int | None) -> Iterator[None]:
        """Within the block, count from 0.

        Parameters
        ----------
        end: the call at which `Killed` is raised; None for none.
        """
        self.count, self._end = 0, -1 if end is None else end
        before = sys.getprofile()
        sys.setprofile(self._seen)
        try:
            yield
        finally:
            sys.setprofile(before)

    def _seen(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code in self._hooks:
            self.count += 1
            if self.count - 1 == self._end:
                raise Killed
