"""Open-loop schedules: the times at which a generator's events are due, however fast the system processes them."""

import warnings
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.connectors.declaration import Options
from penstock.connectors.uri import Uri
from penstock.errors import ConfigurationError, SourceError

CHUNK = 4096
"""Arrival times are drawn in chunks of so many, each from a random generator of its own."""
LEAST_RATE = 1e-9
"""The least rate: one event in thirty years. The times of much lower ones are beyond all years that there are."""
KINDS = ("constant", "poisson", "bursty", "recorded")
TAKES = {"rate": KINDS[:3], "seed": KINDS[:3], "scv": ("bursty",), "times": ("recorded",), "speed": ("recorded",)}
"""The kinds of schedules that take an option; all take the others."""

Times = NDArray[np.float64]


@dataclass
class ArrivalSchedule:
    """Arrivals of a renewal process, reproducible from a seed. Times are in seconds after the start.

    Args:
        rate: mean arrivals per second.
        scv: squared coefficient of variation of the gaps: 0 constant, 1 Poisson, above 1 bursty
            (a hyperexponential of two phases with balanced means).
        count: how many events in all, or None for no end.
    """

    rate: float
    scv: float
    seed: int = 0
    count: int | None = None
    _ends: list[float] = field(default_factory=lambda: [0.0])
    """The time at which each chunk that is known begins, and the last one ends."""

    def identity(self) -> str:
        """Return a text of the parameters that determine all times."""
        rate, scv = (repr(float(number)).removesuffix(".0") for number in (self.rate, self.scv))
        return f"rate {rate}, scv {scv}, seed {self.seed}"

    def times(self, start: int, end: int) -> Times:
        """Return when the events numbered [start, end) are due."""
        first, last = start // CHUNK, (end - 1) // CHUNK
        chunks = [self._chunk(number) for number in range(first, last + 1)]
        return np.concatenate([np.empty(0), *chunks])[start - first * CHUNK : end - first * CHUNK]

    def due(self, elapsed: float) -> int:
        """Return how many events are due by a time."""
        if elapsed < 0:  # the clock has been set back
            return 0
        number = int(np.searchsorted(self._ends, elapsed, side="right")) - 1
        if number == len(self._ends) - 1:  # the time is past the known chunks: make more, up to it
            while self._ends[-1] <= elapsed and not self._complete(len(self._ends) - 1):
                self._chunk(len(self._ends) - 1)
            number = max(0, len(self._ends) - 2)
        due = number * CHUNK + int(np.searchsorted(self._chunk(number), elapsed, side="right"))
        return due if self.count is None else min(due, self.count)

    def _complete(self, chunk: int) -> bool:
        return self.count is not None and chunk * CHUNK >= self.count

    def _chunk(self, number: int) -> Times:
        while len(self._ends) <= number:
            self._chunk(len(self._ends) - 1)
        times: Times = self._ends[number] + np.cumsum(self._gaps(number))
        if len(self._ends) == number + 1:
            self._ends.append(float(times[-1]))
        return times

    def _gaps(self, number: int) -> Times:
        if self.scv == 0:
            return np.full(CHUNK, 1 / self.rate)
        random = np.random.default_rng([self.seed, number])
        gaps: Times = random.exponential(size=CHUNK)
        if self.scv == 1:
            return gaps / self.rate
        often = (1 + sqrt((self.scv - 1) / (self.scv + 1))) / 2
        phase = np.where(random.random(CHUNK) < often, often, 1 - often)
        return gaps / (2 * phase * self.rate)


UNTOLD = "first at 0"
"""The identity that older versions have noted of every recorded schedule; it tells none from another."""


@dataclass
class RecordedSchedule:
    """Arrival times that were recorded, in seconds after the start, sorted."""

    recorded: Times
    first: float | None = None
    """The first time as it is in the file."""
    speed: float = 1.0
    """How many times as fast as recorded the times are."""

    def identity(self) -> str:
        """Return a text of the first time and the speed; it stays as it is if more times are added at the end."""
        faster = "" if self.speed == 1 else f", {self.speed!r} times as fast"
        return "none" if self.first is None else f"first at {self.first:.6f}{faster}"

    @property
    def count(self) -> int:
        """How many events there are."""
        return len(self.recorded)

    def times(self, start: int, end: int) -> Times:
        return self.recorded[start:end]

    def due(self, elapsed: float) -> int:
        return int(np.searchsorted(self.recorded, elapsed, side="right"))


def schedule_of(uri: Uri, options: Options) -> ArrivalSchedule | RecordedSchedule:
    """Return the schedule that a generator's URI describes, as ``generator:poisson?rate=500&count=10000``.

    Raises:
        ConfigurationError: the kind is unknown, there is no rate, or ``scv`` is not above 1.
        SourceError: the file of recorded times cannot be read.
    """
    if uri.place not in KINDS:
        raise ConfigurationError(f"{uri}: {uri.place!r} is no schedule; choose {', '.join(KINDS)}.")
    stray = [name for name in options if name in TAKES and uri.place not in TAKES[name]]
    if stray:
        raise ConfigurationError(f"{uri}: {stray[0]} is for {' and '.join(TAKES[stray[0]])}, not {uri.place}; leave it out.")
    count: int | None = options.get("count")
    if uri.place == "recorded":
        times = _recorded(uri, options)
        speed = options.get("speed", 1.0)
        return RecordedSchedule(speed_up(times, speed)[:count], float(times[0]), speed)
    if "rate" not in options:
        raise ConfigurationError(f"{uri}: say how many events a second, as {uri.scheme}:{uri.place}?rate=500.")
    if options["rate"] < LEAST_RATE:
        raise ConfigurationError(
            f"{uri}: rate={options['rate']:g} is so low that hardly an event would come; give a higher one."
        )
    scv = {"constant": 0.0, "poisson": 1.0, "bursty": options.get("scv", 10.0)}[uri.place]
    if uri.place == "bursty" and scv <= 1:
        raise ConfigurationError(f"{uri}: scv={scv:g} must be above 1 for bursty (1 is a Poisson stream's).")
    return ArrivalSchedule(options["rate"], scv, options.get("seed", 0), count)


def _recorded(uri: Uri, options: Options) -> Times:
    path = options.get("times")
    if path is None:
        raise ConfigurationError(f"{uri}: say where the times are, as generator:recorded?times=FILE (seconds, one a line).")
    try:
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # that there is nothing in the file
            times = np.loadtxt(Path(path), ndmin=2)
        if not len(times):
            raise ValueError("it is empty")
        if times.shape[1] > 1:
            raise ValueError(f"it has {times.shape[1]} columns")
        return np.sort(seconds_of(pa.array(times.ravel())))
    except (OSError, ValueError) as error:
        raise SourceError(f"{uri}: {path} does not hold one time in seconds a line: {error}.") from error


def seconds_of(column: pa.Array) -> Times:
    """Return a column of times as seconds.

    Raises:
        ValueError: the column is of another type, or has rows without a time, at which no event would ever be due.
    """
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("us"))
    if pa.types.is_timestamp(column.type) or pa.types.is_duration(column.type):
        whole = pa.timestamp("us", column.type.tz) if pa.types.is_timestamp(column.type) else pa.duration("us")
        seconds = pc.divide(column.cast(whole, safe=False).cast(pa.int64()).cast(pa.float64(), safe=False), 1e6)
    elif any(is_a(column.type) for is_a in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)):
        seconds = column.cast(pa.float64(), safe=False)
    else:
        raise ValueError(f"is of type {column.type}; give timestamps, dates, durations or numbers of seconds")
    times: Times = seconds.to_numpy(zero_copy_only=False).astype(np.float64)
    if not np.isfinite(times).all():
        raise ValueError(f"has no time in row {int(np.flatnonzero(~np.isfinite(times))[0]) + 1}")
    return times


def speed_up(times: Times, speed: float) -> Times:
    """Return times counted from the first one, divided by ``speed``.

    Raises:
        ConfigurationError: the last time would lie beyond all numbers.
    """
    with np.errstate(over="ignore"):
        faster: Times = (times - times[:1]) / speed
    if not np.isfinite(faster).all():
        raise ConfigurationError(f"speed={speed:g} is so slow that the last event would never come; give a larger one.")
    return faster
