"""The end of the input: in a last micro-batch of each group, the watermark passes everything and Spark closes all windows.

Whenever the watermark has advanced, Spark plans a micro-batch without data: an entry in its log of offsets that has the offsets
of the entry before and the new watermark. Penstock writes such an entry for the last micro-batch while the query is stopped,
because Spark's own watermark follows events only. A run that is killed on the way repeats this micro-batch like any other.
"""

import json
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from penstock.app.window.windowing import FOREVER
from penstock.connectors.checkpoint import batches
from penstock.engine.running.binding import BoundGroup
from penstock.errors import RunLockedError
from penstock.storage import durable

FOREVER_MS = FOREVER // 1000


class Ending:
    """Ends a run's groups one after the other, because each feeds those after it.

    Args:
        groups: all groups, in their order.
        end: stops the query of the group at an index, plans its last micro-batch, and starts it again.
    """

    def __init__(self, groups: Sequence[BoundGroup], end: Callable[[int], None]) -> None:
        self._groups, self._end = groups, end

    def over(self) -> bool:
        """Whether all groups have had their last micro-batch; if not, begins the next one. Called when all are idle."""
        for place, group in enumerate(self._groups):
            if waits(group) and _last_planned(group.checkpoint)[1]["batchWatermarkMs"] < FOREVER_MS:
                self._end(place)
                return False
        return True


def waits(group: BoundGroup) -> bool:
    """Whether a group has state that waits for the watermark, by its checkpoint: a start without input runs no micro-batch."""
    if not batches(group.checkpoint, "offsets"):
        return False
    if not group.group.native:
        return any(element.waits_for_watermark for element in group.topology.elements)
    return (group.checkpoint / "state").exists() and _has_watermark(group.checkpoint)


def _has_watermark(checkpoint: Path) -> bool:
    """Whether a query has a watermark yet. The one that a micro-batch brings about is in the entry that completes it."""
    if _last_planned(checkpoint)[1]["batchWatermarkMs"]:
        return True
    completed = batches(checkpoint, "commits")[-1:]
    return any(json.loads(_lines(checkpoint / "commits" / str(number))[1])["nextBatchWatermarkMs"] for number in completed)


def plan_last(checkpoint: Path) -> None:
    """Plan the last micro-batch of a query that is stopped and has completed all micro-batches before.

    Raises:
        RunLockedError: another driver has planned it, or another one in its place.
    """
    number, metadata, version_and_offsets = _last_planned(checkpoint)
    metadata |= {"batchWatermarkMs": FOREVER_MS, "batchTimestampMs": time.time_ns() // 1_000_000}
    version, *offsets = version_and_offsets
    lines = [version, json.dumps(metadata, separators=(",", ":")), *offsets]
    if not durable.create(checkpoint / "offsets" / str(number + 1), "\n".join(lines).encode()):
        raise RunLockedError(f"Another driver has planned batch {number + 1} of {checkpoint.name}, so this one has stopped.")


def first_end(checkpoint: Path) -> int | None:
    """Return the number of the micro-batch that `plan_last` has planned, whether or not it has run; None if there is none.

    Timers on processing time may have caused more micro-batches after it.
    """
    if not has_ended(checkpoint):
        return None
    planned = batches(checkpoint, "offsets")
    ends = [number for number in planned if _planned(checkpoint, number)[1]["batchWatermarkMs"] >= FOREVER_MS]
    return ends[0]


def unplan(checkpoint: Path, number: int) -> None:
    """Remove the plan of a last micro-batch that was not committed: there may be more input by now, which it would make late.

    Removes the state of its attempt, too, because Spark would go on from a snapshot of it.
    """
    _remove_versions(checkpoint / "state", number + 1)
    durable.remove(checkpoint / "offsets" / f".{number}.crc")
    durable.remove(checkpoint / "offsets" / str(number))  # last, as it says that there is something to remove


def _remove_versions(directory: Path, version: int) -> None:
    for name in durable.names(directory):
        path = directory / name
        if re.match(rf"\.?{version}[._]\D", name):
            durable.remove(path)
        elif path.is_dir():
            _remove_versions(path, version)


def has_done_what_is_planned(checkpoint: Path) -> bool:
    """Whether a query has nothing under way except a micro-batch that only the passing of time has caused.

    Spark plans micro-batches without data: one after the watermark has moved, to close windows, and an endless series of them
    if there are timers on processing time.
    """
    if is_between(checkpoint):
        return True
    planned, committed = batches(checkpoint, "offsets"), batches(checkpoint, "commits")
    return len(planned) > 1 and planned[-2:-1] == committed[-1:] and _moves_nothing(checkpoint, planned[-1])


def is_between(checkpoint: Path) -> bool:
    """Whether a query has completed all micro-batches that it has planned."""
    return batches(checkpoint, "offsets")[-1:] == batches(checkpoint, "commits")[-1:]


def _moves_nothing(checkpoint: Path, number: int) -> bool:
    """Whether a micro-batch has the same offsets and watermark as the one before."""
    before, after = (_planned(checkpoint, entry_number) for entry_number in (number - 1, number))
    return before[1]["batchWatermarkMs"] == after[1]["batchWatermarkMs"] and before[2] == after[2]


def has_ended(checkpoint: Path) -> bool:
    """Whether a query's last micro-batch has been planned."""
    return bool(batches(checkpoint, "offsets")) and _last_planned(checkpoint)[1]["batchWatermarkMs"] >= FOREVER_MS


def _last_planned(checkpoint: Path) -> tuple[int, dict[str, Any], list[str]]:
    """Return the last entry of the log of offsets, as `_planned` does."""
    return _planned(checkpoint, batches(checkpoint, "offsets")[-1])


def _planned(checkpoint: Path, number: int) -> tuple[int, dict[str, Any], list[str]]:
    """Return an entry of the log of offsets: its number, its metadata, and its other lines (the version and the offsets)."""
    version, metadata, *offsets = _lines(checkpoint / "offsets" / str(number))
    return number, json.loads(metadata), [version, *offsets]


def _lines(entry: Path) -> list[str]:
    """Return the lines of an entry in one of Spark's logs; the first is the version."""
    return durable.read(entry).decode().splitlines()


def raise_watermark(query: StreamingQuery, mark_ms: int) -> None:
    """Raise a query's watermark to ``mark_ms`` (since the epoch) after its present micro-batch, unless it is greater.

    Call this only while a micro-batch runs: after a poll without data, Spark has fixed the next watermark already.
    """
    tracker = query._jsq.streamingQuery().watermarkTracker()
    if mark_ms > tracker.currentWatermark():
        tracker.setWatermark(mark_ms)
