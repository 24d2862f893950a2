"""Replays a run in memory: feeds the events of its committed micro-batches, read again, through its elements."""

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.app.application import App
from penstock.app.window.windowing import FOREVER
from penstock.audit.sample import same
from penstock.connectors.source import BoundSource, Reread
from penstock.kinds.moments import SECOND
from penstock.runs.layout import Layout
from penstock.runtime.entrance import Entrance
from penstock.runtime.events import EventBatch
from penstock.runtime.lineage import LAST, SOURCE_SHIFT, LineageColumns
from penstock.runtime.output import MemoryOutput
from penstock.runtime.stage import Stage
from penstock.testing.driver import Attempt, TopologyDriver

END = -1
"""The number of the micro-batch that ends the input, where the run's own number is not known."""

Origin = tuple[int, int]
"""The identity of a source's event: ``major`` and ``minor`` of its lineage."""


class ExpectedRow(NamedTuple):
    """A row that a sink should hold.

    Args:
        same: its identity: bytes that are equal if and only if the events are.
        origin: the source event that caused it; None where no single event did.
        batch: the number of its micro-batch.
    """

    same: bytes
    event: Any
    origin: Origin | None
    batch: int


class _Results(MemoryOutput):
    """Keeps results as event objects, and dead letters as JSON."""

    def __init__(self) -> None:
        super().__init__()
        self.results: dict[str, list[tuple[Any, Origin | None]]] = {}


class _Stage(Stage):
    """Passes results on unencoded. Rows that a sink refuses are left out later, by the run's dead letters."""

    def _write(self, sink: str, batch: EventBatch) -> None:
        assert isinstance(self._output, _Results)
        lineage = batch.lineage
        pairs = zip(lineage.major.tolist(), lineage.minor.tolist(), strict=True)
        origins = (None if major == LAST else (major, minor) for major, minor in pairs)
        self._output.results.setdefault(sink, []).extend(zip(batch.events(self.wiring), origins, strict=True))


class _Replayed(Attempt):
    """A micro-batch whose events are read again from sources."""

    def __init__(self, driver: "Replay", parts: dict[str, Iterable[Reread]]) -> None:
        super().__init__(driver, {})
        self._parts, self._replay = parts, driver

    def enter(self) -> pa.RecordBatch:
        stage = self._stage(0, 0)
        for name, parts in self._parts.items():
            bound = self._replay.sources[name]
            entrance = Entrance(stage, self.wiring.source(name))
            number = [source.name for source in self.wiring.topology.sources].index(name)
            for part in parts:
                if bound.frames is not None:
                    bound.frames.prepare(row["payload"] for row in part.rows)
                minor = part.minor | (number << SOURCE_SHIFT)
                lineage = LineageColumns.read(part.born, part.major, minor)
                read = None if bound.frames is None else bound.frames.read
                entrance.take(part.rows, bound.rows, lineage, read)
                self._replay.read[name] = self._replay.read.get(name, 0) + len(minor)
        return stage.finish()

    def _output(self) -> MemoryOutput:
        return _Results()

    def results(self) -> Iterator[tuple[str, Any, Origin | None]]:
        """Yield the results, each with the label of its output and the source event that caused it."""
        for output in self._outputs:
            assert isinstance(output, _Results)
            for sink, results in output.results.items():
                for event, origin in results:
                    yield sink, event, origin


class Replay(TopologyDriver):
    """Replays micro-batches in memory.

    Args:
        sources: the sources, by name.
        layout: the layout of the run, on which the order of some events depends.
        kept: returns a result as its sink holds it, given the sink's label and the event; None if it is not to be compared.
    """

    def __init__(self, app: App, sources: dict[str, BoundSource], layout: Layout, kept: Callable[[str, Any], Any]) -> None:
        super().__init__(app, partitions=layout.partitions or 1, dead_letters=True)
        self._partitioner = layout.partitioner
        self.sources, self._kept = sources, kept
        self._stage = _Stage
        self.rows: dict[str, list[ExpectedRow]] = {}
        self.read: dict[str, int] = {}

    def again(
        self, number: int, parts: dict[str, Iterable[Reread]], now: float | None, watermark: float | None, *, told: bool
    ) -> None:
        """Run a micro-batch.

        Args:
            told: whether ``watermark`` is the run's own; otherwise the driver computes the watermark.
        """
        if now is not None:
            self.now = datetime.fromtimestamp(now, UTC)
        if told:
            self._committed.watermark = watermark
        attempt = _Replayed(self, parts)
        self._try(attempt)
        for sink, result, origin in attempt.results():
            event = self._kept(sink, result)
            if event is not None:
                self.rows.setdefault(sink, []).append(ExpectedRow(same(event), event, origin, number))

    def finish_again(self) -> None:
        """End the input by an extra micro-batch, for a run that ended its input and whose micro-batches are not known."""
        self._committed.watermark = FOREVER / SECOND
        self._committed.ended = True
        self.again(END, {}, None, FOREVER / SECOND, told=True)

    @property
    def accepted(self) -> dict[str, int]:
        """The number of events, whether decoded or not, by source."""
        counted: dict[str, int] = {}
        for tally in self._committed.tallies:
            for name, source in tally.sources.items():
                counted[name] = counted.get(name, 0) + source.accepted
        return counted
