"""Finding progresses in what users have: a run's directory, a listener's lines, `recentProgress`, logs, a Spark event log."""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from penstock.errors import SourceError
from penstock.planner.forms import STANDARD_INPUT, Objects, files_of, is_progress, lines_of
from penstock.runs.record import Record, idle_of, record_of
from penstock.storage import journal
from penstock.storage.place import is_local

IDLE = "org.apache.spark.sql.streaming.StreamingQueryListener$QueryIdleEvent"
WANTED = (
    "give a run's directory, progress as JSON (a listener's lines, recentProgress, a driver's log, a platform's event log; "
    "packed or not; - is standard input), or a Spark event log"
)
Progress = Callable[[float, float], None]
TOLD_EACH = 1000
"""Lines after which it is told how far a recording has been read."""
MOST = 100_000
"""Progresses that are modelled, the last ones: their memory is bounded however long a query was recorded."""
FAR_S = 366 * 86400.0
"""A progress at such a distance from the others is of a clock that was wrong."""
OF_STREAMS = {"batchTime", "inputSize", "processingTime"}
"""What batches of DStreams have, by which Spark streamed before Structured Streaming."""


@dataclass
class Found:
    """What a file holds.

    Parameters
    ----------
    records: progresses in the order of the file.
    torn: lines that are no JSON: cut off in the middle, or something else.
    odd: progresses left out, whose times or durations cannot be.
    earlier: progresses left out, since there are too many.
    tasks: of an event log, of each task of each micro-batch: (stage, run time, garbage collection) in seconds.
    """

    path: Path
    records: list[Record] = field(default_factory=list)
    torn: int = 0
    odd: int = 0
    earlier: int = 0
    tasks: list[tuple[int, float, float]] = field(default_factory=list)


def find(path: Path, progress: Progress | None = None) -> Found:
    """The progresses of a recording.

    Parameters
    ----------
    progress: told now and then how many bytes have been read, and of how many; of a packed file both are about.

    Raises
    ------
    SourceError: there are none; says what is wanted.
    """
    found = Found(path)
    last: deque[bytes] = deque(maxlen=MOST)  # as JSON, which takes a tenth of the memory
    streams = 0
    try:
        for entry in _entries(path, found, progress):
            if isinstance(entry, dict) and entry.keys() >= OF_STREAMS:
                streams += 1
            told = _told(entry, found)
            if told is not None:
                found.earlier += len(last) == MOST
                last.append(msgspec.json.encode(told))
    except OSError as error:
        raise SourceError(f"{path} cannot be read ({error.strerror or error}): {WANTED}.") from error
    if streams and not last:
        raise SourceError(
            f"{path} holds {streams} batches of DStreams, which are no micro-batches of Structured Streaming: their progress "
            "says neither what waits nor what a batch costs before it begins."
        )
    found.records = _plausible(map(msgspec.json.decode, last), found)
    if not any(record.sources for record in found.records):
        reason = f"holds {found.torn} lines, none of which is" if found.torn else "holds no"
        raise SourceError(f"{path} {reason} progress of a streaming query: {WANTED}.")
    return found


def _entries(path: Path, found: Found, progress: Progress | None) -> Iterator[Any]:
    objects = Objects()
    if not is_local(path) and path.is_dir():  # the progresses of a run in a store
        yield from objects.of(line.decode() for line in journal.lines_of(path))
    else:
        files = [path] if str(path) in STANDARD_INPUT else files_of(path)
        size = 0 if str(path) in STANDARD_INPUT or progress is None else sum(file.stat().st_size for file in files)
        lines = chain.from_iterable(map(lines_of, files))
        yield from objects.of(lines if progress is None else _counted(lines, size, progress))
    found.torn += objects.torn


def _counted(lines: Iterable[str], size: int, progress: Progress) -> Iterator[str]:
    """The lines, while it is told how far they are."""
    done = 0
    for number, line in enumerate(lines):
        if number % TOLD_EACH == 0:
            progress(float(done), float(max(size, done)))
        done += len(line)
        yield line


def _plausible(told: Iterable[dict[str, Any]], found: Found) -> list[Record]:
    """The records of those whose times and durations can be."""
    made = [
        idle_of(one["idle"]) if "idle" in one else record_of({"batchId": found.earlier + number, **one})
        for number, one in enumerate(told)
    ]
    records = [record for record in made if record is not None]
    middle = median(record.started for record in records) if records else 0.0
    kept = [
        record
        for record in records
        if abs(record.started - middle) < FAR_S and all(map(math.isfinite, record.phases.values())) and record.duration >= 0
    ]
    found.odd += len(made) - len(kept)
    return kept


def _told(entry: Any, found: Found) -> dict[str, Any] | None:
    """The progress in an entry, or the event that a query idles; what a task took is noted."""
    if not isinstance(entry, dict):
        return None
    if entry.get("Event") == "SparkListenerTaskEnd":
        metrics = entry.get("Task Metrics") or {}
        run, collection = metrics.get("Executor Run Time", 0), metrics.get("JVM GC Time", 0)
        found.tasks.append((int(entry.get("Stage ID", 0)), run / 1e3, collection / 1e3))
        return None
    idle = entry.get("idle") or (entry if entry.get("Event") == IDLE else None)
    if isinstance(idle, dict):
        return {"idle": idle}
    progress = entry.get("progress", entry)
    if isinstance(progress, dict) and is_progress(progress):
        return progress
    found.torn += "batchId" in entry or "progress" in entry
    return None
