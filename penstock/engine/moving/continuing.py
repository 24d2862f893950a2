"""Checkpoints that go on where others ended: how far their sources are read, and the watermark, carried over."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.connectors.checkpoint import Position, batches
from penstock.engine.query.group import Group
from penstock.storage import durable


@dataclass(frozen=True)
class Begun:
    """A group that has completed a micro-batch.

    Parameters
    ----------
    last: the last one that is completed. sources: in the order in which Spark numbers them.
    timed: whether it has a watermark.
    """

    group: Group
    checkpoint: Path
    last: int
    sources: Sequence[str]
    timed: bool

    def entry(self, log: str) -> list[str]:
        """The last entry of a log of Spark's, ``offsets`` or ``commits``, by lines."""
        return durable.read(self.checkpoint / log / str(self.last)).decode().splitlines()

    def offset(self, source: str) -> str:
        """How far a source has been read, in Spark's words; a dash where nothing has come."""
        return self.entry("offsets")[2 + self.sources.index(source)]

    def reads(self, source: str, *, external: bool) -> bool:
        """Whether it has read a source itself, or what another group has left of it."""
        return source in self.sources and (source in self.group.sources) == external

    @property
    def watermark_ms(self) -> int:
        """As the last micro-batch has left it."""
        return int(json.loads(self.entry("commits")[1]).get("nextBatchWatermarkMs", 0))


def continue_in(
    checkpoint: Path,
    group: Group,
    sources: Sequence[str],
    begun: Sequence[Begun],
    partitions: int,
    watermark_ms: int | None = None,
) -> None:
    """Make a group's checkpoint, which may have state, go on where others have ended; its micro-batch 0 is then complete.

    Parameters
    ----------
    sources: of the group, in the order of its query; what no other has read it reads from the beginning.
    begun: the groups that had the sources, or the elements, until now.
    watermark_ms: in place of the least of theirs.
    """
    seeded = bool(batches(checkpoint, "offsets"))
    model = Begun(begun[0].group, checkpoint, 0, (), False) if seeded else begun[0]
    version, planned, *_ = model.entry("offsets")
    noted, completed, *others = model.entry("commits")
    watermark = watermark_ms
    if watermark is None:
        watermark = min((one.watermark_ms for one in begun if one.timed), default=0)
    metadata: dict[str, Any] = json.loads(planned)
    metadata |= {"batchWatermarkMs": watermark, "batchTimestampMs": time.time_ns() // 1_000_000}
    metadata["conf"] = {**metadata.get("conf", {}), "spark.sql.shuffle.partitions": str(partitions)}
    after = json.loads(completed) | {"nextBatchWatermarkMs": watermark}
    durable.remove(checkpoint / "sources")
    offsets = []
    for place, name in enumerate(sources):
        reader = next((one for one in begun if one.reads(name, external=name in group.sources)), None)
        offsets.append("-" if reader is None else reader.offset(name))
        if reader is None:
            continue
        old, new = Position(reader.checkpoint, reader.sources.index(name), None), Position(checkpoint, place, None)
        if old.log.exists():
            durable.copy(old.log, new.log)
        if old.notes.exists():
            durable.copy(old.notes, new.notes)
    _write(checkpoint / "offsets" / "0", [version, _json(metadata), *offsets])
    _write(checkpoint / "commits" / "0", [noted, _json(after), *others])


def _json(content: dict[str, Any]) -> str:
    return json.dumps(content, separators=(",", ":"))


def _write(path: Path, lines: Sequence[str]) -> None:
    """Write an entry of one of Spark's logs, whose checksum of an earlier one holds no longer."""
    durable.make(path.parent)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    durable.write(path, "\n".join(lines))
