"""The smallest input that still shows a fault, by delta debugging (Zeller and Hildebrandt, 2002)."""

import time
from collections.abc import Callable, Sequence

from penstock.testing.proof.schedule import Place


def smallest(order: Sequence[Place], shows: Callable[[frozenset[Place]], bool], deadline: float) -> frozenset[Place]:
    """Leave out events, in ever smaller portions, while the rest still shows the fault; returns the rest.

    Args:
        deadline: when to stop, by `time.monotonic`.
    """
    events, portions = list(order), 2
    while len(events) > 1 and time.monotonic() < deadline:
        size = -(-len(events) // portions)
        for start in range(0, len(events), size):
            rest = events[:start] + events[start + size :]
            if rest and time.monotonic() < deadline and shows(frozenset(rest)):
                events, portions = rest, max(2, portions - 1)
                break
        else:
            if portions >= len(events):
                break
            portions = min(len(events), portions * 2)
    shows(frozenset(events))
    return frozenset(events)
