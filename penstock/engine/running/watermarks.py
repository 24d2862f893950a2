"""The event times that a group's sources have reached, and the watermark that holds while some sources are idle."""

import time
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.app.stream import Source
from penstock.runtime.lineage import NONE
from penstock.runtime.tally import SourceTally


class Watermarks:
    """The event times that a group's sources have reached, and when each gave its last event.

    Args:
        sources: the group's sources; those without an event time are ignored.
    """

    def __init__(self, sources: Iterable[Source[Any]]) -> None:
        self._times = {source.name: source.event_time for source in sources if source.event_time is not None}
        began = time.monotonic()
        self._last = dict.fromkeys(self._times, began)
        self._newest: dict[str, int] = {}

    def note(self, sources: Mapping[str, SourceTally]) -> None:
        """Note the newest event times that a micro-batch has read, by source."""
        now = time.monotonic()
        for name in self._times.keys() & sources.keys():
            if sources[name].newest_us != NONE:
                self._newest[name] = max(sources[name].newest_us, self._newest.get(name, NONE))
                self._last[name] = now

    def without_idle_ms(self) -> int | None:
        """Return the least watermark of the sources that are not idle, in milliseconds; None if none is idle, or all are."""
        now = time.monotonic()
        idle = {
            name
            for name, event_time in self._times.items()
            if event_time.idle is not None and now - self._last[name] >= event_time.idle
        }
        speaking = self._times.keys() - idle
        if not idle or not speaking or not speaking <= self._newest.keys():
            return None
        return min(self._newest[name] // 1000 - round(self._times[name].lateness * 1000) for name in speaking)
