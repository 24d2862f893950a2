"""Late events: finds them, and applies the policy of their source."""

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.app.element import Element
from penstock.app.joins import Joining, Once
from penstock.app.stepwise import field_of
from penstock.app.stream import Source, Stream
from penstock.app.window.windowing import of_watermark
from penstock.errors import LateEventError
from penstock.kinds.moments import microseconds
from penstock.runtime.lineage import LAST, NONE, SOURCE_SHIFT, LineageColumns
from penstock.runtime.stage import Stage

Row = Callable[[int], tuple[Stream[Any], Any]]
"""Returns the stream of an event, and the event, by its row."""


class Latecomers:
    """Counts the late events of one element in one partition, and treats them by the policies of their sources."""

    def __init__(self, element: Element, stage: Stage) -> None:
        self._element, self._stage = element, stage
        self._tally = stage.tally.element(element.name)
        self._times = _own_times(element)

    def refuse_all(self, watermark: float | None, fired: float | None, lineage: LineageColumns, row_of: Row) -> set[int]:
        """Find and count late events; returns the rows of those that must not be handled, by their sources' policies.

        Elements that judge lateness themselves, such as windows, are skipped. An event that is older, by the time by which a
        join matches, than what the join may have dropped is late in part: it is matched with what is left.

        Args:
            fired: the watermark of the previous micro-batch, up to which joins have dropped what they held.
        """
        if watermark is None or self._element.judges_lateness:
            return set()
        late = np.flatnonzero((lineage.time != NONE) & (lineage.time < of_watermark(watermark))).tolist()
        refused = set()
        for row in late:
            behind = watermark - lineage.time[row] / 1e6
            error = LateEventError(f"the event is {behind:.3f} s older than the watermark")
            if self.refuse(row, error, lineage, row_of):
                refused.add(row)
        if self._times and fired is not None:
            mark = of_watermark(fired)
            for row in sorted({*range(len(lineage.time))}.difference(late)):
                _, event = row_of(row)
                reader = self._times.get(type(event))
                self._tally.late_in_part += reader is not None and microseconds(reader(event)) < mark
        return refused

    def refuse(self, row: int, error: LateEventError, lineage: LineageColumns, row_of: Row) -> bool:
        """Count a late event, and apply its source's policy; returns whether the event must not be handled."""
        self._tally.late += 1
        policy = "dead-letter"
        if lineage.major[row] != LAST:
            event_time = self._stage.wiring.topology.sources[int(lineage.minor[row]) >> SOURCE_SHIFT].event_time
            policy = policy if event_time is None else event_time.late
        if policy == "dead-letter":
            self._stage.letters.write(self._element.name, *row_of(row), error, lineage.row(row))
        return policy != "process"


def _own_times(element: Element) -> dict[type[Any], Callable[[Any], Any]]:
    """Return, by type of event, what reads the time by which a join matches, where that is not the source's event time."""
    prototype = element.prototype
    if prototype is None or not issubclass(prototype, Joining | Once):
        return {}
    judged = {
        stream.name: stream.event_time.field for stream in element.inputs if isinstance(stream, Source) and stream.event_time
    }
    readers = zip(element.inputs, prototype.readers(), strict=True)
    return {stream.event_type: reader for stream, reader in readers if judged.get(stream.name) != field_of(reader)}
