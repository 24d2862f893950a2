"""The layout of a run: its groups of elements, its number of partitions, and the checkpoints that moves have made for it."""

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace as replaced

from penstock.runtime.partitioner import PRESENT, Partitioner
from penstock.runtime.places import Seen

MAIN = "main"
"""The group of all elements that were not assigned to another."""
MOVED = "@"
"""Separates a group's name from the number of a move in its full name; not allowed in names of sources, elements, groups."""


class Former(msgspec.Struct, frozen=True):
    """A group that the run had before a move. Its ledger still counts in the totals.

    Args:
        external: the sources that it read itself.
        handed_on: the streams that it read from other groups.
    """

    name: str
    external: list[str]
    handed_on: list[str]


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """How a run is divided into groups and partitions.

    Args:
        grouping: the requested group's name by element; an element that is not named is in the group `MAIN`.
        partitions: of each keyed hop; None until the first start, which takes the cluster's parallelism.
        partitioner: the rule by which integers that are keys are assigned to partitions; older versions have not told theirs.
        moves: the number of the last move that has taken place; 0 before the first.
        begun: the number of the last move that was begun. No other move has it, even where this one was not finished, so that a
            driver that was paused in the middle of a move does not touch what another one has made since.
        generations: by group, the number of the move that made its checkpoint; groups that no move has made are not named.
        first: by a group's full name, the number of its micro-batch 0 at the sinks; 0 if it is not named.
        former: groups that moves have replaced.
        handed_before: by the full name of a group that a move has made: of each stream that it reads from other groups, the
            events that these had handed on until then. Older versions have not told it.
    """

    grouping: dict[str, str] = {}
    partitions: int | None = None
    partitioner: Partitioner = "remainder"
    moves: int = 0
    begun: int = 0
    generations: dict[str, int] = {}
    first: dict[str, int] = {}
    former: list[Former] = []
    handed_before: dict[str, dict[str, Seen]] = {}

    @classmethod
    def beginning(cls, grouping: Mapping[str, str], partitions: int | None) -> "Layout":
        """Return the layout with which a new run begins."""
        return cls(grouping=_plain(grouping), partitions=partitions, partitioner=PRESENT)

    def asked(self, grouping: Mapping[str, str], partitions: int | None) -> "Layout":
        """Return this layout with the requested grouping and partitions; an empty or None argument leaves it as it is.

        Another number of partitions comes with the present partitioner, since all instances are moved then.
        """
        wanted = replaced(self, grouping=_plain(grouping) if grouping else self.grouping)
        if partitions in (None, self.partitions):
            return wanted
        return replaced(wanted, partitions=partitions, partitioner=PRESENT)

    def full_name(self, group: str) -> str:
        """Return a group's full name, which contains the number of the move that made its checkpoint, if one did."""
        return full_name(group, self.generations.get(group, 0))


def _plain(grouping: Mapping[str, str]) -> dict[str, str]:
    """Return a grouping without the elements in `MAIN`, so that equal groupings compare equal."""
    return {element: group for element, group in grouping.items() if group != MAIN}


def full_name(group: str, generation: int) -> str:
    """Return a group's full name, which contains the number of the move that made its checkpoint, if one did."""
    return f"{group}{MOVED}{generation}" if generation else group


def generation_of(name: str) -> int:
    """Return the number of the move that a group's full name contains; 0 if there is none."""
    number = name.partition(MOVED)[2]
    return int(number) if number.isdecimal() else 0
