"""Lineage: what an event inherits from the source event that it descends from."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

NONE = -(2**62)
"""Stands for 'no time' in columns of microseconds, which are never null."""

LAST = 2**62
"""The order of what no single event caused (per-batch and timer emissions): after all events."""

SOURCE_SHIFT = 56
"""The bits of ``minor`` above this one number the source."""


class Lineage(NamedTuple):
    """Times in microseconds since the epoch; (major, minor) is the source's order of delivery."""

    born: int
    """When the source event was meant to be sent; latency counts from here."""
    time: int
    """The source event's own time, as long as its lateness has not been judged; else NONE."""
    major: int
    minor: int

    @property
    def origin(self) -> tuple[int, int] | None:
        """The source event's identity within a micro-batch, or None where several caused this one."""
        return None if self.major == LAST else (self.major, self.minor)


Ints = NDArray[np.int64]


class LineageColumns(NamedTuple):
    """The lineages of many events, as int64 arrays of one length."""

    born: Ints
    time: Ints
    major: Ints
    minor: Ints

    @classmethod
    def uncaused(cls, born: Sequence[int], partition: int) -> "LineageColumns":
        """Of emissions that no single event caused, given their births."""
        births = np.array(born, np.int64)
        return cls(births, *(np.full(len(births), value, np.int64) for value in (NONE, LAST, partition)))

    def row(self, index: int) -> Lineage:
        """One lineage."""
        return Lineage(*(int(column[index]) for column in self))

    def take(self, rows: Any) -> "LineageColumns":
        """Some of them: by their indices, a mask or a slice."""
        return LineageColumns(*(column[rows] for column in self))

    def followed_by(self, others: "LineageColumns") -> "LineageColumns":
        """These rows, and then the others."""
        return LineageColumns(*(np.concatenate(pair) for pair in zip(self, others, strict=True)))

    def judged(self) -> "LineageColumns":
        """The lineages without the events' own times, which nothing needs once it is known whether the events are late."""
        return self._replace(time=np.full(len(self.time), NONE, np.int64))

    def spread(self, rows: int) -> "LineageColumns":
        """For a batch whose rows cannot be traced one by one: the youngest birth, and no order."""
        if rows == len(self.born):
            return self
        born = self.born.max() if len(self.born) else NONE
        return LineageColumns(*(np.full(rows, value, np.int64) for value in (born, NONE, LAST, 0)))


def joined(parts: Sequence[LineageColumns]) -> LineageColumns:
    """The lineages of some events, then those of others, and so on."""
    return LineageColumns(*np.concatenate([np.empty((4, 0), np.int64), *map(np.stack, parts)], axis=1))


def in_order(lineage: LineageColumns, numbers: Sequence[Ints]) -> Ints | None:
    """How to put events in the order of delivery; None where they are.

    Parameters
    ----------
    numbers: of the events among the emissions of one event, part by part.
    """
    order = np.lexsort((np.concatenate([np.empty(0, np.int64), *numbers]), lineage.minor, lineage.major))
    return None if np.array_equal(order, np.arange(len(order))) else order
