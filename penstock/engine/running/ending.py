"""The end of the input: the watermark passes everything, and Spark closes all windows in a last micro-batch of each group.

Whenever the watermark has advanced, Spark plans a micro-batch without data: an entry of its log of offsets with the offsets of
the one before and the new watermark. The last micro-batch is planned so, while the query is stopped, for Spark's own watermark
follows events only. A run that is killed on the way repeats it like any other.
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
from penstock.storage import durable

FOREVER_MS = FOREVER // 1000


class Ending:
    """The end of a run's groups, one after the other, for each feeds those after it.

    Parameters
    ----------
    groups: in their order.
    end: stops the query of the group at a place, plans its last micro-batch, and starts it again.
    """

    def __init__(self, groups: Sequence[BoundGroup], end: Callable[[int], None]) -> None:
        self._groups, self._end = groups, end

    def over(self) -> bool:
        """Whether all groups have had their last micro-batch; called when all is idle, and begins the next one's."""
        for place, group in enumerate(self._groups):
            if waits(group) and _last_planned(group.checkpoint)[1]["batchWatermarkMs"] < FOREVER_MS:
                self._end(place)
                return False
        return True


def waits(group: BoundGroup) -> bool:
    """Whether a group has state that waits for the watermark: by its checkpoint, for a start that finds all read runs no
    micro-batch.
    """
    if not batches(group.checkpoint, "offsets"):
        return False
    if not group.group.native:
        return any(element.waits_for_watermark for element in group.topology.elements)
    return (group.checkpoint / "state").exists() and _has_watermark(group.checkpoint)


def _has_watermark(checkpoint: Path) -> bool:
    """Whether a query has one by now; that which a micro-batch has brought about is noted when it is completed."""
    if _last_planned(checkpoint)[1]["batchWatermarkMs"]:
        return True
    completed = batches(checkpoint, "commits")[-1:]
    return any(json.loads(_lines(checkpoint / "commits" / str(number))[1])["nextBatchWatermarkMs"] for number in completed)


def plan_last(checkpoint: Path) -> None:
    """Plan the last micro-batch of a query that is stopped and has completed the one before."""
    number, metadata, others = _last_planned(checkpoint)
    metadata |= {"batchWatermarkMs": FOREVER_MS, "batchTimestampMs": time.time_ns() // 1_000_000}
    version, *offsets = others
    lines = [version, json.dumps(metadata, separators=(",", ":")), *offsets]
    durable.write(checkpoint / "offsets" / str(number + 1), "\n".join(lines))


def first_end(checkpoint: Path) -> int | None:
    """The micro-batch that has closed, or is to close, what waited for the watermark; None, if none was planned.

    Timers on processing time may have brought about others after it.
    """
    if not has_ended(checkpoint):
        return None
    planned = batches(checkpoint, "offsets")
    ends = [number for number in planned if _planned(checkpoint, number)[1]["batchWatermarkMs"] >= FOREVER_MS]
    return ends[0]


def unplan(checkpoint: Path, number: int) -> None:
    """Take back a last micro-batch that was planned and not committed: there may be more input by now, which it would make
    late.

    With what its attempt has left of state, for Spark would go on from a snapshot of that.
    """
    durable.remove(checkpoint / "offsets" / str(number))
    durable.remove(checkpoint / "offsets" / f".{number}.crc")
    _remove_versions(checkpoint / "state", number + 1)


def _remove_versions(directory: Path, version: int) -> None:
    for name in durable.names(directory):
        path = directory / name
        if re.match(rf"\.?{version}[._]\D", name):
            durable.remove(path)
        elif path.is_dir():
            _remove_versions(path, version)


def has_done_what_is_planned(checkpoint: Path) -> bool:
    """Whether a query has nothing under way, but what time alone has brought about.

    A micro-batch without data is planned like any other: where a watermark that has moved closes windows, and, one after the
    other for ever, where timers on processing time are to come.
    """
    if is_between(checkpoint):
        return True
    planned, committed = batches(checkpoint, "offsets"), batches(checkpoint, "commits")
    return len(planned) > 1 and planned[-2:-1] == committed[-1:] and _moves_nothing(checkpoint, planned[-1])


def is_between(checkpoint: Path) -> bool:
    """Whether a query has committed all that it has planned."""
    return batches(checkpoint, "offsets")[-1:] == batches(checkpoint, "commits")[-1:]


def _moves_nothing(checkpoint: Path, number: int) -> bool:
    """Whether a micro-batch has the offsets and the watermark of the one before."""
    before, after = (_planned(checkpoint, one) for one in (number - 1, number))
    return before[1]["batchWatermarkMs"] == after[1]["batchWatermarkMs"] and before[2] == after[2]


def has_ended(checkpoint: Path) -> bool:
    """Whether a query's last micro-batch has been planned."""
    return bool(batches(checkpoint, "offsets")) and _last_planned(checkpoint)[1]["batchWatermarkMs"] >= FOREVER_MS


def _last_planned(checkpoint: Path) -> tuple[int, dict[str, Any], list[str]]:
    """The last entry of the log of offsets."""
    return _planned(checkpoint, batches(checkpoint, "offsets")[-1])


def _planned(checkpoint: Path, number: int) -> tuple[int, dict[str, Any], list[str]]:
    """An entry of the log of offsets: its number, what it says of the micro-batch, and its other lines."""
    version, metadata, *offsets = _lines(checkpoint / "offsets" / str(number))
    return number, json.loads(metadata), [version, *offsets]


def _lines(entry: Path) -> list[str]:
    """Of an entry of one of Spark's logs: its version first."""
    return durable.read(entry).decode().splitlines()


def raise_watermark(query: StreamingQuery, mark_ms: int) -> None:
    """Let a query's watermark be so many milliseconds since the epoch after the micro-batch that it runs, unless it is greater.

    Only while one runs: Spark has fixed the watermark of the next one once it has looked for data in vain.
    """
    tracker = query._jsq.streamingQuery().watermarkTracker()
    if mark_ms > tracker.currentWatermark():
        tracker.setWatermark(mark_ms)
