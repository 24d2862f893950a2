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


class Lineage(NamedTuple):
    """An event's lineage. Times are microseconds since the epoch; (major, minor) orders events as sources delivered them."""

    born: int
    """When the source event was meant to be sent; latencies are measured from this time."""
    time: int
    """The source event's event time until its lateness has been judged; NONE afterwards."""
    major: int
    minor: int

    @property
    def origin(self) -> tuple[int, int] | None:
        """The source event's identity within a micro-batch; None where no single event caused this one."""
        return None if self.major == LAST else (self.major, self.minor)


Ints = NDArray[np.int64]


class LineageColumns(NamedTuple):
    """The lineages of many events, as int64 arrays of equal length."""

    born: Ints
    time: Ints
    major: Ints
    minor: Ints

    @classmethod
    def uncaused(cls, born: Sequence[int], partition: int) -> "LineageColumns":
        """Make lineages for emissions that no single event caused, given their births."""
        births = np.array(born, np.int64)
        return cls(births, *(np.full(len(births), value, np.int64) for value in (NONE, LAST, partition)))

    def row(self, index: int) -> Lineage:
        """Return the lineage of one row."""
        return Lineage(*(int(column[index]) for column in self))

    def take(self, rows: Any) -> "LineageColumns":
        """Return the lineages of some rows, given by indices, a mask or a slice."""
        return LineageColumns(*(column[rows] for column in self))

    def followed_by(self, others: "LineageColumns") -> "LineageColumns":
        """Concatenate these lineages and others."""
        return LineageColumns(*(np.concatenate(pair) for pair in zip(self, others, strict=True)))

    def judged(self) -> "LineageColumns":
        """Return the lineages without event times, which are not needed once lateness has been judged."""
        return self._replace(time=np.full(len(self.time), NONE, np.int64))

    def spread(self, rows: int) -> "LineageColumns":
        """Return lineages for an output of ``rows`` rows; if their number differs, with the latest birth and no origin."""
        if rows == len(self.born):
            return self
        born = self.born.max() if len(self.born) else NONE
        return LineageColumns(*(np.full(rows, value, np.int64) for value in (born, NONE, LAST, 0)))


def joined(parts: Sequence[LineageColumns]) -> LineageColumns:
    """Concatenate lineages."""
    return LineageColumns(*np.concatenate([np.empty((4, 0), np.int64), *map(np.stack, parts)], axis=1))


def in_order(lineage: LineageColumns, numbers: Sequence[Ints]) -> Ints | None:
    """Return the indices that sort events into the order of delivery; None where they are in order already.

    Parameters
    ----------
    numbers: part by part, the numbers that order events caused by one source event; see `Block.numbers`.
    """
    order = np.lexsort((np.concatenate([np.empty(0, np.int64), *numbers]), lineage.minor, lineage.major))
    return None if np.array_equal(order, np.arange(len(order))) else order
