"""Late events: which they are, and what becomes of them."""

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.app.element import Element
from penstock.app.stream import Stream
from penstock.errors import LateEventError
from penstock.runtime.lineage import LAST, NONE, SOURCE_SHIFT, LineageColumns
from penstock.runtime.stage import Stage

Row = Callable[[int], tuple[Stream[Any], Any]]
"""The stream by which an event has come, and the event, by its row."""


class Latecomers:
    """The late events of one element in one partition, counted and treated as their sources say."""

    def __init__(self, element: Element, stage: Stage) -> None:
        self._element, self._stage = element, stage
        self._tally = stage.tally.element(element.name)

    def refuse_all(self, watermark: float | None, lineage: LineageColumns, row_of: Row) -> set[int]:
        """The rows of events that are late and whose sources' policies keep them from being handled.

        Whether an event is late for a window of time the window knows.
        """
        if watermark is None or self._element.judges_lateness:
            return set()
        late = np.flatnonzero((lineage.time != NONE) & (lineage.time < watermark * 1e6)).tolist()
        refused = set()
        for row in late:
            behind = watermark - lineage.time[row] / 1e6
            error = LateEventError(f"the event is {behind:.3f} s older than the watermark")
            if self.refuse(row, error, lineage, row_of):
                refused.add(row)
        return refused

    def refuse(self, row: int, error: LateEventError, lineage: LineageColumns, row_of: Row) -> bool:
        """Count a late event, and do with it what its source says; whether it is kept from being handled."""
        self._tally.late += 1
        policy = "dead-letter"
        if lineage.major[row] != LAST:
            event_time = self._stage.wiring.topology.sources[int(lineage.minor[row]) >> SOURCE_SHIFT].event_time
            policy = policy if event_time is None else event_time.late
        if policy == "dead-letter":
            self._stage.letters.write(self._element.name, *row_of(row), error, lineage.row(row))
        return policy != "process"
