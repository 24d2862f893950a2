"""The layout of a run: which elements share a query, in how many partitions, and which checkpoints hold that since it was
moved.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

MAIN = "main"
"""The group of the elements for which none is asked."""
MOVED = "@"
"""Before the number of a move in the full name of a group; no name of a source, an element or a group holds it."""


class Former(msgspec.Struct, frozen=True):
    """A group that the run had before it was moved, whose ledger still counts.

    Parameters
    ----------
    external: its sources that no group fed. handed_on: the streams that a group fed.
    """

    name: str
    external: list[str]
    handed_on: list[str]


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """How a run is divided.

    Parameters
    ----------
    grouping: a group's name by element, as it was asked for; an element that is not named is with the rest.
    partitions: of each keyed hop; None until the first start, which takes the cluster's parallelism.
    moves: how often the run was moved.
    generations: by group, the move that made its present checkpoint; groups that have not been moved are not named.
    first: by group (under its full name), how many micro-batches count as having come before its own.
    former: groups that are no more.
    """

    grouping: dict[str, str] = {}
    partitions: int | None = None
    moves: int = 0
    generations: dict[str, int] = {}
    first: dict[str, int] = {}
    former: list[Former] = []

    @classmethod
    def beginning(cls, grouping: Mapping[str, str], partitions: int | None) -> "Layout":
        """The one that a run is to begin with."""
        return cls(grouping=_plain(grouping), partitions=partitions)

    def asked(self, grouping: Mapping[str, str], partitions: int | None) -> "Layout":
        """The layout with what is asked for changed, and the rest as it is."""
        return changed(self, grouping=_plain(grouping) if grouping else self.grouping, partitions=partitions or self.partitions)

    def full_name(self, group: str) -> str:
        """A group's name with the move that made its checkpoint."""
        return full_name(group, self.generations.get(group, 0))


def _plain(grouping: Mapping[str, str]) -> dict[str, str]:
    """Without the elements that are with the rest."""
    return {element: group for element, group in grouping.items() if group != MAIN}


def changed(layout: Layout, **changes: Any) -> Layout:
    """A layout with other fields."""
    return msgspec.structs.replace(layout, **changes)


def full_name(group: str, generation: int) -> str:
    """A group's name with the move that made its checkpoint."""
    return f"{group}{MOVED}{generation}" if generation else group
