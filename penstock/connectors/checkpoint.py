"""Reading what Spark's checkpoint says of the sources: which offsets, and which files, are committed."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse
from zlib import crc32


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

    @property
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
        path = self.log / "0"
        if not path.exists():
            return {}
        text = path.read_text()
        offsets: dict[str, dict[str, int]] = json.loads(text[text.index("{") :])
        return offsets

    def files(self, after: int = -1) -> dict[str, int]:
        """For each file that a file source has taken in, the log offset with which it came.

        Parameters
        ----------
        after: only those that came with a later one.
        """
        files: dict[str, int] = {}
        directory = self.log
        for path in directory.glob("[0-9]*") if directory.exists() else ():
            if int(path.name.partition(".")[0]) <= after:  # a compacted log has what came up to its number
                continue
            try:
                lines = path.read_text().splitlines()
            except FileNotFoundError:  # Spark has just compacted it
                continue
            for line in lines[1:]:
                entry = json.loads(line)
                if entry["batchId"] > after:
                    files[unquote(urlparse(entry["path"]).path)] = entry["batchId"]
        return files


def batches(checkpoint: Path, log: str) -> list[int]:
    """The batches that a checkpoint's log (``offsets`` or ``commits``) has, in order."""
    return sorted(int(path.name) for path in (checkpoint / log).glob("[0-9]*") if path.name.isdigit())


def offsets_checksum(checkpoint: Path, batch: int) -> str:
    """A checksum of how far a batch reads its sources; empty where the checkpoint does not say."""
    path = checkpoint / "offsets" / str(batch)
    if not path.exists():
        return ""
    offsets = "\n".join(path.read_text().splitlines()[2:])
    return f"{crc32(offsets.encode()):08x}"


def committed_offsets(checkpoint: Path, batch: int) -> list[Any]:
    """The end offset of each source as of a batch; None for a source that had none yet."""
    path = checkpoint / "offsets" / str(batch)
    if not path.exists():
        return []
    lines = path.read_text().splitlines()[2:]
    return [None if line == "-" else json.loads(line) for line in lines]
