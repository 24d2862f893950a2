"""The committed micro-batches of a run, by its own records: each with the positions up to which sources were read."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from penstock.connectors.checkpoint import Position, batches, missing_input
from penstock.errors import SourceError
from penstock.runs.batches import records_in
from penstock.runs.files import PROGRESS, ledger_of
from penstock.runs.manifest import Manifest
from penstock.runtime.output import STAGING
from penstock.storage import durable, journal
from penstock.storage.place import path_of


@dataclass(frozen=True)
class KnownPosition(Position):
    """A position with a given offset, because the checkpoint only keeps the offsets of the last hundred micro-batches."""

    known: Any = None

    @cached_property
    def offset(self) -> Any:
        """The source's end offset as of the micro-batch; None if it had none yet."""
        return self.known


@dataclass(frozen=True)
class Microbatch:
    """A committed micro-batch; or several consecutive ones as one, where their division is no longer known.

    Args:
        positions: by source, the positions between which it was read.
        now: the processing time in seconds since the epoch; None where unknown.
        watermark: the watermark in seconds since the epoch; None where there was none yet, or it is unknown.
    """

    number: int
    positions: dict[str, tuple[Position, Position]]
    now: float | None
    watermark: float | None


class Committed:
    """The committed micro-batches of one group.

    Args:
        group: the group's full name.
        sources: the external sources that it reads.
    """

    def __init__(self, run: Path, manifest: Manifest, group: str, sources: list[str]) -> None:
        self._run, self.name, self._sources = run, group, sources
        self.checkpoint = run / manifest.checkpoints / group
        reads = manifest.reads[group]
        self.order = manifest.orders.get(group) or [*reads.sources, *reads.handed_on]
        records = list(records_in(ledger_of(run, group)))
        self.last = records[-1].batch if records else None
        self.staged: dict[str, list[tuple[str, int]]] = {}
        """Names and rows of the last micro-batch's staged files, by the output's label; those that exist were not delivered."""
        for file in records[-1].files if records else ():
            self.staged.setdefault(file.sink, []).append((path_of(file.staged).name, file.rows))
        self.committed_us = {record.batch: record.committed_us for record in records}
        self.accepted = {
            name: sum(record.sources[name].accepted for record in records if name in record.sources) for name in sources
        }
        """The number of events that the run has counted, by source."""

    @cached_property
    def _entries(self) -> dict[int, tuple[list[Any], float | None, float | None]]:
        """Offsets, processing time and watermark, by number, of the micro-batches for which the run still has records."""
        entries = dict(self._in_progress())
        for number in batches(self.checkpoint, "offsets"):
            try:
                lines = durable.read(self.checkpoint / "offsets" / str(number)).decode().splitlines()
                about = json.loads(lines[1])
                offsets = [None if line == "-" else json.loads(line) for line in lines[2:]]
                entries[number] = offsets, about["batchTimestampMs"] / 1e3, about["batchWatermarkMs"] / 1e3 or None
            except (LookupError, ValueError, TypeError, AttributeError) as error:
                raise SourceError(f"{self.checkpoint}/offsets/{number} is damaged, so it is unknown what was read.") from error
        return entries

    def _in_progress(self) -> Iterator[tuple[int, tuple[list[Any], float | None, float | None]]]:
        for line in journal.lines_of(self._run / PROGRESS):
            try:
                progress = json.loads(line)
                offsets = [_offset(source.get("endOffset")) for source in progress["sources"]]
                if progress.get("name") == self.name:
                    yield int(progress["batchId"]), (offsets, None, None)
            except (ValueError, KeyError, TypeError):  # a torn line, or sums of earlier micro-batches
                continue

    def missing_input(self) -> str | None:
        """Return a missing part of the checkpoint, without which it is not known what was read; None if it is whole."""
        return None if self.last is None else missing_input(self.checkpoint, self.last, sources=len(self.order))

    def owed(self, label: str, directory: Path) -> int:
        """Return how many rows of the last micro-batch an output still lacks, in staged files that are not delivered yet."""
        return sum(rows for name, rows in self.staged.get(label, ()) if (directory / STAGING / name).exists())

    @property
    def exact(self) -> bool:
        """Whether the offsets and the time of every micro-batch are known."""
        numbers = range((-1 if self.last is None else self.last) + 1)
        return all(number in self._entries and self._entries[number][1] is not None for number in numbers)

    def microbatches(self) -> Iterator[Microbatch]:
        """Yield the micro-batches in order."""
        if self.last is None:
            return
        before = {name: self._position(name, None, None) for name in self._sources}
        for number in sorted(number for number in self._entries if number <= self.last):
            offsets, now, watermark = self._entries[number]
            upto = {name: self._position(name, number, self._of(name, offsets)) for name in self._sources}
            yield Microbatch(number, {name: (before[name], upto[name]) for name in self._sources}, now, watermark)
            before = upto

    def end(self, name: str) -> Position:
        """Return the position up to which a source, also a stream from another group, has been read."""
        return Position(self.checkpoint, self.order.index(name), self.last)

    def _of(self, name: str, offsets: list[Any]) -> Any:
        place = self.order.index(name)
        return offsets[place] if place < len(offsets) else None

    def _position(self, name: str, number: int | None, offset: Any) -> Position:
        return KnownPosition(self.checkpoint, self.order.index(name), number, offset)


def _offset(text: Any) -> Any:
    return json.loads(text) if isinstance(text, str) else text
