"""The live line: what a person sees while a run is on. Silent when the output is no terminal."""

import sys
import time
from collections import deque
from typing import NamedTuple

from rich.console import Console
from rich.status import Status

from penstock.engine.ledger import BatchRecord


class Snapshot(NamedTuple):
    """Totals so far: source events taken in, events that left at sinks, source events dead-lettered."""

    taken: int
    left: int
    dead: int


class Live:
    """One line that is written over, and messages above it; to standard error."""

    def __init__(self, *, quiet: bool) -> None:
        self._console = Console(stderr=True, quiet=quiet or not sys.stderr.isatty())
        self._status: Status | None = None
        self._recent: deque[tuple[float, int]] = deque(maxlen=50)
        self._last: tuple[float, BatchRecord] | None = None

    def say(self, message: str) -> None:
        """A message that stays, and the start of the line below it."""
        if self._status is None and not self._console.quiet:
            self._status = self._console.status(message)
            self._status.start()

    def batch(self, events: int, seconds: float, record: BatchRecord) -> None:
        """Note a committed batch."""
        self._recent.append((time.monotonic(), events))
        self._last = (seconds, record)

    def show(self, snapshot: Snapshot) -> None:
        """Write the line anew."""
        if self._status is None or self._last is None:
            return
        seconds, record = self._last
        latency = record.latency_ms.quantile(0.5)
        waited = "" if latency is None else f" · latency p50 {latency / 1000:.2f} s"
        self._status.update(
            f"{snapshot.taken:,} events in · {snapshot.left:,} out · {snapshot.dead:,} dead letters · "
            f"{self._rate():,.0f}/s · batch {record.batch}: {seconds:.2f} s{waited}"
        )

    def close(self) -> None:
        """Take the line away."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def _rate(self) -> float:
        """Source events per second over the last ten seconds."""
        now = time.monotonic()
        recent = [(at, events) for at, events in self._recent if now - at <= 10]
        return sum(events for _, events in recent) / max(1.0, now - recent[0][0]) if recent else 0.0
