"""The end of the input: the watermark passes everything, and Spark closes all windows in a last micro-batch of each group.

Spark plans a micro-batch without data once the watermark has advanced, and notes the watermark in its log of offsets; so a
run that is killed on the way repeats the last micro-batch like any other.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark.sql.streaming.query import StreamingQuery

from penstock.app.window.windowing import FOREVER
from penstock.connectors.checkpoint import batches
from penstock.engine.binding import BoundGroup

FOREVER_MS = FOREVER // 1000


class Ending:
    """The end of a run's groups, one after the other, for each feeds those after it.

    Parameters
    ----------
    groups: in their order. queries: theirs.
    begin: takes the place of a group whose query has run no micro-batch since it was started, and makes it repeat its last one:
        Spark plans none without data before.
    has_run: whether the query of a group has run one.
    """

    def __init__(
        self, groups: Sequence[BoundGroup], queries: Sequence[StreamingQuery], begin: Callable[[int], None],
        has_run: Callable[[str], bool],
    ) -> None:  # fmt: skip
        self._groups, self._queries, self._begin, self._has_run = groups, queries, begin, has_run
        self.final = False
        """Whether any group had something that the end has closed."""

    def over(self) -> bool:
        """Whether all groups have had their last micro-batch; called when all is idle, and begins the next one's end."""
        for place, group in enumerate(self._groups):
            if not self._waits(place, group):
                continue
            self.final = True
            if watermark_ms(group.checkpoint) >= FOREVER_MS:
                continue
            if self._has_run(group.group.name):
                raise_watermark(self._queries[place], FOREVER_MS)
            else:
                self._begin(place)
            return False
        return True

    def _waits(self, place: int, group: BoundGroup) -> bool:
        """Whether a group has state that waits for the watermark."""
        if not batches(group.checkpoint, "offsets"):
            return False
        if not group.group.native:
            return any(element.waits_for_watermark for element in group.topology.elements)
        if watermark_ms(group.checkpoint) == 0:
            return False
        progress = self._queries[place].lastProgress
        return progress is None or bool(progress.stateOperators)


def raise_watermark(query: StreamingQuery, mark_ms: int) -> None:
    """Let a query's watermark be so many milliseconds since the epoch from its next trigger on, unless it is greater."""
    tracker = query._jsq.streamingQuery().watermarkTracker()
    if mark_ms > tracker.currentWatermark():
        tracker.setWatermark(mark_ms)


def watermark_ms(checkpoint: Path) -> int:
    """The watermark of the last micro-batch that was planned; 0 where there is none."""
    planned = batches(checkpoint, "offsets")
    if not planned:
        return 0
    metadata = json.loads((checkpoint / "offsets" / str(planned[-1])).read_text().splitlines()[1])
    return int(metadata["batchWatermarkMs"])


def forget_completion(checkpoint: Path) -> None:
    """Remove the note that the last micro-batch is complete, as if the driver had died before it, so that Spark repeats it."""
    last = batches(checkpoint, "commits")[-1]
    (checkpoint / "commits" / str(last)).unlink()
    (checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)
