"""Reads Spark's checkpoints: which offsets and files of the sources are committed, and whether a checkpoint is complete."""

import json
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse
from zlib import crc32

from penstock.storage import durable

IN_CHECKPOINT = r"metadata|offsets|commits|sources|state|_metadata|rows-of-files-\d+\.jsonl|\..*\.(?:crc|draft|tmp|lock|taken)"
"""Matches the names of files and directories in a checkpoint that Spark or Penstock makes."""

VERSION = re.compile(r"(\d+)\.(zip|snapshot|changelog|delta)")
"""Matches the names of state files: each has a snapshot of a version, or the changes from the one before."""

Files = dict[str, int]
"""A file source's files, each with the offset in the source's log (the number of the log entry) that took it in."""


def last_commit(checkpoint: Path) -> tuple[int, float] | None:
    """Return the number of a query's last committed micro-batch, and its time (seconds since the epoch); None before one."""
    last = max((int(name) for name in durable.names(checkpoint / "commits") if name.isdigit()), default=None)
    return None if last is None else (last, (checkpoint / "commits" / str(last)).stat().st_mtime)


@dataclass(frozen=True)
class Position:
    """How far a query has read one of its sources.

    Args:
        checkpoint: of the query.
        number: of the source among those of the query.
        batch: the last committed micro-batch, or None.
    """

    checkpoint: Path
    number: int
    batch: int | None

    @cached_property
    def offset(self) -> Any:
        """The source's end offset at the batch; None if it had none yet."""
        if self.batch is None:
            return None
        offsets = committed_offsets(self.checkpoint, self.batch)
        return offsets[self.number] if offsets else None

    @property
    def log(self) -> Path:
        """The directory of the source's own log, in which Spark records, for example, a file source's files."""
        return self.checkpoint / "sources" / str(self.number)

    @property
    def notes(self) -> Path:
        """The journal in which a file source notes how many rows each file had that was read."""
        return self.checkpoint / f"rows-of-files-{self.number}.jsonl"

    @property
    def previous(self) -> "Position":
        """The position one batch earlier."""
        return Position(self.checkpoint, self.number, self.batch - 1 if self.batch else None)

    def first_offsets(self) -> dict[str, dict[str, int]]:
        """Return the offsets at which a Kafka source began, by topic and partition; empty before its first batch."""
        try:
            text = durable.read(self.log / "0").decode()
        except FileNotFoundError:
            return {}
        offsets: dict[str, dict[str, int]] = json.loads(text[text.index("{") :])
        return offsets

    def files(self, after: int = -1, known: dict[Path, Files] | None = None) -> Files:
        """Return the files that a file source has taken in, each with the log offset at which it did.

        Args:
            after: return only files with a later log offset.
            known: a cache of log entries, which never change; entries that this call reads are added.
        """
        files: Files = {}
        read = {} if known is None else known
        for name in durable.names(self.log):
            if not name[0].isdigit() or int(name.partition(".")[0]) <= after:  # N.compact has the files of all entries up to N
                continue
            entry = self.log / name
            if entry not in read:
                try:
                    read[entry] = _entry(durable.read(entry))
                except FileNotFoundError:  # Spark has just compacted it
                    continue
            files |= {file: batch for file, batch in read[entry].items() if batch > after}
        return files


def _entry(content: bytes) -> Files:
    """Return the files in an entry of a file source's log."""
    entries = [json.loads(line) for line in content.decode().splitlines()[1:]]
    return {_place(entry["path"]): entry["batchId"] for entry in entries}


def _place(uri: str) -> str:
    """Return a file's local path, or its URI in a store."""
    return unquote(urlparse(uri).path if uri.startswith("file:") else uri)


def clear_checkpoint(checkpoint: Path) -> None:
    """Remove the files of Spark and of Penstock in a checkpoint, and no other files that may be there."""
    for name in durable.names(checkpoint):
        if re.fullmatch(IN_CHECKPOINT, name):
            durable.remove(checkpoint / name)
    durable.remove_empty(checkpoint)


def clear_drafts(checkpoint: Path) -> None:
    """Remove the entries of Spark's logs that a killed driver has half written; in real-time mode Spark does not start beside
    them, before its first commit.
    """
    for log in (checkpoint / "offsets", checkpoint / "commits"):
        for name in durable.names(log):
            if name.endswith((".tmp", ".tmp.crc")):
                durable.remove(log / name)


def missing_part(checkpoint: Path, last: int, *, sources: int, stateful: bool) -> str | None:
    """Return a part that a checkpoint lacks to resume after a committed batch, as a path below it; None if it is complete.

    Spark notices some missing parts only in the middle of a run, and without others it silently reads its input again.

    Args:
        last: the last committed batch.
        sources: how many sources the query reads; Spark counts a source twice that is read twice, but keeps one log of it.
        stateful: whether the query is known to keep state.
    """
    # Spark restarts from the last two entries of its log of offsets, and needs the commit of one of them.
    commits = set(batches(checkpoint, "commits"))
    if last and (part := _missing_of_offsets(checkpoint, last - 1)):
        return part
    if part := missing_input(checkpoint, last, sources=sources):
        return part
    if last and not {last, last - 1} & commits:
        return f"commits/{last - 1}"
    if not (checkpoint / "metadata").exists():
        return "metadata"
    # Each operator must have the state of the last completed batch, whose version is the batch's number plus 1.
    completed = max(commits, default=-1)
    if completed < 0:
        return None
    operators = [name for name in durable.names(checkpoint / "state") if name.isdigit()]
    if stateful and not operators:
        return "state"
    for operator in sorted(operators):
        # Penstock's operators keep state in every partition; some of Spark's keep it in a single one.
        least = _partitions(checkpoint, completed) if stateful else 1
        part = _missing_of_operator(checkpoint / "state" / operator, completed + 1, least)
        if part is not None:
            return f"state/{operator}/{part}"
    return None


def missing_input(checkpoint: Path, last: int, *, sources: int) -> str | None:
    """Return a part that a checkpoint lacks to say what was read up to a batch; None if it is complete. See `missing_part`."""
    if part := _missing_of_offsets(checkpoint, last):
        return part
    # Each source must have its own log, but for the second reading of a source.
    offsets = committed_offsets(checkpoint, last)
    for index, offset in enumerate(offsets):
        if len(offsets) > sources and offset in offsets[:index] and not (checkpoint / "sources" / str(index)).exists():
            continue
        part = _missing_of_source(checkpoint / "sources" / str(index), offset)
        if part is not None:
            return f"sources/{index}/{part}"
    return None


def _missing_of_offsets(checkpoint: Path, batch: int) -> str | None:
    """Return a batch's entry in the log of offsets if it is not there, cut short or invalid; None otherwise."""
    if str(batch) not in durable.names(checkpoint / "offsets"):
        return f"offsets/{batch}"
    return None if _is_whole(checkpoint, batch) else f"offsets/{batch}, which is cut short"


def _is_whole(checkpoint: Path, batch: int) -> bool:
    lines = durable.read(checkpoint / "offsets" / str(batch)).decode(errors="replace").splitlines()
    try:
        return len(lines) > 2 and all(line == "-" or json.loads(line) is not None for line in lines[1:])
    except ValueError:
        return False


def _missing_of_source(log: Path, offset: Any) -> str | None:
    """Return an entry that a source's log lacks: for files any since the last compacted one, for Kafka the first one."""
    entries = set(durable.names(log))
    if isinstance(offset, dict) and "logOffset" in offset:
        for number in range(offset["logOffset"], -1, -1):
            if f"{number}.compact" in entries:
                return None
            if str(number) not in entries:
                return str(number)
        return None
    kafka = isinstance(offset, dict) and offset and all(isinstance(topic, dict) for topic in offset.values())
    return "0" if kafka and "0" not in entries else None


def _missing_of_operator(directory: Path, version: int, partitions: int) -> str | None:
    """Return a file that an operator's state lacks for a version, in any of its partitions; None if it is complete."""
    parts = {name for name in durable.names(directory) if name.isdigit()}
    for number in map(str, range(max(partitions, len(parts)))):
        if number not in parts:
            return number
        names = durable.names(directory / number)
        files = [name for name in names if VERSION.fullmatch(name)]
        inner = [] if files else [name for name in names if "." not in name and name != "SSTs" and not name.startswith("_")]
        if not files and not inner:
            return f"{number}/{version}.changelog"
        for store in (directory / number, *(directory / number / name for name in inner)):
            missing = _missing_of_store(store, version)
            if missing is not None:
                return f"{store.relative_to(directory)}/{missing}"
    return None


def _missing_of_store(directory: Path, version: int) -> str | None:
    """Return a file that a state store lacks for a version: it takes a snapshot, and all changes since. None if it has them."""
    kinds: dict[int, set[str]] = {}
    for match in filter(None, map(VERSION.fullmatch, durable.names(directory))):
        kinds.setdefault(int(match[1]), set()).add(match[2])
    for number in range(version, 0, -1) if kinds else ():
        if number not in kinds:
            return f"{number}.changelog"
        if kinds[number] & {"zip", "snapshot"}:
            return None
    return None


def _partitions(checkpoint: Path, batch: int) -> int:
    """Return the number of shuffle partitions with which Spark has planned a batch."""
    lines = durable.read(checkpoint / "offsets" / str(batch)).decode().splitlines()
    return int(json.loads(lines[1])["conf"].get("spark.sql.shuffle.partitions", 1))


def batches(checkpoint: Path, log: str) -> list[int]:
    """Return the numbers of the batches in a checkpoint's log (``offsets`` or ``commits``), in order."""
    return sorted(int(name) for name in durable.names(checkpoint / log) if name.isdigit())


def planned_ms(checkpoint: Path, batch: int) -> int:
    """Return when Spark has planned a batch, which is its processing time, in milliseconds since the epoch."""
    lines = durable.read(checkpoint / "offsets" / str(batch)).decode().splitlines()
    return int(json.loads(lines[1])["batchTimestampMs"])


def offsets_checksum(checkpoint: Path, batch: int) -> str:
    """Return a checksum of the end offsets of a batch; empty if the checkpoint has no entry for it."""
    lines = _offsets(checkpoint, batch)
    return "" if lines is None else f"{crc32(chr(10).join(lines).encode()):08x}"


def committed_offsets(checkpoint: Path, batch: int) -> list[Any]:
    """Return the end offset of each source at a batch; None for a source that had none yet."""
    return [None if line == "-" else json.loads(line) for line in _offsets(checkpoint, batch) or ()]


def _offsets(checkpoint: Path, batch: int) -> list[str] | None:
    """Return the lines of a batch's entry in the log of offsets, one per source; None if there is no such entry."""
    try:
        return durable.read(checkpoint / "offsets" / str(batch)).decode().splitlines()[2:]
    except FileNotFoundError:
        return None
