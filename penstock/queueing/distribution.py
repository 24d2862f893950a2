"""Distributions of interarrival, service and batch times, by mean and squared coefficient of variation."""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaincinv, ndtr, ndtri

from penstock.errors import ConfigurationError
from penstock.queueing import parameter

Real = NDArray[np.float64]


class Distribution(Protocol):
    """The members that a distribution of positive numbers has."""

    @property
    def mean(self) -> float:
        """The mean."""

    @property
    def scv(self) -> float:
        """The squared coefficient of variation, variance / mean^2: 0 for constants, 1 for the exponential."""

    def sample(self, random: np.random.Generator, count: int) -> Real:
        """Independent draws, shape (count,)."""

    def quantile(self, p: Real) -> Real:
        """The values that fractions ``p`` of the draws do not exceed, in the shape of ``p``."""


@dataclass(frozen=True)
class Exponential:
    """The memoryless distribution, scv 1.

    Examples:
        >>> Exponential(0.5).scv
        1.0
    """

    mean: float

    def __post_init__(self) -> None:
        parameter.rate("mean", self.mean)

    @property
    def scv(self) -> float:
        return 1.0

    def sample(self, random: np.random.Generator, count: int) -> Real:
        return random.exponential(self.mean, count)

    def quantile(self, p: Real) -> Real:
        return np.asarray(-self.mean * np.log1p(-p))


@dataclass(frozen=True)
class Deterministic:
    """Always the same value, scv 0.

    Examples:
        >>> Deterministic(2.0).scv
        0.0
    """

    mean: float

    def __post_init__(self) -> None:
        parameter.rate("mean", self.mean, zero=True)

    @property
    def scv(self) -> float:
        return 0.0

    def sample(self, random: np.random.Generator, count: int) -> Real:
        return np.full(count, float(self.mean))

    def quantile(self, p: Real) -> Real:
        return np.full_like(p, self.mean)


@dataclass(frozen=True)
class Gamma:
    """Gamma of any scv; Erlang where 1 / scv is an integer.

    Examples:
        >>> Gamma(1.0, 0.25).scv  # Erlang-4
        0.25
    """

    mean: float
    scv: float

    def __post_init__(self) -> None:
        parameter.rate("mean", self.mean)
        parameter.rate("scv", self.scv)

    def sample(self, random: np.random.Generator, count: int) -> Real:
        return random.gamma(1 / self.scv, self.mean * self.scv, count)

    def quantile(self, p: Real) -> Real:
        return np.asarray(gammaincinv(1 / self.scv, p) * self.mean * self.scv)


@dataclass(frozen=True)
class LogNormal:
    """Log-normal: the usual shape of measured batch and service times.

    Examples:
        >>> LogNormal(0.2, 0.1).mean
        0.2
    """

    mean: float
    scv: float

    def __post_init__(self) -> None:
        parameter.rate("mean", self.mean)
        parameter.rate("scv", self.scv, zero=True)

    @property
    def _logs(self) -> tuple[float, float]:
        """Mean and standard deviation of the logarithm."""
        variance = math.log1p(self.scv)
        return math.log(self.mean) - variance / 2, math.sqrt(variance)

    def sample(self, random: np.random.Generator, count: int) -> Real:
        return random.lognormal(*self._logs, count)

    def quantile(self, p: Real) -> Real:
        location, scale = self._logs
        return np.asarray(np.exp(location + scale * ndtri(p)))


@dataclass(frozen=True)
class HyperExponential:
    """Two exponentials with balanced means, scv above 1: the usual shape of bursty arrivals.

    Examples:
        >>> HyperExponential(1.0, 10.0).scv
        10.0
    """

    mean: float
    scv: float

    def __post_init__(self) -> None:
        parameter.rate("mean", self.mean)
        if not parameter.rate("scv", self.scv) > 1:
            raise ConfigurationError(f"scv is {self.scv!r}; a HyperExponential needs one above 1; use Gamma below that.")

    @property
    def _short(self) -> float:
        """Probability of the exponential with the smaller mean."""
        return (1 + math.sqrt((self.scv - 1) / (self.scv + 1))) / 2

    @property
    def _long(self) -> float:
        """Probability of the other one, without the subtraction that loses it where the scv is very large."""
        return 1 / ((self.scv + 1) * (1 + math.sqrt((self.scv - 1) / (self.scv + 1))))

    def sample(self, random: np.random.Generator, count: int) -> Real:
        short, long = self._short, self._long
        scales = np.where(random.random(count) < short, self.mean / (2 * short), self.mean / (2 * long))
        return random.exponential(1.0, count) * scales

    def quantile(self, p: Real) -> Real:
        short, long = self._short, self._long
        low, high = np.zeros_like(p), np.full_like(p, 1e4 * self.mean * self.scv)
        for _ in range(200):  # bisection: the inverse has no closed form
            middle = (low + high) / 2
            survival = short * np.exp(-2 * short * middle / self.mean) + long * np.exp(-2 * long * middle / self.mean)
            low, high = np.where(1 - survival < p, middle, low), np.where(1 - survival < p, high, middle)
        return np.asarray((low + high) / 2)


class Empirical:
    """Measured values, drawn independently with replacement.

    Args:
        values: at least one number of zero or more, not all zero.

    Examples:
        >>> Empirical([1.0, 2.0, 3.0]).mean
        2.0
    """

    def __init__(self, values: ArrayLike) -> None:
        self.values = _numbers("values", values)
        if self.values.sum() <= 0:
            raise ConfigurationError("values are all zero; give at least one above zero.")

    def __repr__(self) -> str:
        return f"Empirical({len(self.values)} values, mean={self.mean:g}, scv={self.scv:g})"

    @property
    def mean(self) -> float:
        return float(self.values.mean())

    @property
    def scv(self) -> float:
        return float(self.values.var() / self.values.mean() ** 2)

    def sample(self, random: np.random.Generator, count: int) -> Real:
        return random.choice(self.values, count)

    def quantile(self, p: Real) -> Real:
        return np.asarray(np.quantile(self.values, p))


class Recorded(Empirical):
    """Interarrival times in the order in which they were recorded, repeated from the start when they end.

    The order preserves bursts; independent draws of these values (:class:`Empirical`) would break them up.
    """

    @classmethod
    def from_times(cls, times: ArrayLike) -> "Recorded":
        """Make a recording from arrival times, in seconds, in ascending order."""
        gaps = np.diff(_numbers("times", times))
        if len(gaps) == 0 or (gaps < 0).any():
            raise ConfigurationError("times must be at least two numbers in ascending order.")
        return cls(gaps)

    def replay(self, start: int, count: int) -> Real:
        """Return ``count`` values from position ``start`` on, repeating the recording as often as needed."""
        return np.asarray(self.values[(start + np.arange(count)) % len(self.values)])

    def sample(self, random: np.random.Generator, count: int) -> Real:
        """Return ``count`` values from a random position of the recording on."""
        return self.replay(int(random.integers(len(self.values))), count)


def _numbers(name: str, values: ArrayLike) -> Real:
    try:
        array = np.asarray(values, dtype=float).ravel()
    except (TypeError, ValueError):
        array = np.empty(0)
    if len(array) == 0 or not np.isfinite(array).all() or (array < 0).any():
        raise ConfigurationError(f"{name} must be one or more finite numbers of zero or more.")
    return array


def is_distribution(value: object) -> bool:
    """Whether a value has a numeric ``mean``, a ``sample`` and a ``quantile``, as a distribution has."""
    mean = getattr(value, "mean", None)
    return isinstance(mean, float | int) and hasattr(value, "sample") and hasattr(value, "quantile")


def with_scv(mean: float, scv: float) -> Distribution:
    """The usual distribution of this mean and scv: constant, gamma, exponential or hyperexponential.

    Examples:
        >>> with_scv(2.0, 1.0)
        Exponential(mean=2.0)
        >>> with_scv(2.0, 4.0)
        HyperExponential(mean=2.0, scv=4.0)
    """
    parameter.rate("scv", scv, zero=True)
    if scv == 0:
        return Deterministic(mean)
    if scv == 1:
        return Exponential(mean)
    return Gamma(mean, scv) if scv < 1 else HyperExponential(mean, scv)


def nodes(distribution: Distribution, count: int) -> tuple[Real, Real]:
    """Approximate a distribution by ``count`` values and their weights: the trapezoidal rule over normal scores -6.5 to 6.5.

    Many nodes lie in the tails, which decide p99. The values are scaled to keep the mean. A constant has one node.
    """
    if isinstance(distribution, Deterministic):
        return np.full(1, distribution.mean), np.ones(1)
    scores = np.linspace(-6.5, 6.5, count)
    weights = np.exp(-(scores**2) / 2)
    weights /= weights.sum()
    values = distribution.quantile(ndtr(scores))
    return values * (distribution.mean / (values @ weights)), weights
