"""The live line: what a person sees while a run is on. Silent when the output is no terminal."""

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
    """Totals so far: source events taken in, events that left at sinks, source events dead-lettered.

    ``watermarks`` are by source, the one that holds the others back first.
    """

    taken: int
    left: int
    dead: int
    watermarks: Mapping[str, str]


class Live:
    """One line that is written over, and messages above it; to standard error."""

    def __init__(self, *, quiet: bool) -> None:
        self._console = Console(stderr=True, quiet=quiet or not sys.stderr.isatty())
        self._status: Status | None = None
        self._recent: deque[tuple[float, float, int]] = deque(maxlen=50)
        self._last: tuple[float, BatchRecord] | None = None
        self._waiting: Mapping[str, Waiting] = {}
        self._since = time.monotonic()

    @property
    def waits(self) -> bool:
        """Whether a person sees the line, and no batch has been committed yet."""
        return self._status is not None and self._last is None

    def say(self, message: str) -> None:
        """A message that stays, and at first the start of the line below it."""
        if self._status is None and not self._console.quiet:
            self._status = self._console.status(visible(message))
            self._status.start()
        elif not self._console.quiet:
            self._console.print(visible(message))

    def batch(self, events: int, seconds: float, record: BatchRecord) -> None:
        """Note a committed batch that has taken so many seconds."""
        now = time.monotonic()
        self._recent.append((now - seconds, now, events))
        self._last = (seconds, record)

    def waiting(self, found: Mapping[str, Waiting]) -> None:
        """Note what waits at sources, as Spark has said after a micro-batch; called from another thread."""
        self._waiting = {**self._waiting, **found}

    def phase(self, text: str) -> None:
        """What goes on before the first batch is committed; how long it has gone on is added."""
        if self._status is not None and self._last is None:
            self._status.update(f"{text} ({time.monotonic() - self._since:.0f} s)")

    def show(self, snapshot: Snapshot) -> None:
        """Write the line anew."""
        if self._status is None or self._last is None:
            return
        seconds, record = self._last
        latency = record.latency_ms.quantile(0.5)
        waited = "" if latency is None else f" · latency p50 {latency / 1000:.2f} s"
        lag = said(self._waiting)
        self._status.update(
            visible(
                f"{snapshot.taken:,} events in · {snapshot.left:,} out · {snapshot.dead:,} dead letters · "
                f"{self._rate():,.0f}/s · batch {record.batch}: {seconds:.2f} s{waited}{_held(snapshot.watermarks)}"
                + (f" · {lag}" if lag else "")
            )
        )

    def close(self) -> None:
        """Take the line away."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def _rate(self) -> float:
        """Source events per second since the first of the batches began that were committed in the last ten seconds."""
        now = time.monotonic()
        recent = [(began, events) for began, ended, events in self._recent if now - ended <= 10]
        return sum(events for _, events in recent) / max(1.0, now - recent[0][0]) if recent else 0.0


def _held(watermarks: Mapping[str, str]) -> str:
    """How far event time is, and by whom it is held back where there are several."""
    if not watermarks:
        return ""
    name, mark = next(iter(watermarks.items()))
    return f" · watermark {mark}" + (f" ({name})" if len(watermarks) > 1 else "")
