"""The smallest input that still shows a fault, by delta debugging (Zeller and Hildebrandt, 2002)."""

import time
from collections.abc import Callable, Sequence

from penstock.testing.proof.schedule import Place


def smallest(order: Sequence[Place], shows: Callable[[frozenset[Place]], bool], deadline: float) -> frozenset[Place]:
    """Leave out events, in ever smaller portions, for as long as the rest shows the fault.

    Parameters
    ----------
    deadline: when to be content, by `time.monotonic`.
    """
    kept, portions = list(order), 2
    while len(kept) > 1 and time.monotonic() < deadline:
        size = -(-len(kept) // portions)
        for start in range(0, len(kept), size):
            rest = kept[:start] + kept[start + size :]
            if rest and time.monotonic() < deadline and shows(frozenset(rest)):
                kept, portions = rest, max(2, portions - 1)
                break
        else:
            if portions >= len(kept):
                break
            portions = min(len(kept), portions * 2)
    shows(frozenset(kept))
    return frozenset(kept)
