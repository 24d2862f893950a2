"""Finding progresses in what users have: a run's directory, a listener's lines, `recentProgress`, a Spark event log."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.errors import SourceError
from penstock.runs.files import PROGRESS
from penstock.runs.record import Record, idle_of, record_of
from penstock.storage.journal import lines_of
from penstock.storage.place import is_local

IDLE = "org.apache.spark.sql.streaming.StreamingQueryListener$QueryIdleEvent"
WANTED = (
    "give a run's directory, a file of progress as JSON lines (a listener's, or recentProgress), or a Spark event log "
    "that is not compressed"
)


@dataclass
class Found:
    """What a file holds.

    Parameters
    ----------
    records: progresses in the order of the file.
    torn: lines that are no JSON: cut off in the middle, or something else.
    tasks: of an event log, of each task of each micro-batch: (stage, run time, garbage collection) in seconds.
    """

    path: Path
    records: list[Record] = field(default_factory=list)
    torn: int = 0
    tasks: list[tuple[int, float, float]] = field(default_factory=list)


def find(path: Path) -> Found:
    """The progresses of a recording.

    Raises
    ------
    SourceError: there are none; says what is wanted.
    """
    found = Found(path)
    try:
        for file in _files(path):
            _read(file, found)
    except OSError as error:
        raise SourceError(f"{path} cannot be read ({error.strerror or error}): {WANTED}.") from error
    except UnicodeDecodeError as error:
        raise SourceError(f"{path} is not text, or is compressed: {WANTED}.") from error
    if not any(record.sources for record in found.records):
        reason = f"holds {found.torn} lines, none of which is" if found.torn else "holds no"
        raise SourceError(f"{path} {reason} progress of a streaming query: {WANTED}.")
    return found


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    if (path / PROGRESS).exists():
        return [path / PROGRESS]
    parts = sorted(path.glob("events_*"), key=lambda part: int(part.name.split("_")[1]))  # of a rolling event log
    if not parts:
        raise SourceError(f"{path} has neither {PROGRESS} nor events_*: {WANTED}.")
    return parts


def _read(path: Path, found: Found) -> None:
    if not is_local(path) and path.is_dir():  # the progresses of a run in a store
        for entry in _parsed(lines_of(path), found):
            _take(entry, found)
        return
    with path.open(encoding="utf-8") as lines:
        if path.suffix != ".jsonl" and lines.read(1) == "[":  # recentProgress, written as one array
            lines.seek(0)
            try:
                entries = json.load(lines)
            except json.JSONDecodeError:
                found.torn += 1
                return
            for entry in entries:
                _take(entry, found)
            return
        lines.seek(0)
        for entry in _parsed(lines, found):
            _take(entry, found)


def _parsed(lines: Any, found: Found) -> Iterator[Any]:
    for line in lines:
        if not line.strip():
            continue
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            found.torn += 1


def _take(entry: Any, found: Found) -> None:
    if isinstance(entry, str):  # a progress that was encoded twice
        try:
            entry = json.loads(entry)
        except json.JSONDecodeError:
            found.torn += 1
            return
    if not isinstance(entry, dict):
        return
    if entry.get("Event") == "SparkListenerTaskEnd":
        metrics = entry.get("Task Metrics") or {}
        run, collection = metrics.get("Executor Run Time", 0), metrics.get("JVM GC Time", 0)
        found.tasks.append((int(entry.get("Stage ID", 0)), run / 1e3, collection / 1e3))
        return
    idle = entry.get("idle") or (entry if entry.get("Event") == IDLE else None)
    if isinstance(idle, dict):
        quiet = idle_of(idle)
        found.records += [] if quiet is None else [quiet]
        return
    progress = entry.get("progress", entry)
    if isinstance(progress, str):
        _take(progress, found)
        return
    record = record_of(progress) if isinstance(progress, dict) and "batchId" in progress else None
    if record is not None:
        found.records.append(record)
    elif "batchId" in entry or "progress" in entry:
        found.torn += 1
