"""Directories of files, as sources and as sinks."""

from pathlib import Path

SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
    ".txt": "text",
}


def format_of(place: str) -> str:
    """The format of a path without a scheme: by its suffix, or that of the first file in it that has one."""
    path = Path(place)
    children = sorted(path.iterdir()) if path.is_dir() else []
    return next((SUFFIXES[each.suffix] for each in (path, *children) if each.suffix in SUFFIXES), "jsonl")
