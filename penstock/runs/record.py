"""A query's progress report, as Spark makes one after each micro-batch (from Spark 3.4 on), parsed."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from penstock.connectors.lag import Positions, Waiting, behind, positions_of


@dataclass(frozen=True)
class SourceRecord:
    """The part of a progress report on one source. Positions are None where the source's offsets do not count rows."""

    description: str
    rows: int
    start: Positions | None
    end: Positions | None
    latest: Positions | None
    """The end of the source when the micro-batch was planned."""
    outstanding: float | None = None
    """Files or bytes that wait, for sources that do not report how many rows do."""

    @property
    def taken(self) -> int:
        """The number of rows in the micro-batch.

        Spark's count is too large if the batch was evaluated twice, and the difference of the offsets is if a compacted topic
        has gaps, so this is the smaller of both. For sources that count no rows, it is the difference of the offsets.
        """
        if self.start is None or self.end is None or not (self.start or self.rows):  # or it began at the end of a topic
            return self.rows
        return min(self.rows or sys.maxsize, _difference(self.end, self.start))

    @property
    def lag(self) -> Waiting | None:
        """At most how many rows were there and left for later, in all and by partition; None where Spark does not report it."""
        return behind(self.end, self.latest)

    @property
    def waiting(self) -> int | None:
        """The total number of rows of `lag`; None where Spark does not report it."""
        return None if self.lag is None else self.lag.rows


@dataclass(frozen=True)
class Record:
    """A progress report of one query on one micro-batch.

    Args:
        query, run: Spark's identifiers of the query, which stays the same when it is restarted, and of this start.
        started: when the trigger began, in seconds since the epoch.
        phases: duration of each phase in seconds, by Spark's names in ``durationMs``.
        keys: number of keys whose state was written; None without stateful operators.
        state_rows: rows in the state of all operators.
        late: rows that Spark dropped as late.
        partitions: number of partitions of the stateful operators; None without any.
        collected: seconds that all tasks of the session have taken so far, and the part of that in garbage collection; None
            where it was not recorded.
        delivered: in a run of Penstock, the seconds that each sink took.
    """

    query: str
    run: str
    name: str | None
    number: int
    started: float
    phases: Mapping[str, float]
    rows: int
    sources: tuple[SourceRecord, ...]
    keys: int | None
    state_rows: int
    late: int
    partitions: int | None
    collected: tuple[float, float] | None = None
    delivered: Mapping[str, float] = field(default_factory=dict)

    @property
    def ran(self) -> bool:
        """Whether there was a micro-batch: Spark also reports now and then while a query is idle."""
        return "addBatch" in self.phases or self.taken > 0

    @property
    def taken(self) -> int:
        """The number of rows taken from all sources."""
        return sum(source.taken for source in self.sources)

    @property
    def duration(self) -> float:
        """Seconds from the trigger's start to its end."""
        return self.phases["triggerExecution"]

    @property
    def planning(self) -> float:
        """Seconds until the micro-batch's rows are fixed; 0 if all sources are of files, listed at the very beginning."""
        listed = self.sources and all(source.description.startswith("FileStreamSource") for source in self.sources)
        return 0.0 if listed else self.phases.get("latestOffset", 0.0)

    @property
    def closing(self) -> float:
        """Seconds from the end of the sink's work: the commit, and the time that no phase accounts for."""
        if "addBatch" not in self.phases:
            return 0.0
        open_ended = self.duration - sum(value for name, value in self.phases.items() if name != "triggerExecution")
        return max(0.0, self.phases.get("commitOffsets", 0.0) + max(0.0, open_ended))


def record_of(progress: Mapping[str, Any]) -> Record | None:
    """Parse a progress report; None if it is not one of a micro-batch."""
    try:
        phases = {name: float(value) / 1e3 for name, value in (progress.get("durationMs") or {}).items()}
        if "triggerExecution" not in phases:
            phases["triggerExecution"] = float(progress["batchDuration"]) / 1e3
        operators = progress.get("stateOperators") or ()
        updated = [int(operator.get("numRowsUpdated", 0)) for operator in operators]
        sources = tuple(map(_source, progress["sources"]))
        rows = _whole(progress.get("numInputRows")) or sum(source.rows for source in sources)
        if rows > 0 and not any(source.taken for source in sources) and all(source.end is None for source in sources):
            sources = (replace(sources[0], rows=rows), *sources[1:])  # Spark counted the rows of all sources alone
        return Record(
            query=str(progress.get("id", "")),
            run=str(progress.get("runId", "")),
            name=None if progress.get("name") is None else str(progress["name"]),
            number=int(progress["batchId"]),
            started=_moment(progress["timestamp"]),
            phases=phases,
            rows=rows,
            sources=sources,
            keys=max(updated) if updated else None,
            state_rows=sum(int(operator.get("numRowsTotal", 0)) for operator in operators),
            late=sum(int(operator.get("numRowsDroppedByWatermark", 0)) for operator in operators),
            partitions=max((int(operator.get("numShufflePartitions", 0)) for operator in operators), default=None),
            collected=_collected(progress.get("executors")),
            delivered=dict(progress.get("delivered") or {}),
        )
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError):
        return None


def _moment(timestamp: Any) -> float:
    """Seconds since the epoch of a time as text, or as a number of seconds, milliseconds, microseconds or nanoseconds since the
    epoch, which some exports make of it; which of these it is, its size tells.
    """
    if isinstance(timestamp, int | float):
        return float(timestamp) / next((unit for unit in (1, 1e3, 1e6) if abs(timestamp) < 1e11 * unit), 1e9)
    return datetime.fromisoformat(str(timestamp).replace("Z", "+00:00")).timestamp()


def _collected(executors: Mapping[str, Any] | None) -> tuple[float, float] | None:
    return (executors["tasksMs"] / 1e3, executors["collectionMs"] / 1e3) if executors else None


def idle_of(event: Mapping[str, Any]) -> Record | None:
    """Make a record, with number -1, of Spark's event that a query is idle; None if it is not such an event."""
    try:
        started = _moment(event["timestamp"])
        return Record(
            str(event["id"]), str(event["runId"]), None, -1, started, {"triggerExecution": 0.0}, 0, (), None, 0, 0, None
        )
    except (KeyError, ValueError, OverflowError):
        return None


OUTSTANDING = ("numFilesOutstanding", "numBytesOutstanding")
"""Metrics in which sources of tables, and of files in stores, report how much waits."""


MOST_ROWS = 1 << 63


def _whole(count: Any) -> int:
    number = float(count or 0)  # some exports make texts of numbers
    if number > MOST_ROWS:
        raise OverflowError(f"{number:g} rows")
    return max(0, int(number))  # -1 where Spark does not know


def _source(source: Mapping[str, Any]) -> SourceRecord:
    start, end, latest = (positions_of(source.get(name)) for name in ("startOffset", "endOffset", "latestOffset"))
    if start is None and end is not None:
        start = {} if source.get("startOffset") is None else None
    description = str(source.get("description", ""))
    return SourceRecord(
        description, _whole(source.get("numInputRows")), start, end, latest, _outstanding(source.get("metrics"))
    )


def _outstanding(metrics: Any) -> float | None:
    """What a source's metrics say of files or bytes that wait; None where they do not, or say no number."""
    named = [metrics[name] for name in OUTSTANDING if name in metrics] if isinstance(metrics, dict) else []
    try:
        return float(named[0]) if named else None
    except (TypeError, ValueError):
        return None


def _difference(later: Positions, earlier: Positions) -> int:
    return sum(max(0, position - earlier.get(partition, 0)) for partition, position in later.items())
