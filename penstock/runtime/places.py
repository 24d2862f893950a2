"""Places: where events are counted as they leave and again as they come, so that none can be lost, or doubled, in between
unseen.

Besides their number a fingerprint is kept of which events they are: equal numbers of other events differ, too. What is compared
is
never netted: a place's losses are not made up for by what another place, or another micro-batch, has too much of. Of what is
    read from
a source the number alone is known, and for the whole run.
"""

from typing import Any

import msgspec
import numpy as np

from penstock.runtime.lineage import LineageColumns

_SPREAD, _FIRST, _SECOND = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_MODULUS = 1 << 64


class Seen(msgspec.Struct):
    """Events that were seen at one end of a place.

    Parameters
    ----------
    print: the sum, modulo 2^64, of a hash of each one's origin: the same in any order, and adding up. Those of one origin count
        alike.
    """

    events: int = 0
    print: int = 0

    def add(self, lineage: LineageColumns) -> None:
        """Add some events."""
        self.events += len(lineage.major)
        self.print = (self.print + fingerprint(lineage)) % _MODULUS

    def merge(self, other: "Seen") -> None:
        """Add what was seen elsewhere."""
        self.events += other.events
        self.print = (self.print + other.print) % _MODULUS


def fingerprint(lineage: LineageColumns) -> int:
    """The sum of the hashes of events' origins, by the mixing function of SplitMix64 (Steele, Lea and Flood, 2014)."""
    mixed = lineage.major.view(np.uint64) * _SPREAD + lineage.minor.view(np.uint64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    mixed ^= mixed >> np.uint64(31)
    return int(mixed.sum(dtype=np.uint64))


class Place(msgspec.Struct):
    """What a place comes to.

    Parameters
    ----------
    events: that have left for it. missing, extra: by how many fewer, or more, have come, each micro-batch by itself.
    differs: in how many micro-batches as many have come, and other ones.
    """

    events: int = 0
    missing: int = 0
    extra: int = 0
    differs: int = 0

    @classmethod
    def between(cls, left: Seen, came: Seen) -> "Place":
        """Of one micro-batch."""
        gap = left.events - came.events
        return cls(left.events, max(gap, 0), max(-gap, 0), int(not gap and left.print != came.print))

    def merge(self, other: Any) -> None:
        """Add another micro-batch's."""
        self.events += other.events
        self.missing += other.missing
        self.extra += other.extra
        self.differs += other.differs


def sent_to(element: str) -> str:
    """The name of the way to a keyed element, across the shuffle."""
    return f"sent to {element}"


def handed_to(element: str) -> str:
    """The name of the way to a keyless element."""
    return f"handed to {element}"


def written_to(output: str) -> str:
    """The name of the way to a sink, by its label, through its encoding."""
    return f"written to {output}"


def staged_in(output: str) -> str:
    """The name of the way from what was written to the rows of its staged files."""
    return f"staged in {output}"


def read_from(source: str) -> str:
    """The name of the way from a source, or from another group, to the events that were decoded."""
    return f"read from {source}"
