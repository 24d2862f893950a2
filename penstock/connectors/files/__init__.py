"""Directories of files, as sources and as sinks."""

from penstock.storage import durable
from penstock.storage.place import path_of

SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv", ".parquet": "parquet", ".txt": "text"}


def format_of(place: str) -> str:
    """The format of a path without a scheme: by its suffix, or that of the first file in it that has one."""
    path = path_of(place)
    children = [path / name for name in sorted(durable.names(path))] if path.is_dir() else []
    return next((SUFFIXES[each.suffix] for each in (path, *children) if each.suffix in SUFFIXES), "jsonl")
