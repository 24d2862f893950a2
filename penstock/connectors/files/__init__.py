"""Directories of files, as sources and as sinks."""

from pathlib import PurePath

from penstock.storage import durable
from penstock.storage.place import path_of

SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv", ".parquet": "parquet", ".txt": "text"}


def format_of(place: str) -> str:
    """Return the format of a path without a scheme: by its suffix, or by that of the first file in it with a known suffix."""
    path = path_of(place)
    children = [path / name for name in sorted(durable.names(path))] if path.is_dir() else []
    suffixes = (_suffix(entry.name) for entry in (path, *children))
    return next((SUFFIXES[suffix] for suffix in suffixes if suffix in SUFFIXES), "jsonl")


def _suffix(name: str) -> str:
    """Return the suffix of a file's name in small letters, without that of its compression."""
    return PurePath(name.lower().removesuffix(".gz").removesuffix(".bz2")).suffix
