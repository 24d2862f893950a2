"""A driver that observes a run: the events of every stream, calls of hooks, and which events share instances."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from types import CodeType, FrameType
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from penstock.app.application import App
from penstock.app.element import Element
from penstock.app.stream import Emission
from penstock.app.topology import Topology
from penstock.kinds.coding import json_encoder
from penstock.runtime.codec import Codec
from penstock.runtime.container import Container
from penstock.runtime.hop import Hop, collector_paused
from penstock.runtime.stage import Stage
from penstock.runtime.wire import CLOCK, TALLY, Block
from penstock.runtime.wiring import Wiring
from penstock.testing.driver import Attempt, TopologyDriver
from penstock.testing.proof.agreement import names_of, says_moments
from penstock.testing.proof.outcome import last_by, normal

_encode = json_encoder().encode


class Killed(BaseException):
    """Simulates the end of the process; no `Exception`, so that the application does not catch it."""


class Moment(NamedTuple):
    """A momentary row: one that an instance has emitted in ``on_batch``."""

    stream: str
    instance: str
    row: str


class ObservedStage(Stage):
    """Records the rows emitted in ``on_batch``."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.moments: list[Moment] = []


class _Container(Container):
    def _add_ended(self, identity: bytes, emissions: Sequence[Emission], born: int) -> None:
        super()._add_ended(identity, emissions, born)
        if not says_moments(self.element):
            return
        assert isinstance(self._stage, ObservedStage)
        instance = f"{self.element.name}|{identity.hex()}"
        self._stage.moments += [Moment(said.stream.name, instance, normal(_encode(said.event))) for said in emissions]


class ObservedHop(Hop):
    """A hop that records the rows emitted in ``on_batch``."""

    def _container(self, element: Element) -> Container:
        return _Container(element, self._stage, self._store, self._now, self._watermark)


class ForgetfulHop(ObservedHop):
    """A hop that handles each event by itself, and encodes and decodes the state after it."""

    def _run(self, element: Element) -> Iterator[pa.RecordBatch]:
        container, handled = self._container(element), False
        for delivery in self._arrivals.deliveries(element):
            for single in delivery.singly():
                with collector_paused():
                    if handled:
                        container.settle()
                        container.reread()
                    container.handle(single)
                handled = True
        for _ in container.finish():
            pass
        self._note(container.due)
        yield self._stage.outbox.take()


class _Attempt(Attempt):
    def __init__(self, driver: "ObservedDriver", events: Mapping[str, Any]) -> None:
        super().__init__(driver, events)
        self.stages: list[ObservedStage] = []

    def _stage(self, number: int, partition: int) -> Stage:
        stage = super()._stage(number, partition)
        assert isinstance(stage, ObservedStage)
        self.stages.append(stage)
        return stage


class ObservedDriver(TopologyDriver):
    """Runs a topology, and records the events of every stream.

    Args:
        reread: whether state is encoded and decoded after each event.
    """

    def __init__(self, app: App, *, partitions: int, reread: bool) -> None:
        super().__init__(app, partitions=partitions, dead_letters=True)
        names = [element.name for element in self._topology.elements]
        streams = [stream.name for stream in self._topology.streams]
        self._topology = self._topology.subset(names, streams, [source.name for source in self._topology.sources])
        self._ends = False
        self.moments: list[Moment] = []
        self._stage, self._hop = ObservedStage, ForgetfulHop if reread else ObservedHop

    @cached_property
    def _wiring(self) -> Wiring:
        wiring: Wiring = super()._wiring
        wiring.compiles = False  # a compiled function has no place to be killed at between two of its yields
        return wiring

    def go_on_from(self, other: "ObservedDriver") -> None:
        """Continue from what another driver has committed, as a restarted process does."""
        self._committed, self.now, self.moments = other._committed, other.now, other.moments

    def batch(self, events: Mapping[str, Any] | None = None) -> None:
        """Run one micro-batch; see `TopologyDriver.batch`."""
        self._try(_Attempt(self, events or {}))

    @property
    def topology(self) -> Topology:
        """The topology, with a sink at each stream."""
        return self._topology

    @contextmanager
    def uncommitted(self) -> Iterator[None]:
        """Within the block, raise `Killed` instead of committing a micro-batch."""
        self._ends = True
        try:
            yield
        finally:
            self._ends = False

    def _commit(self, attempt: Attempt) -> None:
        if self._ends:
            raise Killed
        super()._commit(attempt)
        assert isinstance(attempt, _Attempt)
        self.moments += [moment for stage in attempt.stages for moment in stage.moments]

    def reached_by(self, events: dict[str, list[bytes]]) -> set[str]:
        """Return names of what events reach before any hop: instances by element and key, and rows of tables by key."""
        attempt = _Attempt(self, events)
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
                reached |= {f"{sink.name}|{key}" for key in last_by(rows_of, names_of(sink))}
        return reached

    @property
    def lines(self) -> dict[str, list[bytes]]:
        """The committed lines of JSON, by the label of the output."""
        return self._committed.outputs

    def handed(self) -> dict[str, int]:
        """Return the number of events handled, by element."""
        return {name: tally.events for name, tally in self.elements.items()}

    def late(self) -> dict[str, int]:
        """Return the number of late events, by element; only elements that have any."""
        return {
            name: tally.late + tally.late_in_part for name, tally in self.elements.items() if tally.late + tally.late_in_part
        }


def _events_of(block: Block, element: Element, codec: Codec) -> list[Any]:
    if element.dialect != "batch":
        return list(codec.decode_block(block.events))
    return list(codec.from_columns(pa.ipc.read_record_batch(pa.py_buffer(block.events), codec.schema)))


class Calls:
    """Counts calls of the application's hooks, and raises `Killed` at one of them.

    Args:
        hooks: the code objects of the hooks.
    """

    def __init__(self, hooks: set[CodeType]) -> None:
        self._hooks, self._end = hooks, -1
        self.count = 0

    @contextmanager
    def counted(self, end: int | None) -> Iterator[None]:
        """Within the block, count from 0.

        Args:
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
