"""The live line, which shows the state of a run in the terminal. Silent if standard error is no terminal."""

import sys
import time
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from rich.console import Console
from rich.status import Status

from penstock.connectors.lag import Waiting, said
from penstock.runs.batches import BatchRecord
from penstock.visible import visible


class Snapshot(NamedTuple):
    """Totals so far: source events read, events written to sinks (``left``), source events dead-lettered.

    ``watermarks`` are by source, the lowest first, which holds the others back.
    """

    taken: int
    left: int
    dead: int
    watermarks: Mapping[str, str]


class Live:
    """Writes one line that is updated in place, and messages above it, to standard error."""

    def __init__(self, *, quiet: bool) -> None:
        self._console = Console(stderr=True, quiet=quiet or not sys.stderr.isatty())
        self._status: Status | None = None
        self._recent: deque[tuple[float, float, int]] = deque(maxlen=50)
        self._last: tuple[float, BatchRecord] | None = None
        self._waiting: Mapping[str, Waiting] = {}
        self._since = time.monotonic()

    @property
    def waits(self) -> bool:
        """Whether the line is shown, but no batch has been committed yet."""
        return self._status is not None and self._last is None

    def say(self, message: str) -> None:
        """Print a message above the line; the first one becomes the line itself."""
        if self._status is None and not self._console.quiet:
            self._status = self._console.status(visible(message))
            self._status.start()
        elif not self._console.quiet:
            self._console.print(visible(message))

    def batch(self, events: int, seconds: float, record: BatchRecord) -> None:
        """Note a committed batch, its number of source events, and its duration in seconds."""
        now = time.monotonic()
        self._recent.append((now - seconds, now, events))
        self._last = (seconds, record)

    def waiting(self, found: Mapping[str, Waiting]) -> None:
        """Note the rows that wait at sources, from a progress report of Spark; called from another thread."""
        self._waiting = {**self._waiting, **found}

    def phase(self, text: str) -> None:
        """Show a phase before the first committed batch, with the seconds since the start."""
        if self._status is not None and self._last is None:
            self._status.update(f"{text} ({time.monotonic() - self._since:.0f} s)")

    def show(self, snapshot: Snapshot) -> None:
        """Update the line."""
        if self._status is None or self._last is None:
            return
        seconds, record = self._last
        latency = record.latency_ms.quantile(0.5)
        latency_text = "" if latency is None else f" · latency p50 {latency / 1000:.2f} s"
        lag = said(self._waiting)
        self._status.update(
            visible(
                f"{snapshot.taken:,} events in · {snapshot.left:,} out · {snapshot.dead:,} dead letters · "
                f"{self._rate():,.0f}/s · batch {record.batch}: {seconds:.2f} s{latency_text}{_held(snapshot.watermarks)}"
                + (f" · {lag}" if lag else "")
            )
        )

    def close(self) -> None:
        """Remove the line."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def _rate(self) -> float:
        """Return source events per second, over the batches that were committed in the last ten seconds."""
        now = time.monotonic()
        recent = [(began, events) for began, ended, events in self._recent if now - ended <= 10]
        return sum(events for _, events in recent) / max(1.0, now - recent[0][0]) if recent else 0.0


def _held(watermarks: Mapping[str, str]) -> str:
    """Return the text on the lowest watermark, with its source's name if there are several; empty without any."""
    if not watermarks:
        return ""
    name, mark = next(iter(watermarks.items()))
    return f" · watermark {mark}" + (f" ({name})" if len(watermarks) > 1 else "")
