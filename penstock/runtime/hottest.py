"""Finds the keys with the most events of an element, in bounded memory."""

from collections.abc import Callable, Sequence
from heapq import nlargest
from typing import Any
from zlib import crc32

import msgspec
import numpy as np
from numpy.typing import NDArray

SHARE = 0.02
"""The least share of a delivery's events with which a key counts as hot."""
LEAST = 3
"""The least number of events in a delivery with which a key counts as hot."""
KEPT = 64
"""The most keys that are kept."""
LONGEST = 60
"""The most characters of a key that are shown."""


class Hottest(msgspec.Struct):
    """Counts of events of hot keys, by the key as it is shown.

    Counts of micro-batches and partitions are merged like Misra-Gries summaries (Agarwal et al., Mergeable Summaries, ACM TODS
    38, 2013). A count is never too high. It is too low by at most `SHARE` of the element's events, plus one event in `KEPT`,
    plus `LEAST` for each delivery.
    """

    counts: dict[str, int] = {}

    @classmethod
    def of(cls, identities: Sequence[bytes], times: NDArray[np.int64], decode: Callable[[bytes], Any]) -> "Hottest":
        """Take the counts of a delivery, given distinct instances and how many events each got."""
        hot = np.flatnonzero(times >= max(LEAST, SHARE * times.sum())).tolist()
        return cls({_shown(identities[place], decode(identities[place])): int(times[place]) for place in hot})

    def merge(self, other: "Hottest") -> None:
        """Add the counts of another partition or micro-batch."""
        for key, times in other.counts.items():
            self.counts[key] = self.counts.get(key, 0) + times
        if len(self.counts) > KEPT:
            excess = nlargest(KEPT + 1, self.counts.values())[-1]
            self.counts = {key: times - excess for key, times in self.counts.items() if times > excess}

    def most(self, number: int) -> list[tuple[str, int]]:
        """Return the hottest keys with their counts, in descending order."""
        return nlargest(number, self.counts.items(), key=lambda one: one[1])


def _shown(identity: bytes, key: Any) -> str:
    """Return a key as text. A long one is cut, and a checksum appended that distinguishes keys with equal beginnings."""
    parts = key if isinstance(key, tuple) else (key,)
    text = ", ".join(str(part) for part in parts)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({crc32(identity):08x})"
