"""Lineage: the data that an event inherits from the source event that caused it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

NONE = -(2**62)
"""Means 'no time' in columns of microseconds, which are never null."""

LAST = 2**62
"""The ``major`` of events that no single event caused (from timers and ``on_batch``): they come after all others."""

SOURCE_SHIFT = 56
"""The bits of ``minor`` from this one on hold the number of the source."""

Ints = NDArray[np.int64]

_SPREAD, _FIRST, _SECOND = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


class Lineage(NamedTuple):
    """An event's lineage. Times are microseconds since the epoch; (major, minor) orders events as sources delivered them.

    Within a micro-batch (major, minor) identifies the event that a group has read; ``root`` identifies the event of an outside
    source, whichever group handles it, and in whichever micro-batch.
    """

    born: int
    """When the source event was meant to be sent; latencies are measured from this time."""
    time: int
    """The source event's event time until its lateness has been judged; NONE afterwards."""
    major: int
    minor: int
    root: int
    """A hash of the outside source's event that caused this one. It is odd; an even number means that no single one did."""

    @classmethod
    def uncaused(cls, born: int, partition: int) -> "Lineage":
        """Make the lineage of an emission that no single event caused, given its birth."""
        return cls(born, NONE, LAST, partition, 0)

    @property
    def origin(self) -> int | None:
        """The ``root``, or None where no single source event caused this one."""
        return self.root if self.root & 1 else None


class LineageColumns(NamedTuple):
    """The lineages of many events, as int64 arrays of equal length."""

    born: Ints
    time: Ints
    major: Ints
    minor: Ints
    root: Ints

    @classmethod
    def read(cls, born: Ints, major: Ints, minor: Ints, salt: int = 0, root: Ints | None = None) -> "LineageColumns":
        """Make the lineages of events that a group reads.

        Args:
            salt: differs between sources, and between the micro-batches of one; 0 in a run of a single group.
            root: of events from another group, as it has told them; 0 where it has not.
        """
        own = hashed(major, minor, salt)
        root = own | 1 if root is None else np.where(root, root, own & ~1)
        return cls(born, np.full(len(born), NONE, np.int64), major, minor, root)

    @classmethod
    def within_group(cls, born: Ints, time: Ints, major: Ints, minor: Ints) -> "LineageColumns":
        """Make the lineages of events of a run's only group, whose roots follow from the rest, for they have no salt."""
        return cls(born, time, major, minor, np.where(major == LAST, 2 * minor, hashed(major, minor) | 1))

    @classmethod
    def uncaused(cls, born: Sequence[int], partition: int) -> "LineageColumns":
        """Make lineages for emissions that no single event caused, given their births."""
        births = np.array(born, np.int64)
        return cls(births, *(np.full(len(births), value, np.int64) for value in (NONE, LAST, partition, 2 * partition)))

    def row(self, index: int) -> Lineage:
        """Return the lineage of one row."""
        return Lineage(*(int(column[index]) for column in self))

    def take(self, rows: Any) -> "LineageColumns":
        """Return the lineages of some rows, given by indices, a mask or a slice."""
        return LineageColumns(*(column[rows] for column in self))

    def followed_by(self, others: "LineageColumns") -> "LineageColumns":
        """Concatenate these lineages and others."""
        return LineageColumns(*(np.concatenate(pair) for pair in zip(self, others, strict=True)))

    def distinct(self) -> "LineageColumns":
        """Return the lineages with a number for each event that no single event caused, by which another group knows it."""
        caused = self.root & 1
        if caused.all():
            return self
        return self._replace(root=np.where(caused, self.root, np.random.default_rng().integers(1, LAST, len(caused)) << 1))

    def fingerprint(self) -> int:
        """Return the sum, modulo 2^64, of hashes by which the events that a group has read are told from each other."""
        return _sum(hashed(self.root, self.minor))

    def sum_of_roots(self) -> int:
        """Return the sum of the roots, modulo 2^64, which is the same in the group that hands events on and in one that reads
        them.
        """
        return _sum(self.root)

    def judged(self) -> "LineageColumns":
        """Return the lineages without event times, which are not needed once lateness has been judged."""
        return self._replace(time=np.full(len(self.time), NONE, np.int64))

    def spread(self, rows: int) -> "LineageColumns":
        """Return lineages for an output of ``rows`` rows; if their number differs, with the latest birth and no origin."""
        if rows == len(self.born):
            return self
        born = self.born.max() if len(self.born) else NONE
        return LineageColumns(*(np.full(rows, value, np.int64) for value in (born, NONE, LAST, 0, 0)))


def joined(parts: Sequence[LineageColumns]) -> LineageColumns:
    """Concatenate lineages."""
    return LineageColumns(
        *np.concatenate([np.empty((len(LineageColumns._fields), 0), np.int64), *map(np.stack, parts)], axis=1)
    )


def _sum(hashes: Ints) -> int:
    return int(hashes.view(np.uint64).sum(dtype=np.uint64))


def hashed(major: Ints, minor: Ints, salt: int = 0) -> Ints:
    """Hash identities of events, by the mixing function of SplitMix64 (Steele, Lea and Flood, 2014)."""
    mixed = (major.view(np.uint64) + np.uint64(salt)) * _SPREAD + minor.view(np.uint64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    mixed ^= mixed >> np.uint64(31)
    return mixed.view(np.int64)


def in_order(lineage: LineageColumns, numbers: Sequence[Ints]) -> Ints | None:
    """Return the indices that sort events into the order of delivery; None where they are in order already.

    Args:
        numbers: part by part, the numbers that order events caused by one source event; see `Block.numbers`.
    """
    order = np.lexsort((np.concatenate([np.empty(0, np.int64), *numbers]), lineage.minor, lineage.major))
    return None if np.array_equal(order, np.arange(len(order))) else order
