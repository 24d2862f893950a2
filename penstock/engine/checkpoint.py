"""Reading what Spark's checkpoint says of the sources: which offsets, and which files, are committed."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse


def committed_offsets(checkpoint: Path, batch: int) -> list[Any]:
    """The end offset of each source as of a batch; None for a source that had none yet."""
    path = checkpoint / "offsets" / str(batch)
    if not path.exists():
        return []
    lines = path.read_text().splitlines()[2:]
    return [None if line == "-" else json.loads(line) for line in lines]


def first_offsets(checkpoint: Path, number: int) -> dict[str, dict[str, int]]:
    """Where Kafka source ``number`` began, by topic and partition; nothing, before its first batch."""
    path = checkpoint / "sources" / str(number) / "0"
    if not path.exists():
        return {}
    text = path.read_text()
    offsets: dict[str, dict[str, int]] = json.loads(text[text.index("{") :])
    return offsets


def files_by_log_offset(checkpoint: Path, number: int) -> dict[str, int]:
    """For each file that file source ``number`` has taken in, the log offset with which it came."""
    files: dict[str, int] = {}
    directory = checkpoint / "sources" / str(number)
    for path in directory.glob("[0-9]*") if directory.exists() else ():
        try:
            lines = path.read_text().splitlines()
        except FileNotFoundError:  # Spark has just compacted it
            continue
        for line in lines[1:]:
            entry = json.loads(line)
            files[unquote(urlparse(entry["path"]).path)] = entry["batchId"]
    return files
