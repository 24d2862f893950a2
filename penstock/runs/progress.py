"""Spark's progress reports on micro-batches: the newest ones as they are, and the sums of those before."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from penstock.storage import journal

RATES = ("inputRowsPerSecond", "processedRowsPerSecond")


class Noted(NamedTuple):
    """What a run has noted of a micro-batch, and Spark's progress report does not say.

    Args:
        rows: how many rows were read, by source, for sources of which Spark counts the files.
        delivered: the seconds that each sink took.
    """

    rows: Mapping[str, int] = {}
    delivered: Mapping[str, float] = {}

    def added_to(self, progress: Mapping[str, Any], order: Iterable[str]) -> dict[str, Any]:
        """Return a progress report with this in it.

        Args:
            order: the names of the query's sources, in the order in which it reads them.
        """
        sources = [
            _with_rows(report, self.rows[name]) if report and name in self.rows else report
            for name, report in zip_longest(order, progress.get("sources") or ())
        ]
        told = {**progress, "sources": [report for report in sources if report is not None]}
        if self.rows:
            told = _with_rows(told, sum(report["numInputRows"] for report in told["sources"]))
        return {**told, "delivered": dict(self.delivered)} if self.delivered else told


def _with_rows(report: Mapping[str, Any], rows: int) -> dict[str, Any]:
    """Return a report of a query or of one of its sources with another number of rows, and with the rates that follow."""
    counted = report["numInputRows"]
    rates = {name: report[name] * rows / counted for name in RATES if report.get(name) and counted > 0}
    return {**report, "numInputRows": rows, **rates}


class ProgressSums(msgspec.Struct):
    """Sums over progress reports, for the report of a run."""

    late: int = 0
    """Rows that Spark has dropped as late in query elements."""
    busy: dict[str, tuple[float, int]] = {}
    """By query: the total duration in milliseconds, and the rows, of all micro-batches with input."""

    def add(self, progresses: Iterable[dict[str, Any]]) -> None:
        """Add progress reports, or sums of them. If a micro-batch was repeated, only its last report's late rows count."""
        late: dict[tuple[str, int], int] = {}
        for progress in progresses:
            if "sums" in progress:
                earlier = msgspec.convert(progress["sums"], ProgressSums)
                self.late += earlier.late
                for name, (time_ms, rows) in earlier.busy.items():
                    self._work(name, time_ms, rows)
                continue
            operators = progress.get("stateOperators") or ()
            late[progress.get("id", ""), progress.get("batchId", 0)] = sum(
                operator.get("numRowsDroppedByWatermark", 0) for operator in operators
            )
            if rows := progress.get("numInputRows", 0):
                self._work(progress.get("name") or "", progress["durationMs"].get("triggerExecution", 0), rows)
        self.late += sum(late.values())

    @property
    def busiest(self) -> tuple[float, int]:
        """The milliseconds and rows of the query with the longest total; one query, so that hops do not count twice."""
        return max(self.busy.values(), key=lambda busy: busy[0], default=(0.0, 0))

    def _work(self, name: str, time_ms: float, rows: int) -> None:
        before_ms, rows_before = self.busy.get(name, (0.0, 0))
        self.busy[name] = (before_ms + time_ms, rows_before + rows)


class ProgressFile:
    """The file of a run's progress reports, one JSON object a line; the first may be the sums of reports that were dropped.

    Args:
        keep: how many of the newest reports are not summed up.
    """

    def __init__(self, path: Path, keep: int) -> None:
        self._journal = journal.opened(path, keep, _summed, synced=False)

    def note(self, progress: dict[str, Any]) -> None:
        """Append a progress report."""
        self._journal.append(json.dumps(progress, default=str).encode())

    def sums(self) -> ProgressSums:
        """Return the sums over all progress reports of the run; a torn line is left out."""
        sums = ProgressSums()
        sums.add(_parsed(self._journal.lines()))
        return sums


def _summed(lines: Iterable[bytes]) -> bytes:
    sums = ProgressSums()
    sums.add(_parsed(lines))
    return json.dumps({"sums": msgspec.to_builtins(sums)}).encode()


def _parsed(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        with suppress(ValueError):
            yield json.loads(line)
