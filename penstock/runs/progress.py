"""What Spark reports of each micro-batch: the newest reports one by one, and the sums of those before."""

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from penstock.storage import journal


class Sums(msgspec.Struct):
    """What the report of a run needs of all progresses."""

    late: int = 0
    """Rows that Spark has dropped as late in query elements."""
    busy: dict[str, tuple[float, int]] = {}
    """By query, the milliseconds of all micro-batches with input, and their rows."""

    def add(self, progresses: Iterable[dict[str, Any]]) -> None:
        """Add progresses, or the sums of earlier ones; of a micro-batch that was repeated the last one's late rows count."""
        late: dict[tuple[str, int], int] = {}
        for one in progresses:
            if "sums" in one:
                earlier = msgspec.convert(one["sums"], Sums)
                self.late += earlier.late
                for name, (time_ms, rows) in earlier.busy.items():
                    self._work(name, time_ms, rows)
                continue
            operators = one.get("stateOperators") or ()
            late[one.get("id", ""), one.get("batchId", 0)] = sum(
                operator.get("numRowsDroppedByWatermark", 0) for operator in operators
            )
            if rows := one.get("numInputRows", 0):
                self._work(one.get("name") or "", one["durationMs"].get("triggerExecution", 0), rows)
        self.late += sum(late.values())

    @property
    def busiest(self) -> tuple[float, int]:
        """The time and the rows of the query that was busy longest; hops between groups do not count twice."""
        return max(self.busy.values(), key=lambda busy: busy[0], default=(0.0, 0))

    def _work(self, name: str, time_ms: float, rows: int) -> None:
        before_ms, before = self.busy.get(name, (0.0, 0))
        self.busy[name] = (before_ms + time_ms, before + rows)


class ProgressFile:
    """The file of a run's progresses, a JSON object a line; the first may be the sums of those that were dropped.

    Parameters
    ----------
    keep: how many progresses are kept one by one.
    """

    def __init__(self, path: Path, keep: int) -> None:
        self._journal = journal.opened(path, keep, _summed, synced=False)

    def note(self, progress: dict[str, Any]) -> None:
        """Keep a progress."""
        self._journal.append(json.dumps(progress, default=str).encode())

    def sums(self) -> Sums:
        """Of all progresses there have been; a torn line is left out."""
        sums = Sums()
        sums.add(_parsed(self._journal.lines()))
        return sums


def _summed(lines: Iterable[bytes]) -> bytes:
    sums = Sums()
    sums.add(_parsed(lines))
    return json.dumps({"sums": msgspec.to_builtins(sums)}).encode()


def _parsed(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        with suppress(ValueError):
            yield json.loads(line)
