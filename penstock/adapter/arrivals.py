"""Measures arrivals at a door: their rate, variability and sizes, the inputs of the planner's queueing models."""

import math
import time
from collections import deque
from collections.abc import Callable

import msgspec


class Measured(msgspec.Struct):
    """Arrivals over a window. All figures are measured; rates are per second."""

    window_s: float
    requests: int
    events: int
    rate: float
    """Events per second."""
    rate_error: float | None
    """Standard error of ``rate``, for independent gaps and sizes; None below three requests."""
    request_rate: float
    gap_scv: float | None
    """Squared coefficient of variation of the times between requests."""
    size_mean: float | None
    size_scv: float | None
    """Squared coefficient of variation of the number of events in a request."""
    event_gap_scv: float | None
    """Squared coefficient of variation of the times between events; these are zero within a request."""


class _Second:
    """Sums over the requests of one second: of gaps and sizes to the powers 0, 1 and 2."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.requests = self.gaps = 0
        self.gap = self.gap2 = self.size = self.size2 = 0.0


class ArrivalStatistics:
    """Measures the requests of one stream over a sliding window, in constant memory.

    Args:
        window: length of the window in seconds.
    """

    def __init__(self, window: int = 60, clock: Callable[[], float] = time.monotonic) -> None:
        self._window, self._clock = window, clock
        self._began = clock()
        self._last: float | None = None
        self._seconds: deque[_Second] = deque()

    def note(self, events: int) -> None:
        """Record a request with a number of events."""
        now = self._clock()
        if not self._seconds or self._seconds[-1].number != int(now):
            self._seconds.append(_Second(int(now)))
            self._forget(now)
        second = self._seconds[-1]
        if self._last is not None:
            gap = now - self._last
            second.gaps += 1
            second.gap += gap
            second.gap2 += gap * gap
        second.requests += 1
        second.size += events
        second.size2 += events * events
        self._last = now

    def measured(self) -> Measured:
        """Return the figures of the window, or since the start if that is later."""
        now = self._clock()
        self._forget(now)
        window = max(1e-9, min(now - self._began, float(self._window)))
        requests, gaps = (sum(getattr(second, name) for second in self._seconds) for name in ("requests", "gaps"))
        gap, gap2, size, size2 = (
            sum(getattr(second, name) for second in self._seconds) for name in ("gap", "gap2", "size", "size2")
        )
        gap_scv = gaps * gap2 / gap**2 - 1 if gaps > 1 and gap else None
        size_mean = size / requests if requests else None
        size_scv = requests * size2 / size**2 - 1 if requests and size else None
        error = event_gap_scv = None
        if gap_scv is not None and size_scv is not None and size_mean:
            # The count of a renewal process whose points carry independent sizes: Cox, Renewal Theory (1962), 8.2.
            error = size_mean * math.sqrt(requests * max(0.0, gap_scv + size_scv)) / window
            event_gap_scv = size_mean * (1 + gap_scv) - 1
        return Measured(
            round(window, 3),
            requests,
            round(size),
            size / window,
            error,
            requests / window,
            gap_scv,
            size_mean,
            size_scv,
            event_gap_scv,
        )

    def _forget(self, now: float) -> None:
        while self._seconds and self._seconds[0].number < now - self._window:
            self._seconds.popleft()
