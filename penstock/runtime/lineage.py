"""Lineage: what an event inherits from the source event that it descends from."""

from typing import NamedTuple

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
    def of(cls, lineages: list[Lineage]) -> "LineageColumns":
        """Columns from rows."""
        return cls(*np.array(lineages, dtype=np.int64).reshape(-1, 4).T)

    def rows(self) -> list[Lineage]:
        """Rows from columns."""
        return list(map(Lineage, *(column.tolist() for column in self)))

    def spread(self, rows: int) -> "LineageColumns":
        """For a batch whose rows cannot be traced one by one: the youngest birth, the first order."""
        if rows == len(self.born):
            return self
        if not len(self.born):
            return LineageColumns(*(np.full(rows, value, np.int64) for value in (NONE, NONE, LAST, 0)))
        return LineageColumns(
            *(np.full(rows, value, np.int64) for value in (self.born.max(), NONE, LAST, self.minor.min()))
        )
