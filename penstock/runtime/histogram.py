"""A mergeable histogram of positive values in buckets of 1% relative width."""

import math
from collections.abc import Iterable

import msgspec

GROWTH = math.log(1.01)


class Histogram(msgspec.Struct):
    """Counts per bucket; bucket b holds the values in (1.01^(b-1), 1.01^b].

    A quantile is therefore wrong by half a per cent at most. The unit is the caller's.
    """

    counts: dict[int, int] = {}
    total: float = 0.0
    greatest: float = 0.0

    @property
    def count(self) -> int:
        """The number of values added."""
        return sum(self.counts.values())

    @property
    def mean(self) -> float | None:
        """The mean of the values; None where there are none."""
        return self.total / self.count if self.counts else None

    def add(self, value: float, times: int = 1) -> None:
        """Count a value; those below 1e-9 count as 1e-9."""
        bucket = math.ceil(math.log(max(value, 1e-9)) / GROWTH)
        self.counts[bucket] = self.counts.get(bucket, 0) + times
        self.total += value * times
        self.greatest = max(self.greatest, value)

    def merge(self, other: "Histogram") -> None:
        """Add all of another histogram's values."""
        for bucket, times in other.counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + times
        self.total += other.total
        self.greatest = max(self.greatest, other.greatest)

    def quantile(self, probability: float) -> float | None:
        """Return the value below which a share of all values lies; None where there are none."""
        rank, seen = probability * self.count, 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            if seen >= rank:
                return min(math.exp((bucket - 0.5) * GROWTH), self.greatest)
        return None

    def summary(self, probabilities: Iterable[float] = (0.5, 0.95, 0.99)) -> dict[str, float | None]:
        """Return quantiles by name (``p50``, ...), and the greatest value as ``max``."""
        quantiles = {f"p{probability * 100:g}": self.quantile(probability) for probability in probabilities}
        return {**quantiles, "max": self.greatest if self.counts else None}
