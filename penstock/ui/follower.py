"""A run, followed by what it writes into its directory: without Spark, and the same whether it is on or over."""

import json
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from penstock.engine.ledger import BatchRecord
from penstock.engine.moving.layout import Former, Layout
from penstock.engine.overview import Overview, overview
from penstock.engine.report import Totals
from penstock.errors import SourceError
from penstock.planner.decisions import Decision
from penstock.planner.record import Record, record_of
from penstock.ui.tail import Tail

KEPT = 2000
"""Micro-batches of each group that are remembered: what the page shows, and models are fitted to."""


@dataclass
class GroupSeen:
    """A group's micro-batches."""

    external: frozenset[str]
    handed_on: frozenset[str]
    tail: Tail
    records: deque[BatchRecord] = field(default_factory=lambda: deque(maxlen=KEPT))


class Follower:
    """What a run has written, read on from where the last look ended.

    Raises
    ------
    SourceError: it is not the directory of a run.
    """

    def __init__(self, run: Path) -> None:
        self.run = run
        self.totals = Totals()
        self.progress: deque[Record] = deque(maxlen=KEPT)
        self.starts: list[dict[str, Any]] = []
        self.decisions: list[Decision] = []
        self.moves: list[dict[str, Any]] = []
        self.groups: dict[str, GroupSeen] = {}
        self._former: set[str] = set()
        self._decode = msgspec.json.Decoder(BatchRecord).decode
        self._tails = {name: Tail(run / f"{name}.jsonl") for name in ("progress", "starts", "decisions", "moves")}
        self.manifest: dict[str, Any] = {}
        self.report: dict[str, Any] = {}
        self.read()

    def read(self) -> bool:
        """Take in what is new; whether there was anything."""
        try:
            manifest = json.loads((self.run / "manifest.json").read_text())
        except (OSError, ValueError) as error:
            raise SourceError(f"{self.run} is not the directory of a run, or cannot be read ({error}).") from error
        if manifest.get("run") != self.manifest.get("run") and self.manifest:
            self.__init__(self.run)  # type: ignore[misc]  # started afresh: all of it is another run's
            return True
        news = bool(manifest != self.manifest)
        self.manifest = manifest
        if news:
            self._find_groups()
        for seen in self.groups.values():
            for line in seen.tail.lines():
                with suppress(msgspec.DecodeError):
                    record = self._decode(line)
                    seen.records.append(record)
                    self.totals.add(record, seen.external, seen.handed_on)
                    news = True
        for line in self._tails["progress"].lines():
            with suppress(ValueError):
                one = json.loads(line)
                record_or_none = record_of(one) if "batchId" in one else None
                if record_or_none is not None:
                    self.progress.append(record_or_none)
        for name, kept in (("starts", self.starts), ("moves", self.moves)):
            for line in self._tails[name].lines():
                with suppress(ValueError):
                    kept.append(json.loads(line))
        for line in self._tails["decisions"].lines():
            with suppress(msgspec.DecodeError):
                self.decisions.append(msgspec.json.decode(line, type=Decision))
        with suppress(OSError, ValueError):
            self.report = json.loads((self.run / "report.json").read_text())
        return news

    def overview(self) -> Overview:
        """The run at a glance."""
        return overview(self.run)

    @property
    def present(self) -> list[str]:
        """The groups that run now."""
        return [name for name in self.groups if name not in self._former]

    def _find_groups(self) -> None:
        layout = Layout.of(self.manifest, {}, None)
        sources = [stream["name"] for stream in self.manifest["topology"]["streams"] if stream["source"]]
        alone = {"main": {"sources": sources, "handed_on": []}}  # of a run of an earlier version
        reads = self.manifest.get("reads", alone)
        present = [Former(name, one["sources"], one["handed_on"]) for name, one in reads.items()]
        self._former = {former.name for former in layout.former}
        for former in (*layout.former, *present):
            if former.name not in self.groups:
                self.groups[former.name] = GroupSeen(
                    frozenset(former.external),
                    frozenset(former.handed_on),
                    Tail(self.run / f"batches-{former.name}.jsonl"),
                )
