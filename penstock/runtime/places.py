"""Places: points of the data flow at which events are counted as they leave and again as they arrive, to detect lost and
duplicated events.

Besides the number of events a fingerprint of their identities is compared, so that equal numbers of different events are
detected, too. Differences are never netted: a place's losses are not offset by extra events at another place or in another
micro-batch. For events read from a source only the number is known, and only for the whole run.
"""

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from penstock.runtime.lineage import LineageColumns

_MODULUS = 1 << 64


class Seen(msgspec.Struct):
    """The number and the fingerprint of events that were counted at one end of a place.

    Args:
        print: the sum, modulo 2^64, of hashes of the events' origins. It does not depend on their order, and can be added up.
            Events of one origin have equal hashes.
    """

    events: int = 0
    print: int = 0

    def add(self, lineage: "LineageColumns") -> None:
        """Count events."""
        self.events += len(lineage.major)
        self.print = (self.print + lineage.fingerprint()) % _MODULUS

    def add_handed(self, lineage: "LineageColumns") -> None:
        """Count events on their way from one group to another."""
        self.events += len(lineage.major)
        self.print = (self.print + lineage.sum_of_roots()) % _MODULUS

    def merge(self, other: "Seen") -> None:
        """Add the counts of another partition or micro-batch."""
        self.events += other.events
        self.print = (self.print + other.print) % _MODULUS

    def less(self, other: "Seen") -> "Seen":
        """Return the counts without those of events that are among these."""
        return Seen(self.events - other.events, (self.print - other.print) % _MODULUS)


class Place(msgspec.Struct):
    """The comparison of the events that left for a place with those that arrived, summed over micro-batches.

    Args:
        events: how many left.
        missing, extra: how many fewer, or more, arrived, summed over micro-batches without netting.
        differs: the number of micro-batches in which equally many, but different, events arrived.
    """

    events: int = 0
    missing: int = 0
    extra: int = 0
    differs: int = 0

    @classmethod
    def of(cls, left: int, came: int) -> "Place":
        """Compare numbers of events that left and came."""
        return cls(left, max(left - came, 0), max(came - left, 0))

    @classmethod
    def between(cls, left: Seen, came: Seen) -> "Place":
        """Compare the events of one micro-batch."""
        place = cls.of(left.events, came.events)
        place.differs = int(left.events == came.events and left.print != came.print)
        return place

    def merge(self, other: Any) -> None:
        """Add the comparison of another micro-batch."""
        self.events += other.events
        self.missing += other.missing
        self.extra += other.extra
        self.differs += other.differs


def sent_to(element: str) -> str:
    """Return the name of the place between a stage and a keyed element, across the shuffle."""
    return f"sent to {element}"


def handed_to(element: str) -> str:
    """Return the name of the place between a stream and a keyless element."""
    return f"handed to {element}"


def written_to(output: str) -> str:
    """Return the name of the place between a stream and a sink's encoded rows, by the output's label."""
    return f"written to {output}"


def staged_in(output: str) -> str:
    """Return the name of the place between an output's encoded rows and its staged files."""
    return f"staged in {output}"


def read_from(source: str, group: str | None = None) -> str:
    """Return the name of the place between a source and the decoded events, or that between the groups that hand on a stream
    and one that reads it.
    """
    return f"read from {source}" if group is None else f"read from {source} by {group}"
