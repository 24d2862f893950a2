"""The keys that have most events of an element: counted in each micro-batch, and kept in bounded space."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from heapq import nlargest
from typing import Any
from zlib import crc32

import msgspec

SHARE = 0.02
"""Of the events of a delivery, from which a key is hot there."""
LEAST = 3
"""Events, below which a key is not hot."""
KEPT = 64
"""Keys at most."""
LONGEST = 60
"""Characters of a key."""


class Hottest(msgspec.Struct):
    """The events of hot keys, by key as it is shown.

    Micro-batches and partitions are merged as summaries of Misra and Gries are (Agarwal et al., Mergeable Summaries, ACM TODS
    38, 2013). A count is never too high, and too low by at most `SHARE` of the element's events, one in `KEPT` besides,
    and `LEAST` for each delivery.
    """

    counts: dict[str, int] = {}

    @classmethod
    def of(cls, identities: Sequence[bytes], decode: Callable[[bytes], Any]) -> "Hottest":
        """Of the events of a delivery, by the identities of their instances."""
        if len(identities) < LEAST:
            return cls()
        counted = Counter(identities)
        return cls.counted(counted, counted.values(), decode)

    @classmethod
    def counted(cls, identities: Iterable[bytes], times: Collection[int], decode: Callable[[bytes], Any]) -> "Hottest":
        """Of the events of a delivery, by the identities of their instances, and how many each got."""
        least = max(LEAST, SHARE * sum(times))
        pairs = zip(identities, times, strict=True)
        return cls({_shown(key, decode(key)): number for key, number in pairs if number >= least})

    def merge(self, other: "Hottest") -> None:
        """Add what was counted elsewhere."""
        for key, times in other.counts.items():
            self.counts[key] = self.counts.get(key, 0) + times
        if len(self.counts) > KEPT:
            excess = nlargest(KEPT + 1, self.counts.values())[-1]
            self.counts = {key: times - excess for key, times in self.counts.items() if times > excess}

    def most(self, number: int) -> list[tuple[str, int]]:
        """The hottest, the first of all first."""
        return nlargest(number, self.counts.items(), key=lambda one: one[1])


def _shown(identity: bytes, key: Any) -> str:
    """A key as text; of a long one the beginning, and a checksum that tells it from others that begin so."""
    parts = key if isinstance(key, tuple) else (key,)
    text = ", ".join(str(part) for part in parts)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({crc32(identity):08x})"
