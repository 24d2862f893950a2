"""Schedules: ways to run a sample, all of which must give equal results."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import inf
from random import Random

import msgspec

MICROBATCHES = 4
"""The number of micro-batches of the plain schedule, to which others are compared."""

Place = tuple[str, int]
"""An event of the sample: the name of its source, and its number there."""


class Kill(msgspec.Struct, frozen=True):
    """A failure within a micro-batch, which is then run again.

    Args:
        batch: the number of the micro-batch.
        hook: the call of the application's code, counted from 0, at which it fails; None to fail just before the commit.
        anew: whether a new process runs it again; otherwise the old one does, as after a failed task.
    """

    batch: int
    hook: int | None
    anew: bool


class Schedule(msgspec.Struct, frozen=True):
    """One way to run a sample.

    Args:
        batches: the micro-batches, each with its events in order.
        restarts: whether each micro-batch runs in a new process.
        reread: whether state is encoded and decoded after each event.
        again: whether the process has run the whole schedule once before.
        shift_s: the offset of the machine's clock.
        jump_s: by how much the clock jumps ahead before each micro-batch.
        frozen: whether the clock stands still.
        counted: whether calls of the application's code are counted.
    """

    batches: tuple[tuple[Place, ...], ...]
    partitions: int = 2
    kills: tuple[Kill, ...] = ()
    restarts: bool = False
    reread: bool = False
    again: bool = False
    shift_s: float = 0.0
    jump_s: float = 0.0
    frozen: bool = False
    counted: bool = False

    @property
    def order(self) -> list[Place]:
        """All events in the order of delivery."""
        return [place for batch in self.batches for place in batch]

    def only(self, kept: frozenset[Place]) -> "Schedule":
        """Return the schedule with only some events; micro-batches that become empty stay."""
        batches = tuple(tuple(place for place in batch if place in kept) for batch in self.batches)
        return msgspec.structs.replace(self, batches=batches)


def cut(order: Sequence[Place], ends: Iterable[int]) -> tuple[tuple[Place, ...], ...]:
    """Cut events into micro-batches that end before the given indices."""
    edges = [0, *sorted({end for end in ends if 0 < end < len(order)}), len(order)]
    return tuple(tuple(order[low:high]) for low, high in pairwise(edges))


def alternating(sizes: dict[str, int]) -> list[Place]:
    """Merge the events of all sources, given their numbers, so that each source's are spread evenly over the whole."""
    places = [((number + 0.5) / size, name, number) for name, size in sizes.items() for number in range(size)]
    return [(name, number) for _, name, number in sorted(places)]


def random_cut(order: Sequence[Place], draw: Random) -> tuple[tuple[Place, ...], ...]:
    """Cut events into micro-batches at random."""
    return cut(order, draw.sample(range(1, len(order)), draw.randrange(min(len(order) - 1, 12) + 1)) if order else ())


def drawn_order(chains: list[list[Place]], times: dict[Place, tuple[float, float]], draw: Random) -> list[Place]:
    """Draw a random order of events. Each chain stays in order, and no event becomes later than its source allows."""
    order: list[Place] = []
    # A chain may go next unless its event's time passes the limit of an event of its source that still waits.
    while chains:
        until: dict[str, float] = {}
        for chain in chains:
            for place in chain:
                if place in times:
                    until[place[0]] = min(until.get(place[0], inf), times[place][1])
        free = [chain for chain in chains if times.get(chain[0], (-inf, 0))[0] <= until.get(chain[0][0], inf)]
        order.append(draw.choice(free or [_holding_back(chains, times)]).pop(0))
        chains = [chain for chain in chains if chain]
    return order


def _holding_back(chains: list[list[Place]], times: dict[Place, tuple[float, float]]) -> list[Place]:
    """Return the chain with the most urgent event. No chain is free while that event waits behind others of its chain."""
    return min(chains, key=lambda chain: min((times[place][1] for place in chain if place in times), default=inf))


def chains_of(belonging: list[tuple[Place, list[str]]]) -> list[list[Place]]:
    """Group events that reach common instances or rows, by union-find; each group must stay in order, groups may interleave."""
    chains: dict[str, list[Place]] = {}
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent.setdefault(name, name) != name:
            name = parent[name]
        return name

    for (source, number), reached in belonging:
        names = [f"{source}|{target}" for target in reached] or [f"{source}#{number}"]
        for name in names[1:]:
            parent[root(name)] = root(names[0])
    for (source, number), reached in belonging:
        name = root(f"{source}|{reached[0]}" if reached else f"{source}#{number}")
        chains.setdefault(name, []).append((source, number))
    return list(chains.values())
