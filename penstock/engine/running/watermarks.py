"""How far the sources of a group are in event time, and the watermark that holds where some of them have fallen silent."""

import time
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.app.stream import Source
from penstock.runtime.lineage import NONE
from penstock.runtime.tally import SourceTally


class Watermarks:
    """The event times that a group's sources have reached, and when each gave its last event.

    Parameters
    ----------
    sources: of the group; those without an event time do not count.
    """

    def __init__(self, sources: Iterable[Source[Any]]) -> None:
        self._times = {source.name: source.event_time for source in sources if source.event_time is not None}
        began = time.monotonic()
        self._last = dict.fromkeys(self._times, began)
        self._newest: dict[str, int] = {}

    def note(self, sources: Mapping[str, SourceTally]) -> None:
        """Take in what a micro-batch has read."""
        now = time.monotonic()
        for name in self._times.keys() & sources.keys():
            if sources[name].newest_us != NONE:
                self._newest[name] = max(sources[name].newest_us, self._newest.get(name, NONE))
                self._last[name] = now

    def without_idle_ms(self) -> int | None:
        """The least watermark of the sources that still speak, milliseconds; None where none has fallen silent, or all have."""
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
