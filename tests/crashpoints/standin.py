"""A stand-in for Spark: the protocol of its micro-batches, in this process and a hundred times as fast.

It keeps the same checkpoint (logs of offsets and commits, logs of the sources, versions of state), takes the same steps in the
same order, repeats after a crash what it has planned and not completed, and calls the same code of ours: the decoder of
sources, the stages, the processor of hops, and what commits a micro-batch. `test_stand_in.py` compares the two.
"""

import json
import os
import pickle
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.errors import PySparkException, UnknownException

from penstock.audit.committed import KnownPosition
from penstock.connectors.checkpoint import batches
from penstock.connectors.files.source import FileSource
from penstock.connectors.sequence import SequenceSource
from penstock.connectors.source import BoundSource
from penstock.connectors.tables import sink as table
from penstock.engine.query import clock, decode, stateful
from penstock.engine.query.compile import bucket_labels
from penstock.engine.query.follow import FollowDataSource
from penstock.engine.running import execution, microbatches, watch
from penstock.engine.running.binding import BoundGroup
from penstock.runtime.lineage import NONE
from penstock.runtime.tally import Tally
from penstock.runtime.wire import TALLY, WIRE
from penstock.storage import alone
from penstock.storage.place import path_of

PARTITIONS = 2


class Session:
    """What a driver of ours asks of a session of Spark's."""

    def __init__(self) -> None:
        self.streams = SimpleNamespace(active=[])
        self.sparkContext = SimpleNamespace(defaultParallelism=PARTITIONS)
        self._settings: dict[str, str] = {}
        self.conf = SimpleNamespace(
            get=self._settings.get, set=self._settings.__setitem__, unset=lambda name: self._settings.pop(name, None)
        )
        self.heard: Callable[[dict[str, Any]], None] = lambda progress: None
        self.paces: Mapping[str, int] = {}
        """By the name of a group, which of so many times that it is asked it takes a step."""


def stand_in() -> None:
    """Let runs of this process use a `Session`, which they are given as ``spark=``; for good."""
    alone.PATIENCE_S = 0.3
    table.AT_FIRST_S = table.PATIENCE_S = 3.0  # tries side by side share tables of notes, which one that is paused may lock
    watch.NOTED_EVERY_S = 0.05
    watch.POLL_S = watch.IDLE_S = microbatches.POLL_S = 0.0
    microbatches._compiled = _compiled
    execution._session = _session
    execution._refuse_unfit = lambda options: None
    stateful._local_directory = lambda: None


@contextmanager
def _session(binding: Any, way: Any, live: Any, steering: Any) -> Iterator[Session]:
    spark = binding.options.spark
    binding.settle_partitions(binding.layout.partitions or PARTITIONS)
    spark.heard = binding.recording.note_progress
    yield spark


def _compiled(spark: Session, group: BoundGroup, started_us: int) -> tuple[Any, Callable[..., list[Tally]], BoundGroup]:
    group = group.read_in([bound.source.name for bound in group.sources])
    query = Query(spark, group, started_us)
    return SimpleNamespace(writeStream=Writer(query)), lambda batch, number: batch(), group


class Writer:
    """Begins a query, as `DataStreamWriter` does."""

    def __init__(self, query: "Query") -> None:
        self._query = query

    def queryName(self, name: str) -> "Writer":
        self._query.name = name
        return self

    def option(self, name: str, value: str) -> "Writer":
        return self

    def trigger(self, **settings: Any) -> "Writer":
        return self

    def foreachBatch(self, commit: Callable[[Any, int], None]) -> "Writer":
        self._query.commit = commit
        return self

    def start(self) -> "Query":
        try:
            self._query.begin()
        except (OSError, RuntimeError) as error:
            raise UnknownException(str(error)) from error
        return self._query


class Query:
    """A query of a group, which takes a step whenever it is asked how it fares.

    Args:
        started_us: when the run has begun.
    """

    name: str
    commit: Callable[[Any, int], None]

    def __init__(self, spark: Session, group: BoundGroup, started_us: int) -> None:
        self._spark, self._group, self._started_us = spark, group, started_us
        self._checkpoint = group.checkpoint
        self._readers = [_reader(bound, place, self._checkpoint, started_us) for place, bound in enumerate(group.sources)]
        self._failure: Exception | None = None
        self._watermark_ms, self._before_ms = 0, 0
        self._greatest: dict[int, int] = {}
        self._running, self._asked, self._is_active = False, 0, False
        tracker = SimpleNamespace(currentWatermark=lambda: self._watermark_ms, setWatermark=self._raise)
        self._jsq = SimpleNamespace(streamingQuery=lambda: SimpleNamespace(watermarkTracker=lambda: tracker))

    # --- what a driver asks ------------------------------------------------------------------------

    @property
    def isActive(self) -> bool:
        self._step()
        return self._failure is None

    @property
    def status(self) -> dict[str, bool]:
        """As at each poll of a source, a trigger is active for a moment."""
        self._is_active = not self._is_active
        return {"isTriggerActive": self._is_active, "isDataAvailable": False}

    def exception(self) -> Exception | None:
        self._step()
        return self._failure

    def stop(self) -> None:
        if self in self._spark.streams.active:
            self._spark.streams.active.remove(self)

    def begin(self) -> None:
        """Recover from the checkpoint."""
        self._spark.streams.active.append(self)
        metadata = self._checkpoint / "metadata"
        if not metadata.exists():
            _put(metadata, json.dumps({"id": str(uuid.uuid4())}))
        planned, completed = batches(self._checkpoint, "offsets"), batches(self._checkpoint, "commits")
        self._next = planned[-1] if planned else 0
        self._planned = bool(planned) and planned[-1] not in completed
        if planned:
            about = _entry(self._checkpoint, "offsets", planned[-1])[1]
            self._watermark_ms = self._before_ms = about["batchWatermarkMs"]
            if not self._planned:
                noted = _entry(self._checkpoint, "commits", planned[-1])[1]["nextBatchWatermarkMs"]
                self._watermark_ms = max(noted, self._watermark_ms)
        self._next += bool(planned) and not self._planned

    def _raise(self, mark_ms: int) -> None:
        self._watermark_ms = mark_ms

    # --- a micro-batch -----------------------------------------------------------------------------

    def _step(self) -> None:
        if self._failure is not None or self not in self._spark.streams.active or self._running:
            return
        self._asked += 1
        if self._asked % self._spark.paces.get(self._group.group.name.partition("-")[0], 1):
            return
        self._running = True
        try:
            while self._planned or self._plan():
                self._run()
                if not self._has_closed_some:  # else a micro-batch without data follows at once
                    break
        except Exception as error:
            self._failure = PySparkException(f"{type(error).__module__}.{type(error).__qualname__}: {error}")
            self._failure.__cause__ = error
        finally:
            self._running = False

    def _offsets(self, number: int) -> list[Any]:
        if number < 0:
            return [None] * len(self._readers)
        return _entry(self._checkpoint, "offsets", number)[2]

    def _plan(self) -> bool:
        before = self._offsets(self._next - 1)
        ends = [reader.latest(offset) for reader, offset in zip(self._readers, before, strict=True)]
        if ends == before and not (self._has_closed_some and self._next):
            return False
        about = {
            "batchWatermarkMs": self._watermark_ms,
            "batchTimestampMs": time.time_ns() // 1_000_000,
            "conf": {"spark.sql.shuffle.partitions": str(PARTITIONS)},
        }
        lines = ["v1", json.dumps(about), *("-" if end is None else json.dumps(end) for end in ends)]
        _put(self._checkpoint / "offsets" / str(self._next), "\n".join(lines))
        self._planned = True
        return True

    @property
    def _has_closed_some(self) -> bool:
        """Whether the watermark has moved, and there is state that waits for it."""
        timed = any(source.event_time for source in self._group.topology.sources)
        return bool(timed and self._wiring.hops and self._watermark_ms > self._before_ms)

    def _run(self) -> None:
        number = self._next
        about = _entry(self._checkpoint, "offsets", number)[1]
        self._watermark_ms = max(self._watermark_ms, about["batchWatermarkMs"])
        self.commit(lambda: self._execute(number, about), number)
        self._advance()
        _put(self._checkpoint / "commits" / str(number), f'v1\n{{"nextBatchWatermarkMs":{self._watermark_ms}}}')
        self._before_ms = about["batchWatermarkMs"]
        self._next, self._planned = number + 1, False
        ends = self._offsets(number)
        self._spark.heard(
            {
                "id": self.name,
                "runId": self.name,
                "name": self.name,
                "batchId": number,
                "numInputRows": 0,
                "stateOperators": [],
                "timestamp": "2026-01-01T00:00:00.000Z",
                "durationMs": {"triggerExecution": 1, "addBatch": 1},
                "sources": [{"description": "", "numInputRows": 0, "startOffset": None, "endOffset": end} for end in ends],
            }
        )

    @property
    def _wiring(self) -> Any:
        return self._group.wiring.resolve()

    def _execute(self, number: int, about: dict[str, Any]) -> list[Tally]:
        wiring, now_ms = self._wiring, about["batchTimestampMs"]
        before, ends = self._offsets(number - 1), self._offsets(number)
        rows, task = [WIRE.empty_table()], count()
        for place, (reader, bound) in enumerate(zip(self._readers, self._group.sources, strict=True)):
            for part in reader.read(before[place], ends[place]):
                rows += self._decoded(next(task), bound, part, now_ms * 1000)
        table = pa.concat_tables(rows)
        for hop in range(1, wiring.hops + 1):
            table = self._hop(table, hop, number, about)
        return [Tally.read(row["block"]) for row in table.to_pylist() if row["hop"] == TALLY]

    def _decoded(self, task: int, bound: BoundSource, inputs: Iterable[pa.RecordBatch], now_us: int) -> list[pa.Table]:
        number = [source.name for source in self._wiring.topology.sources].index(bound.source.name)
        context = SimpleNamespace(partitionId=lambda: task, getLocalProperty={clock.PROPERTY: str(now_us)}.get)
        decode.TaskContext = clock.TaskContext = SimpleNamespace(get=lambda: context)
        made = [pa.Table.from_batches([batch]) for batch in decode.decoder(self._group.wiring, number, bound)(inputs)]
        times = [time for table in made for time in table["time"].to_pylist() if time != NONE]
        if times and self._wiring.topology.sources[number].event_time is not None:
            self._greatest[number] = max([*times, self._greatest.get(number, NONE)])
        return made

    def _advance(self) -> None:
        """The watermark: the least over the sources, and never back."""
        marks = []
        for number, source in enumerate(self._wiring.topology.sources):
            if source.event_time is not None:
                greatest = self._greatest.get(number)
                marks.append(-1 if greatest is None else greatest // 1000 - round(source.event_time.lateness * 1000))
        if marks and min(marks) > self._watermark_ms:
            self._watermark_ms = min(marks)

    def _hop(self, table: pa.Table, hop: int, number: int, about: dict[str, Any]) -> pa.Table:
        labels = bucket_labels(self._wiring.partitions)
        mode = stateful.time_mode_of(self._wiring.topology, hop)
        times = SimpleNamespace(
            getCurrentProcessingTimeInMs=lambda: about["batchTimestampMs"] if mode == "ProcessingTime" else -1,
            getCurrentWatermarkInMs=lambda: about["batchWatermarkMs"],
        )
        made = [WIRE.empty_table()]
        frame = table.to_pandas()
        for bucket, label in enumerate(labels):
            place = self._checkpoint / "state" / str(hop - 1) / str(bucket)
            state = State.read(place, number)
            processor = stateful.HopProcessor(self._group.wiring, hop, tuple(labels))
            processor.init(state)
            mine = frame[frame["bucket"] == bucket].assign(label=label)
            results: list[pd.DataFrame] = []
            if len(mine):
                results += processor.handleInputRows((label,), iter([mine]), times)
            until = about["batchTimestampMs"] if mode == "ProcessingTime" else about["batchWatermarkMs"]
            for due in sorted(state.timers):
                if due <= until and mode != "None":
                    results += processor.handleExpiredTimer((label,), times, due)
                    state.timers.discard(due)
            state.write(place, number + 1)
            made += [pa.Table.from_pandas(one[WIRE.names], WIRE, preserve_index=False) for one in results]
        return pa.concat_tables(made)


class State:
    """What Spark hands a processor: the state of a partition, as of a version."""

    def __init__(self, maps: dict[str, dict[Any, Any]], timers: set[int]) -> None:
        self._maps, self.timers = maps, timers

    @classmethod
    def read(cls, place: Path, version: int) -> "State":
        if version == 0:
            return cls({}, set())
        maps, timers = pickle.loads((place / f"{version}.zip").read_bytes())
        return cls(maps, timers)

    def write(self, place: Path, version: int) -> None:
        _put(place / f"{version}.zip", pickle.dumps((self._maps, self.timers)), once=False)

    def getMapState(self, name: str, key: str, value: str) -> Any:
        kept = self._maps.setdefault(name, {})
        return SimpleNamespace(getValue=kept.get, updateValue=kept.__setitem__)

    def getValueState(self, name: str, value: str) -> Any:
        kept = self._maps.setdefault(name, {})
        return SimpleNamespace(
            get=lambda: kept.get("value"), clear=lambda: kept.pop("value", None), update=lambda new: kept.update(value=new)
        )

    def registerTimer(self, due: int) -> None:
        self.timers.add(due)

    def deleteTimer(self, due: int) -> None:
        self.timers.discard(due)


# --- sources --------------------------------------------------------------------------------------------


def _reader(bound: BoundSource, place: int, checkpoint: Path, started_us: int) -> Any:
    if isinstance(bound, FileSource):
        return FilesReader(bound, place, checkpoint, started_us)
    if isinstance(bound, SequenceSource):
        return SequenceReader(bound, started_us)
    return TopicReader(bound, place, checkpoint)


class FilesReader:
    """As Spark's source of files: each file is taken in once, and its log says with which entry."""

    def __init__(self, bound: FileSource, place: int, checkpoint: Path, started_us: int) -> None:
        self._bound, self._started_us = bound, started_us
        self._log = checkpoint / "sources" / str(place)
        self._position = KnownPosition(checkpoint, place, 0, {"logOffset": 1 << 40})
        self._most = int(bound.reading(SimpleNamespace(parallelism=1), started_us).options.get("maxFilesPerTrigger", 1 << 30))

    def latest(self, offset: Any) -> Any:
        taken = self._position.files()
        last = max(taken.values(), default=-1)
        new = [file for file in self._bound._files() if str(file) not in taken]
        new.sort(key=lambda file: (file.stat().st_mtime_ns // 1_000_000, str(file)))
        if new:
            last += 1
            lines = [
                json.dumps({"path": _uri(file), "timestamp": file.stat().st_mtime_ns // 1_000_000, "batchId": last})
                for file in new[: self._most]
            ]
            _put(self._log / str(last), "\n".join(["v1", *lines]))
        return None if last < 0 else {"logOffset": last}

    def read(self, before: Any, end: Any) -> list[Iterable[pa.RecordBatch]]:
        return [self._files(before, end)]

    def _files(self, before: Any, end: Any) -> Iterator[pa.RecordBatch]:
        first, last = (-1 if one is None else one["logOffset"] for one in (before, end))
        for name in sorted(file for file, number in self._position.files().items() if first < number <= last):
            path = path_of(name)
            written = path.stat().st_mtime_ns // 1_000_000
            columns: dict[str, Any] = {"path": [name]}
            if self._bound.files is None:
                columns = {"payload": path.read_bytes().splitlines()}
            rows = len(next(iter(columns.values())))
            yield pa.RecordBatch.from_pydict(
                {**columns, "born": np.full(rows, self._started_us), "major": np.full(rows, written)}
            )


def _uri(file: Path) -> str:
    """A file as Spark writes it: that of a store by its own URI."""
    return str(file) if "://" in str(file) else f"file://{file}"


class SequenceReader:
    """Our own reader of sequences, which Spark would ask."""

    def __init__(self, bound: SequenceSource, started_us: int) -> None:
        options = dict(bound.reading(SimpleNamespace(parallelism=PARTITIONS), started_us).options)
        self._reader = FollowDataSource(options).streamReader(None)

    def latest(self, offset: Any) -> Any:
        start = self._reader.initialOffset() if offset is None else offset
        end = self._reader.latestOffset(start, self._reader.getDefaultReadLimit())
        return offset if end == start else end

    def read(self, before: Any, end: Any) -> list[Iterable[pa.RecordBatch]]:
        if end is None or before == end:
            return []
        start = self._reader.initialOffset() if before is None else before
        return [self._rows(part) for part in self._reader.partitions(start, end)]

    def _rows(self, part: Any) -> Iterator[pa.RecordBatch]:
        for rows in self._reader.read(part):
            yield rows.append_column("major", pa.array(np.zeros(rows.num_rows, np.int64)))


class TopicReader:
    """As Spark's source of Kafka: offsets by partition."""

    def __init__(self, bound: Any, place: int, checkpoint: Path) -> None:
        self._bound, self._checkpoint, self._place = bound, checkpoint, place

    def latest(self, offset: Any) -> Any:
        log, topic = self._checkpoint / "sources" / str(self._place) / "0", self._bound.place.topic
        bounds = self._bound.topic.bounds()
        if not log.exists():
            _put(log, f"v1\n{json.dumps({topic: {str(number): low for number, (low, _) in bounds.items()}})}")
        left, ends = self._bound._admission.max_rows, {}
        for number, (low, high) in sorted(bounds.items()):
            begin = low if offset is None else offset[topic][str(number)]
            ends[str(number)] = min(high, begin + left)
            left -= ends[str(number)] - begin
        return {topic: ends}

    def read(self, before: Any, end: Any) -> list[Iterable[pa.RecordBatch]]:
        return [self._messages(before, end)]

    def _messages(self, before: Any, end: Any) -> Iterator[pa.RecordBatch]:
        after, upto = (KnownPosition(self._checkpoint, self._place, 0, offset) for offset in (before, end))
        for part in self._bound.again(after, upto):
            if len(part.rows):
                yield pa.RecordBatch.from_pydict(
                    {"payload": part.rows, "born": part.born, "major": part.major, "minor": part.minor}
                )


# --- the checkpoint -------------------------------------------------------------------------------------


def _put(path: Path, content: str | bytes, *, once: bool = True) -> None:
    """As Spark's manager of checkpoints does: written under another name, and renamed.

    Args:
        once: refuse where another has written it: Spark does so for all of its logs.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{uuid.uuid4()}.tmp")
    draft.write_bytes(content.encode() if isinstance(content, str) else content)
    if not once:
        draft.rename(path)
        return
    try:
        os.link(draft, path)
    except FileExistsError:
        raise RuntimeError(f"Concurrent update to the log. Multiple streaming jobs detected for {path.name}") from None
    draft.unlink()


def _entry(checkpoint: Path, log: str, number: int) -> tuple[str, Mapping[str, Any], list[Any]]:
    version, about, *offsets = (checkpoint / log / str(number)).read_text().splitlines()
    return version, json.loads(about), [None if line == "-" else json.loads(line) for line in offsets]
