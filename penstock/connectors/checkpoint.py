"""Reading what Spark's checkpoint says of the sources: which offsets, and which files, are committed."""

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
"""Names of what lies in a checkpoint."""

VERSION = re.compile(r"(\d+)\.(zip|snapshot|changelog|delta)")
"""A file of state, which has a snapshot as of a version, or the changes that have led to it."""

Files = dict[str, int]
"""Files by the log offset with which a source has taken them in."""


def last_commit(checkpoint: Path) -> tuple[int, float] | None:
    """The last micro-batch that a query has committed, and when, in seconds since the epoch; None before the first."""
    last = max((int(name) for name in durable.names(checkpoint / "commits") if name.isdigit()), default=None)
    return None if last is None else (last, (checkpoint / "commits" / str(last)).stat().st_mtime)


@dataclass(frozen=True)
class Position:
    """How far a query has read one of its sources.

    Parameters
    ----------
    checkpoint: the query's.
    number: of the source among the query's.
    batch: the last committed one, or None.
    """

    checkpoint: Path
    number: int
    batch: int | None

    @cached_property
    def offset(self) -> Any:
        """The source's end offset as of the batch; None if it had none yet."""
        if self.batch is None:
            return None
        offsets = committed_offsets(self.checkpoint, self.batch)
        return offsets[self.number] if offsets else None

    @property
    def log(self) -> Path:
        """Where Spark keeps what it knows of the source besides its offsets."""
        return self.checkpoint / "sources" / str(self.number)

    @property
    def notes(self) -> Path:
        """Where a source may write down what it must know of what was read."""
        return self.checkpoint / f"rows-of-files-{self.number}.jsonl"

    @property
    def previous(self) -> "Position":
        """The position one batch earlier."""
        return Position(self.checkpoint, self.number, self.batch - 1 if self.batch else None)

    def first_offsets(self) -> dict[str, dict[str, int]]:
        """Where a Kafka source began, by topic and partition; nothing, before its first batch."""
        try:
            text = durable.read(self.log / "0").decode()
        except FileNotFoundError:
            return {}
        offsets: dict[str, dict[str, int]] = json.loads(text[text.index("{") :])
        return offsets

    def files(self, after: int = -1, known: dict[Path, Files] | None = None) -> Files:
        """For each file that a file source has taken in, the log offset with which it came.

        Parameters
        ----------
        after: only those that came with a later one.
        known: what earlier calls have read, and this one adds to: an entry of the log never changes.
        """
        files: Files = {}
        read = {} if known is None else known
        for name in durable.names(self.log):
            if not name[0].isdigit() or int(name.partition(".")[0]) <= after:  # a compacted log has what came up to its number
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
    """What an entry of a file source's log says."""
    entries = [json.loads(line) for line in content.decode().splitlines()[1:]]
    return {_place(entry["path"]): entry["batchId"] for entry in entries}


def _place(uri: str) -> str:
    """A file as a path, or as the URI that it has in a store."""
    return unquote(urlparse(uri).path if uri.startswith("file:") else uri)


def clear_checkpoint(checkpoint: Path) -> None:
    """Remove what Spark, and we, have written of a query, and nothing else that may lie there."""
    for name in durable.names(checkpoint):
        if re.fullmatch(IN_CHECKPOINT, name):
            durable.remove(checkpoint / name)
    durable.remove_empty(checkpoint)


def missing_part(checkpoint: Path, last: int, *, sources: int, stateful: bool) -> str | None:
    """What a checkpoint lacks to go on behind a batch that has been committed, as a path below it; None where it is whole.

    Spark would find some of that out in the middle of a run, and read its input again without a word where other parts are
    gone.

    Parameters
    ----------
    sources: how many the query reads; one that it reads twice has its log once.
    stateful: whether the query is known to keep state.
    """
    entries = {log: set(batches(checkpoint, log)) for log in ("offsets", "commits")}
    before = [] if last == 0 else [last - 1]
    for number in (*before, last):
        if number not in entries["offsets"]:
            return f"offsets/{number}"
        if not _is_whole(checkpoint, number):
            return f"offsets/{number}, which is cut short"
    if before and not {last, last - 1} & entries["commits"]:
        return f"commits/{last - 1}"
    if not (checkpoint / "metadata").exists():
        return "metadata"
    offsets = committed_offsets(checkpoint, last)
    for place, offset in enumerate(offsets):
        if len(offsets) > sources and offset in offsets[:place] and not (checkpoint / "sources" / str(place)).exists():
            continue
        part = _missing_of_source(checkpoint / "sources" / str(place), offset)
        if part is not None:
            return f"sources/{place}/{part}"
    completed = max(entries["commits"], default=-1)
    if completed < 0:
        return None
    operators = [name for name in durable.names(checkpoint / "state") if name.isdigit()]
    if stateful and not operators:
        return "state"
    for operator in sorted(operators):
        # Of our own all partitions keep state; of Spark's, some operators have one for all.
        least = _partitions(checkpoint, completed) if stateful else 1
        part = _missing_of_operator(checkpoint / "state" / operator, completed + 1, least)
        if part is not None:
            return f"state/{operator}/{part}"
    return None


def _is_whole(checkpoint: Path, batch: int) -> bool:
    """Whether an entry of the log of offsets can be read to its end."""
    lines = durable.read(checkpoint / "offsets" / str(batch)).decode(errors="replace").splitlines()
    try:
        return len(lines) > 2 and all(line == "-" or json.loads(line) is not None for line in lines[1:])
    except ValueError:
        return False


def _missing_of_source(log: Path, offset: Any) -> str | None:
    """What the log of a source's own lacks: of files all entries since the last that sums up, of Kafka where it began."""
    there = set(durable.names(log))
    if isinstance(offset, dict) and "logOffset" in offset:
        for number in range(offset["logOffset"], -1, -1):
            if f"{number}.compact" in there:
                return None
            if str(number) not in there:
                return str(number)
        return None
    kafka = isinstance(offset, dict) and offset and all(isinstance(topic, dict) for topic in offset.values())
    return "0" if kafka and "0" not in there else None


def _missing_of_operator(directory: Path, version: int, partitions: int) -> str | None:
    """What the state of an operator lacks of a version, in any of its partitions."""
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
    """What a store of state lacks of a version: a snapshot, or all changes since one."""
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
    """Of the shuffles of a batch, as Spark has planned it."""
    lines = durable.read(checkpoint / "offsets" / str(batch)).decode().splitlines()
    return int(json.loads(lines[1])["conf"].get("spark.sql.shuffle.partitions", 1))


def batches(checkpoint: Path, log: str) -> list[int]:
    """The batches that a checkpoint's log (``offsets`` or ``commits``) has, in order."""
    return sorted(int(name) for name in durable.names(checkpoint / log) if name.isdigit())


def offsets_checksum(checkpoint: Path, batch: int) -> str:
    """A checksum of how far a batch reads its sources; empty where the checkpoint does not say."""
    lines = _offsets(checkpoint, batch)
    return "" if lines is None else f"{crc32(chr(10).join(lines).encode()):08x}"


def committed_offsets(checkpoint: Path, batch: int) -> list[Any]:
    """The end offset of each source as of a batch; None for a source that had none yet."""
    return [None if line == "-" else json.loads(line) for line in _offsets(checkpoint, batch) or ()]


def _offsets(checkpoint: Path, batch: int) -> list[str] | None:
    """What a batch's entry in the log of offsets says of each source; None where there is no such entry."""
    try:
        return durable.read(checkpoint / "offsets" / str(batch)).decode().splitlines()[2:]
    except FileNotFoundError:
        return None
