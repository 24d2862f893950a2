"""A run, followed by what it writes into its directory: without Spark, and the same whether it is on or over."""

import json
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from penstock.connectors.lag import Waiting
from penstock.errors import SourceError
from penstock.runs.batches import BatchRecord
from penstock.runs.decisions import Decision
from penstock.runs.files import DECISIONS, MOVES, PROGRESS, STARTS, ledger_of
from penstock.runs.layout import Former
from penstock.runs.manifest import Manifest, manifest_of
from penstock.runs.moves import MoveRecord
from penstock.runs.overview import state_of
from penstock.runs.record import Record, SourceRecord, record_of
from penstock.runs.report import Report, report_of_run
from penstock.runs.starts import Start
from penstock.runs.tail import Tail
from penstock.runs.totals import Totals
from penstock.runtime.histogram import Histogram

KEPT = 1000
"""Micro-batches of each group that are remembered: what the page shows, and models are fitted to."""


@dataclass
class GroupSeen:
    """A group's micro-batches."""

    external: frozenset[str]
    handed_on: frozenset[str]
    tail: Tail
    totals: Totals = field(default_factory=Totals)
    records: deque[BatchRecord] = field(default_factory=lambda: deque(maxlen=KEPT))
    _quantiles: dict[tuple[int, int], list[float | None]] = field(default_factory=dict)

    def forget(self) -> None:
        """Begin anew: its ledger was replaced, which happens when its oldest records become one."""
        self.totals = Totals()
        self.records.clear()

    def take(self, record: BatchRecord) -> None:
        """Take in a record."""
        if not record.moved and not record.summed:
            self.records.append(record)
        self.totals.add(record, self.external, self.handed_on)

    def quantiles(self, part: Sequence[BatchRecord]) -> list[float | None]:
        """p50, p95 and p99 of the latency of successive micro-batches in seconds; worked out once."""
        span = (part[0].batch, part[-1].batch)
        if span not in self._quantiles:
            if len(self._quantiles) > 2 * KEPT:
                self._quantiles.clear()
            latency = Histogram()
            for record in part:
                latency.merge(record.latency_ms)
            found = [latency.quantile(p) for p in (0.5, 0.95, 0.99)]
            self._quantiles[span] = [None if value is None else value / 1e3 for value in found]
        return self._quantiles[span]


class Follower:
    """What a run has written, read on from where the last look ended.

    Raises
    ------
    SourceError: it is not the directory of a run.
    """

    def __init__(self, run: Path) -> None:
        self.run = run
        self.totals = Totals()
        self.progress: deque[Record] = deque(maxlen=4 * KEPT)
        self.starts: list[Start] = []
        self.decisions: list[Decision] = []
        self.moves: list[MoveRecord] = []
        self.groups: dict[str, GroupSeen] = {}
        self._former: set[str] = set()
        self._decode = msgspec.json.Decoder(BatchRecord).decode
        self._tails = {name: Tail(run / name) for name in (PROGRESS, STARTS, DECISIONS, MOVES)}
        self._takers: dict[str, tuple[Callable[[bytes], None], Callable[[], None]]] = {
            PROGRESS: (self._take_progress, self.progress.clear),
            STARTS: (lambda line: self.starts.append(msgspec.json.decode(line, type=Start)), self.starts.clear),
            MOVES: (lambda line: self.moves.append(msgspec.json.decode(line, type=MoveRecord)), self.moves.clear),
            DECISIONS: (lambda line: self.decisions.append(msgspec.json.decode(line, type=Decision)), self.decisions.clear),
        }
        self.manifest: Manifest = manifest_of(run)
        self.report: Report | None = None
        self._find_groups()
        self.read()

    def read(self) -> bool:
        """Take in what is new; whether there was anything.

        Raises
        ------
        SourceError: the run is gone.
        """
        manifest = manifest_of(self.run)
        if manifest.discarding:  # the files of the run before are being removed
            return False
        news = bool(manifest != self.manifest)
        self.manifest = manifest
        if news:
            self._find_groups()
        counted = False
        for seen in self.groups.values():
            for line in seen.tail.lines(seen.forget):
                with suppress(msgspec.DecodeError):
                    seen.take(self._decode(line))
                    counted = news = True
        if counted:
            self.totals = Totals()
            for seen in self.groups.values():
                self.totals.merge(seen.totals)
        for name, (take, forget) in self._takers.items():
            for line in self._tails[name].lines(forget):
                with suppress(ValueError):  # a torn line, or another version's
                    take(line)
                    news = True
        with suppress(OSError):
            report = report_of_run(self.run)
            news, self.report = news or report != self.report, report
        return news

    def _take_progress(self, line: bytes) -> None:
        one = json.loads(line)
        record = record_of(one) if "batchId" in one else None
        if record is not None:
            self.progress.append(record)

    @property
    def is_another(self) -> bool:
        """Whether the directory holds another run by now, which was started afresh."""
        with suppress(SourceError):
            manifest = manifest_of(self.run)
            return not manifest.discarding and manifest.run != self.manifest.run
        return False

    @property
    def state(self) -> str:
        """``running``, ``stopped`` or ``ended``."""
        return state_of(self.run, self.manifest)

    @property
    def present(self) -> list[str]:
        """The groups that run now."""
        return [name for name in self.groups if name not in self._former]

    def told(self, last: int = 1) -> dict[str, list[SourceRecord]]:
        """What Spark last said of each source and hop, the newest last.

        Parameters
        ----------
        last: of so many micro-batches.
        """
        orders = self.manifest.orders
        by_query: dict[str | None, deque[Record]] = {name: deque(maxlen=last) for name in self.present}
        for record in self.progress:
            if record.sources and record.name in by_query:
                by_query[record.name].append(record)
        return {
            source: list(several)
            for name in self.present
            for source, several in zip(
                orders.get(name, ()), zip(*(one.sources for one in by_query[name]), strict=False), strict=False
            )
        }

    def waiting(self) -> dict[str, Waiting]:
        """What waits at each source and hop, where it tells, as of its query's last micro-batch."""
        return {name: waiting for name, several in self.told().items() if (waiting := several[-1].lag) is not None}

    def _find_groups(self) -> None:
        former = self.manifest.layout.former
        self._former = {one.name for one in former}
        present = [Former(name, reads.sources, reads.handed_on) for name, reads in self.manifest.reads.items()]
        for group in (*former, *present):
            if group.name not in self.groups:
                self.groups[group.name] = GroupSeen(
                    frozenset(group.external), frozenset(group.handed_on), Tail(ledger_of(self.run, group.name))
                )
