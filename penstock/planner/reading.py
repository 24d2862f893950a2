"""Reads query progress from a run's directory, a listener's lines, `recentProgress`, logs, or a Spark event log."""

import json
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import msgspec

from penstock.errors import SourceError
from penstock.planner.forms import Objects
from penstock.planner.lines import STANDARD_INPUT, files_of, lines_of
from penstock.planner.transport import is_progress, texts_in
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
"""Lines between two calls that report how far a recording has been read."""
MOST = 100_000
"""The most progress records that are modelled, the last ones, so that memory is bounded for long recordings."""
LARGEST_EXPORT = 256 << 20
"""The most bytes of a file that is read as one object."""
FAR_S = 366 * 86400.0
"""A progress record so far from the others in time was made with a wrong clock."""
OF_STREAMS = {"batchTime", "inputSize", "processingTime"}
"""Fields of a batch of DStreams, the predecessor of Structured Streaming."""


class Task(NamedTuple):
    """A task, from an event log; times in seconds.

    Args:
        query: the identifier of the streaming query whose job the task is of; empty where the log does not say it.
    """

    stage: int
    run: float
    collecting: float
    query: str = ""


@dataclass
class Found:
    """The contents of a recording.

    Args:
        records: progress records in the order of the file.
        unread: sentences on files of a directory that are left out.
        torn: number of objects that are cut off, or look like progress and are not.
        odd: number of progress records that are left out because their times or durations are impossible.
        earlier: number of progress records that are left out because there are too many.
        tasks: from an event log.
        queries_of: by stage, the identifier of the query whose job it is of.
    """

    path: Path
    records: list[Record] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    torn: int = 0
    odd: int = 0
    earlier: int = 0
    tasks: list[Task] = field(default_factory=list)
    queries_of: dict[int, str] = field(default_factory=dict)


def find(path: Path, progress: Progress | None = None) -> Found:
    """Read the progress records of a recording.

    Args:
        progress: called now and then with the bytes that have been read and their total; approximate for a compressed file.

    Raises:
        SourceError: there are none; says what can be read.
    """
    found = Found(path)
    last: deque[bytes] = deque(maxlen=MOST)  # kept as JSON, which takes a tenth of the memory
    streams = 0
    try:
        for entry in _entries(path, found, progress):
            if isinstance(entry, dict) and entry.keys() >= OF_STREAMS:
                streams += 1
            entry_progress = _told(entry, found)
            if entry_progress is not None:
                found.earlier += len(last) == MOST
                last.append(msgspec.json.encode(entry_progress))
    except SourceError:
        raise
    except OSError as error:
        raise SourceError(f"{path} cannot be read ({error.strerror or error}): {WANTED}.") from error
    if streams and not last:
        raise SourceError(
            f"{path} holds {streams} batches of DStreams, which are no micro-batches of Structured Streaming: their progress "
            "says neither what waits nor what a batch costs before it begins."
        )
    found.records = _plausible(map(msgspec.json.decode, last), found)
    if not any(record.sources for record in found.records):
        if found.odd:
            raise SourceError(
                f"{path} holds {found.odd} progress records, of none of which the timestamp, the durations and the sources can "
                f"be read: {WANTED}, as Spark writes it."
            )
        reason = f"holds {found.torn} lines, none of which is" if found.torn else "holds no"
        raise SourceError(f"{path} {reason} progress of a streaming query: {WANTED}.")
    return found


def _entries(path: Path, found: Found, progress: Progress | None) -> Iterator[Any]:
    objects = Objects()
    if not is_local(path) and path.is_dir():  # the progress of a run in a store
        yield from objects.of(line.decode() for line in journal.lines_of(path))
    else:
        files = [path] if str(path) in STANDARD_INPUT else files_of(path)
        size = 0 if str(path) in STANDARD_INPUT or progress is None else sum(file.stat().st_size for file in files)
        lines = lines_of(files[0]) if len(files) == 1 else chain.from_iterable(_readable(file, found) for file in files)
        some = False
        for each in objects.of(lines if progress is None else _counted(lines, size, progress)):
            some = some or is_progress(each)
            yield each
        if not some and str(path) not in STANDARD_INPUT:
            yield from chain.from_iterable(map(_exported, files))
    found.torn += objects.torn


def _readable(file: Path, found: Found) -> Iterator[str]:
    """The lines of one of several files; none if it is no text, which is noted."""
    try:
        yield from lines_of(file)
    except SourceError as error:
        found.unread.append(str(error))


def _exported(file: Path) -> Iterator[Any]:
    """The objects in a file that is one object of JSON, as services export logs: the text is a line in each entry of a list."""
    if file.stat().st_size > LARGEST_EXPORT:
        return
    try:
        value = json.loads("".join(lines_of(file)))
    except (ValueError, RecursionError, SourceError):
        return
    yield from Objects().of(texts_in(value))


ROUNDED_S = 0.1
"""How much longer than its micro-batch a phase may seem, in seconds, as each is measured and rounded by itself."""


def _counted(lines: Iterable[str], size: int, progress: Progress) -> Iterator[str]:
    """The lines; reports how far they have been read."""
    done = 0
    for number, line in enumerate(lines):
        if number % TOLD_EACH == 0:
            progress(float(done), float(max(size, done)))
        done += len(line)
        yield line


def _plausible(told: Iterable[dict[str, Any]], found: Found) -> list[Record]:
    """Records of the entries whose times and durations are possible; counts the others."""
    made = [idle_of(entry["idle"]) if "idle" in entry else record_of(entry) for entry in _numbered(list(told), found.earlier)]
    records = [record for record in made if record is not None]
    middle = median(record.started for record in records) if records else 0.0
    possible = [record for record in records if abs(record.started - middle) < FAR_S and _is_possible(record)]
    found.odd += len(made) - len(possible)
    ordered = _in_order(possible)
    _refuse_overlapping(ordered, found.path)
    return ordered


def _in_order(records: list[Record]) -> list[Record]:
    """The records by their times where a log has others first, such as the newest. A clock that was set back does not count:
    micro-batches of one start are numbered.
    """
    latest: dict[tuple[str, str], int] = {}
    for record in filter(_took, records):
        if record.number < latest.get((record.query, record.run), -1):
            return sorted(records, key=lambda one: one.started)
        latest[record.query, record.run] = record.number
    return records


def _numbered(told: Sequence[dict[str, Any]], first: int) -> Iterable[dict[str, Any]]:
    """The entries, with numbers where they have none: by their places, or from the end where the newest come first."""
    stamps = [entry["timestamp"] for entry in told if "timestamp" in entry]
    falls = sum(str(other) < str(one) for one, other in pairwise(stamps))
    step = -1 if 2 * falls > len(stamps) else 1
    begins = first if step > 0 else first + len(told) - 1
    return ({"batchId": begins + step * place, **entry} for place, entry in enumerate(told))


def _took(record: Record) -> bool:
    return record.taken > 0


def _refuse_overlapping(records: Sequence[Record], path: Path) -> None:
    """Refuse records of which most begin before the last one of their start has ended, which Spark's never do."""
    before: dict[tuple[str, str], Record] = {}
    pairs = overlapping = 0
    for record in filter(_took, records):
        last = before.get((record.query, record.run))
        if last is not None and last.number != record.number:  # else the micro-batch is there twice
            pairs += 1
            overlapping += record.started + ROUNDED_S < last.started + last.duration
        before[record.query, record.run] = record
    if overlapping > max(2, pairs / 2):
        raise SourceError(
            f"Most micro-batches of {path} begin before the last one has ended: its times are in other units. Give "
            "timestamps in ISO 8601, and durationMs in milliseconds."
        )


def _is_possible(record: Record) -> bool:
    """Whether a micro-batch lasted as long as each of its phases at least, and none was negative."""
    longest = record.duration + ROUNDED_S
    return record.duration >= 0 and all(math.isfinite(phase) and 0 <= phase <= longest for phase in record.phases.values())


def _told(entry: Any, found: Found) -> dict[str, Any] | None:
    """The progress in an entry, or its event that a query is idle; None for others. Adds the times of a task to ``found``."""
    if not isinstance(entry, dict):
        return None
    if entry.get("Event") == "SparkListenerJobStart":
        query = (entry.get("Properties") or {}).get("sql.streaming.queryId", "")
        found.queries_of.update((int(stage), query) for stage in entry.get("Stage IDs") or ())
        return None
    if entry.get("Event") == "SparkListenerTaskEnd":
        metrics = entry.get("Task Metrics") or {}
        run, collection = metrics.get("Executor Run Time", 0), metrics.get("JVM GC Time", 0)
        stage = int(entry.get("Stage ID", 0))
        found.tasks.append(Task(stage, run / 1e3, collection / 1e3, found.queries_of.get(stage, "")))
        return None
    idle = entry.get("idle") or (entry if entry.get("Event") == IDLE else None)
    if isinstance(idle, dict):
        return {"idle": idle}
    progress = entry.get("progress", entry)
    if isinstance(progress, dict) and is_progress(progress):
        return progress
    found.torn += "batchId" in entry or "progress" in entry
    return None
