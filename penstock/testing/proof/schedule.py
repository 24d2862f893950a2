"""Schedules: the ways in which a sample can be run that must all come to the same."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import inf
from random import Random

import msgspec

MICROBATCHES = 4
"""Of the run with which all others are compared."""

Place = tuple[str, int]
"""An event of the sample: its source, and its number there."""


class Kill(msgspec.Struct, frozen=True):
    """An end of the process within a micro-batch, which is run once more after it.

    Parameters
    ----------
    hook: the call of the application's own code at which it ends; None where all calls were made and the commit is missing.
    anew: whether another process goes on, and not the same one, as after a task that has failed.
    """

    batch: int
    hook: int | None
    anew: bool


class Schedule(msgspec.Struct, frozen=True):
    """One way to run a sample.

    Parameters
    ----------
    batches: the micro-batches, each with its events in order.
    restarts: whether each micro-batch has a process of its own.
    reread: whether state is written and read back after each event.
    again: whether the process has run all of it before, for others.
    shift_s: by how much the clock of the machine is off. jump_s: by how much it goes on between two micro-batches, besides.
    frozen: whether it stands.
    counted: whether it is counted how often the application's code is called.
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
        """All events, in order."""
        return [place for batch in self.batches for place in batch]

    def only(self, kept: frozenset[Place]) -> "Schedule":
        """The schedule with some of the events alone; micro-batches stay where they are, though they be empty."""
        batches = tuple(tuple(place for place in batch if place in kept) for batch in self.batches)
        return msgspec.structs.replace(self, batches=batches)


def cut(order: Sequence[Place], ends: Iterable[int]) -> tuple[tuple[Place, ...], ...]:
    """Events in micro-batches that end at some places of theirs."""
    edges = [0, *sorted({end for end in ends if 0 < end < len(order)}), len(order)]
    return tuple(tuple(order[low:high]) for low, high in pairwise(edges))


def alternating(sizes: dict[str, int]) -> list[Place]:
    """The events of all sources, with each source's own spread evenly over the whole."""
    places = [((number + 0.5) / size, name, number) for name, size in sizes.items() for number in range(size)]
    return [(name, number) for _, name, number in sorted(places)]


def random_cut(order: Sequence[Place], draw: Random) -> tuple[tuple[Place, ...], ...]:
    """Events in micro-batches of any sizes."""
    return cut(order, draw.sample(range(1, len(order)), draw.randrange(min(len(order) - 1, 12) + 1)) if order else ())


def drawn_order(chains: list[list[Place]], times: dict[Place, tuple[float, float]], draw: Random) -> list[Place]:
    """An order of events, each chain of which stays in order; none is later after others than its source allows."""
    order: list[Place] = []
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
    """The chain with the event for which all others wait, where that is not the first of its own."""
    return min(chains, key=lambda chain: min((times[place][1] for place in chain if place in times), default=inf))


def chains_of(belonging: list[tuple[Place, list[str]]]) -> list[list[Place]]:
    """Events in groups that share nothing: each is in order, and they are in none among each other."""
    chains: dict[str, list[Place]] = {}
    of: dict[str, str] = {}

    def root(name: str) -> str:
        while of.setdefault(name, name) != name:
            name = of[name]
        return name

    for (source, number), reached in belonging:
        names = [f"{source}|{each}" for each in reached] or [f"{source}#{number}"]
        for name in names[1:]:
            of[root(name)] = root(names[0])
    for (source, number), reached in belonging:
        name = root(f"{source}|{reached[0]}" if reached else f"{source}#{number}")
        chains.setdefault(name, []).append((source, number))
    return list(chains.values())
