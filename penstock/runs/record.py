"""One progress of a query, as Spark reports it after a micro-batch, from Spark 3.4 on."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from penstock.connectors.lag import Positions, Waiting, behind, positions_of


@dataclass(frozen=True)
class SourceRecord:
    """What a progress says of one source; positions are None where its offsets do not count rows."""

    description: str
    rows: int
    start: Positions | None
    end: Positions | None
    latest: Positions | None
    """The end of the source when the micro-batch was planned."""
    outstanding: float | None = None
    """Of sources that count no rows that wait: files, or bytes, that do."""

    @property
    def taken(self) -> int:
        """Rows in the micro-batch.

        Rows of a batch that is evaluated twice count twice, and some offsets of a compacted topic hold nothing, so the smaller
        figure stands; but some sources count no rows at all, and then the offsets do.
        """
        if self.start is None or self.end is None:
            return self.rows
        return min(self.rows or sys.maxsize, _difference(self.end, self.start))

    @property
    def lag(self) -> Waiting | None:
        """Rows that were there and were left for later, at most, and at which partitions; None where that is not said."""
        return behind(self.end, self.latest)

    @property
    def waiting(self) -> int | None:
        """The rows of that."""
        return None if self.lag is None else self.lag.rows


@dataclass(frozen=True)
class Record:
    """A progress.

    Parameters
    ----------
    query, run: Spark's identifiers of the query, which stays from start to start, and of this start.
    started: when the trigger began, seconds since the epoch.
    phases: seconds by the names of ``durationMs``.
    keys: keys whose state was written, or None.
    state_rows: rows in the state of all operators. late: rows that Spark dropped as late.
    partitions: of the stateful operators, or None.
    collected: seconds that all tasks of the session have taken until then, and those of them that were garbage collection; None
        where that was not kept.
    delivered: seconds that each sink took, of a run of Penstock.
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
        """Whether there was a micro-batch: Spark reports now and then that there was none."""
        return "addBatch" in self.phases

    @property
    def taken(self) -> int:
        """Rows of all sources."""
        return sum(source.taken for source in self.sources)

    @property
    def duration(self) -> float:
        """Seconds from the trigger's start to its end."""
        return self.phases["triggerExecution"]

    @property
    def planning(self) -> float:
        """Seconds before it is fixed which rows the micro-batch takes: a file source lists its files first of all."""
        listed = self.sources and all(source.description.startswith("FileStreamSource") for source in self.sources)
        return 0.0 if listed else self.phases.get("latestOffset", 0.0)

    @property
    def closing(self) -> float:
        """Seconds after the sink is done: the batch's commit and what the phases leave open."""
        open_ended = self.duration - sum(value for name, value in self.phases.items() if name != "triggerExecution")
        return max(0.0, self.phases.get("commitOffsets", 0.0) + max(0.0, open_ended))


def record_of(progress: Mapping[str, Any]) -> Record | None:
    """The record that a progress amounts to; None if it is none."""
    try:
        phases = {name: float(value) / 1e3 for name, value in (progress.get("durationMs") or {}).items()}
        if "triggerExecution" not in phases:
            phases["triggerExecution"] = float(progress["batchDuration"]) / 1e3
        operators = progress.get("stateOperators") or ()
        updated = [int(operator.get("numRowsUpdated", 0)) for operator in operators]
        return Record(
            query=str(progress.get("id", "")),
            run=str(progress.get("runId", "")),
            name=progress.get("name"),
            number=int(progress["batchId"]),
            started=datetime.fromisoformat(str(progress["timestamp"]).replace("Z", "+00:00")).timestamp(),
            phases=phases,
            rows=int(progress.get("numInputRows") or sum(_rows(source) for source in progress["sources"])),
            sources=tuple(_source(source) for source in progress["sources"]),
            keys=max(updated) if updated else None,
            state_rows=sum(int(operator.get("numRowsTotal", 0)) for operator in operators),
            late=sum(int(operator.get("numRowsDroppedByWatermark", 0)) for operator in operators),
            partitions=max((int(operator.get("numShufflePartitions", 0)) for operator in operators), default=None),
            collected=_collected(progress.get("executors")),
            delivered=dict(progress.get("delivered") or {}),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _collected(executors: Mapping[str, Any] | None) -> tuple[float, float] | None:
    return (executors["tasksMs"] / 1e3, executors["collectionMs"] / 1e3) if executors else None


def idle_of(event: Mapping[str, Any]) -> Record | None:
    """The record of an event that says that a query had nothing to do; None if it is none."""
    try:
        started = datetime.fromisoformat(str(event["timestamp"]).replace("Z", "+00:00")).timestamp()
        return Record(
            str(event["id"]), str(event["runId"]), None, -1, started, {"triggerExecution": 0.0}, 0, (), None, 0, 0, None
        )
    except (KeyError, ValueError):
        return None


OUTSTANDING = ("numFilesOutstanding", "numBytesOutstanding")
"""What sources of tables and of files in stores say of what waits."""


def _rows(source: Mapping[str, Any]) -> int:
    return max(0, int(source.get("numInputRows") or 0))  # -1 where Spark does not know


def _source(source: Mapping[str, Any]) -> SourceRecord:
    start, end, latest = (positions_of(source.get(name)) for name in ("startOffset", "endOffset", "latestOffset"))
    if start is None and end is not None:
        start = {} if source.get("startOffset") is None else None
    metrics = source.get("metrics") or {}
    left = next((metrics[name] for name in OUTSTANDING if name in metrics), None)
    description = str(source.get("description", ""))
    return SourceRecord(description, _rows(source), start, end, latest, None if left is None else float(left))


def _difference(later: Positions, earlier: Positions) -> int:
    return sum(max(0, position - earlier.get(partition, 0)) for partition, position in later.items())
