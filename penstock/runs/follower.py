"""Follows a run by the files in its directory. Needs no Spark, and works alike for a live run and one that has ended."""

import json
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
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
from penstock.runs.tail import FileTail
from penstock.runs.totals import Totals
from penstock.runtime.histogram import Histogram

KEPT = 1000
"""How many micro-batches of each group are kept in memory, for the page to show and for models to be fitted to."""


@dataclass
class GroupSeen:
    """The micro-batches of one group, as read from its ledger so far."""

    external: frozenset[str]
    handed_on: frozenset[str]
    tail: FileTail
    totals: Totals = field(default_factory=Totals)
    records: deque[BatchRecord] = field(default_factory=lambda: deque(maxlen=KEPT))
    _quantiles: dict[tuple[int, int], list[float | None]] = field(default_factory=dict)

    def forget(self) -> None:
        """Drop everything read. Called when the ledger was replaced, as happens when its oldest records are summed up."""
        self.totals = Totals()
        self.records.clear()

    def take(self, record: BatchRecord) -> None:
        """Add a record to the totals and, if it is a single micro-batch, to `records`."""
        if not record.moved and not record.summed:
            self.records.append(record)
        self.totals.add(record, self.external, self.handed_on)

    def quantiles(self, part: Sequence[BatchRecord]) -> list[float | None]:
        """Return the p50, p95 and p99 of latency over successive micro-batches, in seconds. Results are cached."""
        span = (part[0].batch, part[-1].batch)
        if span not in self._quantiles:
            if len(self._quantiles) > 2 * KEPT:
                self._quantiles.clear()
            latency = Histogram()
            for record in part:
                latency.merge(record.latency_ms)
            quantiles_ms = [latency.quantile(p) for p in (0.5, 0.95, 0.99)]
            self._quantiles[span] = [None if value is None else value / 1e3 for value in quantiles_ms]
        return self._quantiles[span]


class Follower:
    """Everything that a run has written so far; each `read` goes on where the one before ended.

    Raises:
        SourceError: the directory is not that of a run.
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
        self._damage: str | None = None
        """What was wrong with a ledger; its counts are too low until the file is replaced."""
        self._decode = msgspec.json.Decoder(BatchRecord).decode
        self._tails = {name: FileTail(run / name) for name in (PROGRESS, STARTS, DECISIONS, MOVES)}
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
        """Read what the run has written since the last call. Returns whether there was anything.

        Raises:
            SourceError: the run's directory is gone, or can no longer be read.
        """
        manifest = manifest_of(self.run)
        if manifest.discarding:  # the files of an earlier run in this directory are being removed
            return False
        news = bool(manifest != self.manifest)
        self.manifest = manifest
        if news:
            self._find_groups()
        counted = False
        for group in self.groups.values():
            for line in group.tail.lines(partial(self._forget, group)):
                try:
                    group.take(self._decode(line))
                except msgspec.DecodeError as error:
                    self._damage = f"A line of the ledger of {self.run} is damaged ({error}): put it back from a copy."
                counted = news = True
        if self._damage is not None:
            raise SourceError(self._damage)
        if counted:
            self.totals = Totals()
            for group in self.groups.values():
                self.totals.merge(group.totals)
        for name, (take, forget) in self._takers.items():
            for line in self._tails[name].lines(forget):
                with suppress(ValueError):  # a torn line, or one of another version
                    take(line)
                    news = True
        with suppress(OSError):
            report = report_of_run(self.run)
            news, self.report = news or report != self.report, report
        return news

    def _forget(self, group: GroupSeen) -> None:
        """Read a group's ledger from the beginning, as the file was replaced."""
        group.forget()
        self._damage = None

    def _take_progress(self, line: bytes) -> None:
        progress = json.loads(line)
        record = record_of(progress) if isinstance(progress, dict) and "batchId" in progress else None
        if record is not None:
            self.progress.append(record)

    @property
    def is_another(self) -> bool:
        """Whether the directory now holds another run, because it was started afresh."""
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
        """The names of the groups that the run has now, without those that a move has replaced."""
        return [name for name in self.groups if name not in self._former]

    def told(self, last: int = 1) -> dict[str, list[SourceRecord]]:
        """Return Spark's last reports on each source and hop, by its name, the newest at the end.

        Args:
            last: how many micro-batches of each query to go back.
        """
        orders = self.manifest.orders
        by_query: dict[str | None, deque[Record]] = {name: deque(maxlen=last) for name in self.present}
        for record in self.progress:
            if record.sources and record.name in by_query:
                by_query[record.name].append(record)
        return {
            source: list(reports)
            for name in self.present
            for source, reports in zip(
                orders.get(name, ()), zip(*(report.sources for report in by_query[name]), strict=False), strict=False
            )
        }

    def waiting(self) -> dict[str, Waiting]:
        """Return the rows that wait at each source and hop after the last micro-batch; without those that do not report it."""
        return {name: waiting for name, reports in self.told().items() if (waiting := reports[-1].lag) is not None}

    def _find_groups(self) -> None:
        former = self.manifest.layout.former
        self._former = {former_group.name for former_group in former}
        present = [Former(name, reads.sources, reads.handed_on) for name, reads in self.manifest.reads.items()]
        for group in (*former, *present):
            if group.name not in self.groups:
                self.groups[group.name] = GroupSeen(
                    frozenset(group.external), frozenset(group.handed_on), FileTail(ledger_of(self.run, group.name))
                )
