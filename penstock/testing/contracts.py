"""Test suites for authors of connectors: derive a test class from one, override `connect`, and run pytest.

>>> class TestMySink(SinkContract):
...     def connect(self, directory):
...         return f"jsonl:{directory / 'out'}"
"""

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from penstock.app.application import App
from penstock.app.stream import Connection, Sink, Source, Stream
from penstock.connectors.checkpoint import Position
from penstock.connectors.declaration import SourceContext
from penstock.connectors.registry import bind_sinks, bind_source
from penstock.connectors.sequence import SequenceSource
from penstock.connectors.sink import BoundSink
from penstock.errors import RunLockedError, SinkError
from penstock.kinds.event import Event
from penstock.runtime.events import EventBatch
from penstock.runtime.lineage import LineageColumns
from penstock.runtime.output import FileOutput, StagedFile
from penstock.runtime.stage import Stage
from penstock.runtime.tally import Tally
from penstock.runtime.wire import TALLY
from penstock.runtime.wiring import Wiring


class Sample(Event):
    """The event type that the suites send through connectors."""

    name: str
    number: int
    note: str | None = None


SAMPLES = [Sample("a", 1), Sample("b", 2, 'with\ttab, "quotes" and ü'), Sample("c", 3, ""), Sample("ab/c", 2**62)]


class SinkContract:
    """The contract of a sink: each committed micro-batch is visible once, however often and by any process it is delivered.

    Override `connect`, and the attributes that describe the sink.
    """

    key: tuple[str, ...] = ()
    """The key fields of the sink. A table is upserted by them, so that later events of a key replace earlier ones."""
    shared = False
    """Whether several runs may write to the sink's place."""

    def connect(self, directory: Path) -> str | Connection:
        """Return a URI or a connector for a place below a directory; every call must return the same."""
        raise NotImplementedError

    def bind(self, directory: Path, event_type: type[Event] = Sample) -> BoundSink:
        """Bind the sink, as one process does."""
        sink = Sink("Out", Stream("Samples", event_type), self.connect(directory), self.key)
        return bind_sinks([sink], {}, directory / "output")["Out"]

    def claimed(self, directory: Path) -> BoundSink:
        """Bind and claim the sink, as a run that starts or resumes does."""
        sink = self.bind(directory)
        sink.claim("run-1", ())
        return sink

    def test_batches_are_there_in_order_once_delivered(self, tmp_path: Path) -> None:
        sink = self.claimed(tmp_path)
        assert sink.read() == []
        sink.deliver("main", 0, stage(sink, SAMPLES[:2]))
        sink.deliver("main", 1, stage(sink, SAMPLES[2:]))
        assert _same(sink.read(), SAMPLES)

    def test_a_batch_that_comes_again_leaves_no_second_copy(self, tmp_path: Path) -> None:
        sink = self.claimed(tmp_path)
        sink.deliver("main", 0, stage(sink, SAMPLES[:2]))
        sink.deliver("main", 1, stage(sink, SAMPLES[2:]))
        sink.deliver("main", 1, stage(sink, SAMPLES[2:]))
        assert _same(sink.read(), SAMPLES)

    def test_another_process_that_delivers_the_last_batch_again_leaves_no_second_copy(self, tmp_path: Path) -> None:
        self.claimed(tmp_path).deliver("main", 0, stage(self.bind(tmp_path), SAMPLES))
        resumed = self.claimed(tmp_path)
        resumed.deliver("main", 0, stage(resumed, SAMPLES))
        assert _same(resumed.read(), SAMPLES)

    def test_files_that_were_delivered_already_are_passed_over(self, tmp_path: Path) -> None:
        sink = self.claimed(tmp_path)
        files = stage(sink, SAMPLES)
        sink.deliver("main", 0, files)
        sink.deliver("main", 0, files)
        assert _same(sink.read(), SAMPLES)

    def test_groups_number_their_batches_apart(self, tmp_path: Path) -> None:
        sink = self.claimed(tmp_path)
        sink.deliver("main", 0, stage(sink, SAMPLES[:2]))
        sink.deliver("other", 0, stage(sink, SAMPLES[2:]))
        assert _same(sink.read(), SAMPLES)

    def test_a_place_of_another_run_is_refused(self, tmp_path: Path) -> None:
        sink = self.claimed(tmp_path)
        sink.deliver("main", 0, stage(sink, SAMPLES))
        other = self.bind(tmp_path)
        if self.shared:
            other.claim("run-2", ())
            return
        assert "Out" in _refusal(other), "a sink that holds another run's events refuses, and names itself"
        assert _same(sink.read(), SAMPLES)

    def test_a_run_that_was_discarded_leaves_nothing_behind(self, tmp_path: Path) -> None:
        sink = self.claimed(tmp_path)
        sink.deliver("main", 0, stage(sink, SAMPLES))
        fresh = self.bind(tmp_path)
        fresh.claim("run-2", ("run-1",))
        assert fresh.read() == []
        fresh.deliver("main", 0, stage(fresh, SAMPLES[:1]))
        assert _same(fresh.read(), SAMPLES[:1])

    def test_a_driver_whose_run_was_discarded_meanwhile_delivers_nothing_more(self, tmp_path: Path) -> None:
        sink = self.claimed(tmp_path)
        sink.deliver("main", 0, stage(sink, SAMPLES[:2]))
        late = stage(sink, SAMPLES[2:])
        fresh = self.bind(tmp_path)
        fresh.claim("run-2", ("run-1",))
        fresh.deliver("main", 0, stage(fresh, SAMPLES[:1]))
        with suppress(RunLockedError):  # or there was nothing left to deliver
            sink.deliver("main", 1, late)
        fresh.deliver("main", 1, stage(fresh, SAMPLES[1:2]))
        assert _same(fresh.read(), SAMPLES[:2])

    def test_a_sink_that_can_tell_says_how_far_it_is(self, tmp_path: Path) -> None:
        sink = self.claimed(tmp_path)
        if sink.reached("main") is None:
            return
        assert sink.reached("main") == -1
        sink.deliver("main", 3, stage(sink, SAMPLES))
        assert [self.claimed(tmp_path).reached(group) for group in ("main", "other", "main-1")] == [3, -1, -1]


class SourceContract:
    """The contract of a sequence: its events are numbered, and a number always denotes the same event.

    Override `connect`; the sequence must hold some events of type `Sample`.
    """

    def connect(self, directory: Path) -> str | Connection:
        """Return a URI or a connector; each call must return the same, with the same events."""
        raise NotImplementedError

    def bind(self, directory: Path) -> SequenceSource:
        """Bind the source, as one process does."""
        source: Source[Any] = Source("Samples", Sample, uri=self.connect(directory), sample=lambda n: Sample("s", n))
        bound = bind_source(source, None, SourceContext())
        assert isinstance(bound, SequenceSource), "other sources are read by Spark itself, which this suite does not start"
        return bound

    def test_events_are_of_the_type(self, tmp_path: Path) -> None:
        assert _read(self.bind(tmp_path)), "the suite needs some events"
        for payload in _read(self.bind(tmp_path)):
            msgspec.json.decode(payload, type=Sample)

    def test_what_is_read_again_is_the_same_in_any_process(self, tmp_path: Path) -> None:
        here = _read(self.bind(tmp_path))
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as another:
            assert here == _read(self.bind(tmp_path)) == another.submit(_read_by, type(self), tmp_path).result()

    def test_it_may_be_read_in_any_cut(self, tmp_path: Path) -> None:
        sequence = self.bind(tmp_path).sequence
        start, end = sequence.start(), _end(self.bind(tmp_path))
        whole = sequence.read(start, end, 0.0).payloads
        for cut in range(start, end + 1):
            parts = [*sequence.read(start, cut, 0.0).payloads, *sequence.read(cut, end, 0.0).payloads]
            assert parts == whole

    def test_every_event_has_a_birth(self, tmp_path: Path) -> None:
        bound = self.bind(tmp_path)
        births = bound.sequence.read(bound.sequence.start(), _end(bound), 1.0).born
        assert len(births) == len(_read(bound))
        assert all(isinstance(int(born), int) for born in births)

    def test_what_is_not_committed_is_queued(self, tmp_path: Path) -> None:
        bound = self.bind(tmp_path)
        reckoning = bound.reckon(Position(tmp_path / "checkpoint", 0, None))
        assert reckoning.committed == 0
        assert reckoning.queued >= 0


def stage(sink: BoundSink, events: Sequence[Event]) -> list[StagedFile]:
    """Stage events for a sink, as a worker does in a micro-batch; returns the staged files."""
    app = App("contract")
    source = app.source("Samples", type(events[0]))
    app.sink(sink.files.name, source, key=sink.files.beside)
    output = FileOutput([sink.files], "0-00000")
    running = Stage(Wiring(app.topology(), 1, (sink.files,), "stop"), 0, 0, output)
    zeros = np.zeros(len(events), np.int64)
    running.route(EventBatch(source, LineageColumns.read(zeros, zeros, zeros), events=list(events)))
    rows = running.finish()
    [tally] = [row["block"] for row in rows.to_pylist() if row["hop"] == TALLY]
    return Tally.read(tally).files


def _same(found: Sequence[Any], wanted: Sequence[Sample]) -> bool:
    """Compare regardless of order, which tables and topics do not keep between keys and partitions."""
    return Counter(map(repr, found)) == Counter(map(repr, wanted))


def _refusal(sink: BoundSink) -> str:
    try:
        sink.claim("run-2", ())
    except SinkError as error:
        return str(error)
    return ""


def _end(bound: SequenceSource) -> int:
    last = bound.sequence.last()
    return bound.sequence.end(0.0) if last is None else last


def _read_by(suite: type[SourceContract], directory: Path) -> list[bytes]:
    return _read(suite().bind(directory))


def _read(bound: SequenceSource) -> list[bytes]:
    return list(bound.sequence.read(bound.sequence.start(), _end(bound), 0.0).payloads)
