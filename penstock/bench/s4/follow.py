"""The committed micro-batches of a run, read as it goes on, and its throughput, latency and recovery from them."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from penstock.runs.batches import BatchRecord
from penstock.runs.tail import FileTail
from penstock.runtime.histogram import Histogram

SOURCE = "RawWords"


@dataclass
class LedgerFollower:
    """Reads the records of committed micro-batches while the run goes on."""

    path: Path
    records: list[BatchRecord] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._tail = FileTail(self.path)

    def look(self) -> int:
        """Read new records, and return the number of words processed so far."""
        lines = self._tail.lines(self.records.clear)
        self.records += [msgspec.json.decode(line, type=BatchRecord) for line in lines]
        return sum(map(rows_of, self.records))


def rows_of(record: BatchRecord) -> int:
    """Number of words in a micro-batch."""
    return record.sources[SOURCE].rows if SOURCE in record.sources else 0


@dataclass(frozen=True)
class Course:
    """The micro-batches with measured words: commit times (seconds), cumulative numbers of words, and records."""

    times: np.ndarray[Any, np.dtype[np.float64]]
    words: np.ndarray[Any, np.dtype[np.float64]]
    records: tuple[BatchRecord, ...]

    @classmethod
    def of(cls, records: list[BatchRecord], skipped: int) -> "Course":
        """Make the course without the first ``skipped`` words, those of the warm-up."""
        with_words = [record for record in records if rows_of(record)]
        words = np.cumsum([rows_of(record) for record in with_words]) - skipped
        measured = words > 0
        chosen = tuple(record for record, is_measured in zip(with_words, measured, strict=True) if is_measured)
        return cls(np.array([record.committed_us / 1e6 for record in chosen]), words[measured].astype(float), chosen)

    def by(self, time: float) -> float:
        """Number of words processed until a time."""
        place = int(np.searchsorted(self.times, time, side="right"))
        return float(self.words[place - 1]) if place else 0.0

    def throughput(self, since: float, until: float) -> float:
        """Words committed per second between two times; 0 if they are not in order."""
        return (self.by(until) - self.by(since)) / (until - since) if until > since else 0.0

    def latency(self) -> dict[str, float]:
        """Mean, quantiles and maximum of the seconds from a word's due time to its micro-batch's commit."""
        total = Histogram()
        for record in self.records:
            total.merge(record.latency_ms)
        if not total.counts:
            return {}
        quantiles = {name: (total.quantile(p) or 0.0) / 1e3 for name, p in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))}
        return {"mean": (total.mean or 0.0) / 1e3, **quantiles, "max": total.greatest / 1e3}

    def recovered(self, struck: float, began: float, rate: float, count: int) -> float:
        """Seconds from a fault until no more words wait than before it, or until the end if that never happens.

        Args:
            struck: time of the fault.
            began, rate, count: start, words per second and number of words of the schedule.
        """
        waiting = np.minimum(count, rate * (self.times - began)) - self.words
        before = waiting[self.times <= struck]
        usual = float(before.max()) if len(before) else 0.0
        later = self.times > struck
        settled = later & (waiting <= max(usual, 1.0))
        # The first commit after the fault has words from before it, when the pause has not yet made words wait: skip it.
        settled[np.flatnonzero(later)[:1]] = False
        chosen = np.flatnonzero(settled)
        last = float(self.times[chosen[0]] if len(chosen) else self.times[-1]) if len(self.times) else struck
        return last - struck
