"""Measures transfers to the store: a fixed duration per transfer, and a duration per event."""

import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import msgspec
import numpy as np

KEPT = 10_000


class Transfer(NamedTuple):
    """A completed transfer."""

    events: int
    seconds: float


class MeasuredTransfers(msgspec.Struct):
    """Transfers over a window. All figures are measured."""

    window_s: float
    transfers: int
    events: int
    seconds_mean: float | None
    """Mean duration in seconds; None without a transfer."""
    fixed_s: float | None
    """Duration of a transfer regardless of its size, by a least-squares fit."""
    per_event_s: float | None
    """Additional duration per event, by the least-squares fit."""


class Transfers:
    """Measures the transfers of one stream over a sliding window, at most the last 10,000.

    Args:
        window: length of the window in seconds.
    """

    def __init__(self, window: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._window, self._clock = window, clock
        self._began = clock()
        self._made: deque[tuple[float, Transfer]] = deque(maxlen=KEPT)

    def note(self, made: Transfer) -> None:
        """Record a transfer that has just ended."""
        self._made.append((self._clock(), made))

    def measured(self) -> MeasuredTransfers:
        """Return the figures of the window, or since the start if that is later."""
        now = self._clock()
        while self._made and self._made[0][0] < now - self._window:
            self._made.popleft()
        since = self._made[0][0] if len(self._made) == KEPT else max(self._began, now - self._window)
        window = round(now - since, 3)
        if not self._made:
            return MeasuredTransfers(window, 0, 0, None, None, None)
        sizes, seconds = np.array([made for _, made in self._made], dtype=float).T
        fixed, per_event = _line(sizes, seconds)
        return MeasuredTransfers(window, len(sizes), int(sizes.sum()), float(seconds.mean()), fixed, per_event)


def _line(sizes: np.ndarray, seconds: np.ndarray) -> tuple[float, float]:
    """Fit a line by least squares, without negative parts; flat unless its slope exceeds three standard errors."""
    mean, spread = float(seconds.mean()), float(np.sum((sizes - sizes.mean()) ** 2))
    if len(sizes) < 3 or spread == 0:
        return mean, 0.0
    slope = float(np.sum((sizes - sizes.mean()) * seconds)) / spread
    residuals = seconds - mean - slope * (sizes - sizes.mean())
    error = float(np.sqrt(np.sum(residuals**2) / (len(sizes) - 2) / spread))
    if slope < 3 * error:
        return mean, 0.0
    slope = min(slope, float(np.min(seconds / sizes)))
    return mean - slope * float(sizes.mean()), slope
