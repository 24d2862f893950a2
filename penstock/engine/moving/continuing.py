"""Checkpoints that go on where others ended: the source offsets and the watermark are copied from those."""

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
    """A group that has completed at least one micro-batch.

    Args:
        last: the last completed micro-batch.
        sources: their names, in the order in which Spark numbers them.
        timed: whether the group has a watermark.
    """

    group: Group
    checkpoint: Path
    last: int
    sources: Sequence[str]
    timed: bool

    def entry(self, log: str) -> list[str]:
        """Return the lines of the last entry in Spark's log ``offsets`` or ``commits``."""
        return durable.read(self.checkpoint / log / str(self.last)).decode().splitlines()

    def offset(self, source: str) -> str:
        """Return the offset up to which a source was read, as Spark writes it; a dash if it had no data."""
        return self.entry("offsets")[2 + self.sources.index(source)]

    def reads(self, source: str, *, external: bool) -> bool:
        """Whether the group reads a source, either itself (``external``) or as a stream from another group."""
        return source in self.sources and (source in self.group.sources) == external

    @property
    def watermark_ms(self) -> int:
        """The watermark after the last micro-batch, in milliseconds since the epoch."""
        return int(json.loads(self.entry("commits")[1]).get("nextBatchWatermarkMs", 0))


def continue_in(
    checkpoint: Path,
    group: Group,
    sources: Sequence[str],
    begun: Sequence[Begun],
    partitions: int,
    watermark_ms: int | None = None,
) -> None:
    """Make a group's checkpoint, which may have state already, go on where others ended. Its micro-batch 0 is complete then.

    Args:
        sources: of the group, in the order of its query; a source that no other group has read is read from the beginning.
        begun: the groups that had the sources, or the elements, until now.
        watermark_ms: the watermark to begin with; the least of these groups' unless given.
    """
    seeded = bool(batches(checkpoint, "offsets"))
    model = Begun(begun[0].group, checkpoint, 0, (), False) if seeded else begun[0]
    # The entries of Spark's logs are copied from a checkpoint that Spark itself has written, and only their values replaced.
    version, metadata_json, *_ = model.entry("offsets")
    commit_version, commit_json, *others = model.entry("commits")
    watermark = watermark_ms
    if watermark is None:
        watermark = min((former.watermark_ms for former in begun if former.timed), default=0)
    metadata: dict[str, Any] = json.loads(metadata_json)
    metadata |= {"batchWatermarkMs": watermark, "batchTimestampMs": time.time_ns() // 1_000_000}
    metadata["conf"] = {**metadata.get("conf", {}), "spark.sql.shuffle.partitions": str(partitions)}
    after = json.loads(commit_json) | {"nextBatchWatermarkMs": watermark}
    durable.remove(checkpoint / "sources")
    offsets = []
    for number, name in enumerate(sources):
        reader = next((former for former in begun if former.reads(name, external=name in group.sources)), None)
        offsets.append("-" if reader is None else reader.offset(name))
        if reader is None:
            continue
        old, new = Position(reader.checkpoint, reader.sources.index(name), None), Position(checkpoint, number, None)
        if old.log.exists():
            durable.copy(old.log, new.log)
        if old.notes.exists():
            durable.copy(old.notes, new.notes)
    _write(checkpoint / "offsets" / "0", [version, _json(metadata), *offsets])
    _write(checkpoint / "commits" / "0", [commit_version, _json(after), *others])


def _json(content: dict[str, Any]) -> str:
    return json.dumps(content, separators=(",", ":"))


def _write(path: Path, lines: Sequence[str]) -> None:
    """Write an entry of one of Spark's logs, and remove the checksum file of an entry that it replaces."""
    durable.make(path.parent)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    durable.write(path, "\n".join(lines))
