"""Trials: schedules that differ from the plain one in one aspect each, and at last in several at once."""

import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, zip_longest
from random import Random
from typing import NamedTuple

import msgspec

from penstock.app.topology import Topology
from penstock.kinds.coding import json_decoder
from penstock.testing.proof.sample import Sample
from penstock.testing.proof.schedule import Kill, Place, Schedule, chains_of, cut, drawn_order, random_cut
from penstock.testing.proof.suspects import Cause

SHIFTS_S = (400 * 86_400 + 7 * 3600 + 780.0, -3.8 * 3600, *(steps * (27 * 86_400 + 7380.0) for steps in range(1, 14)))
"""Offsets of the machine's clock that are tried: a year ahead and more, some hours back, all months and days of the week."""
JUMP_S = 3600.0
SEEDS = (0, 1, 2, 0, 0)
"""Values of PYTHONHASHSEED, one for each worker; the first worker runs the plain schedule, to which others are compared."""
ANOTHER, ELSEWHERE = 3, 4
"""The workers that differ from the first one in nothing but being another process, and in the time zone."""
SINGLES = "each event in a micro-batch of its own"
HOOKS, CUTS, ORDERS = 60, 20, 40
"""The most kills at calls of the application's code, random cuts, and random orders that are tried."""


class Trial(NamedTuple):
    """A schedule to be tried.

    Args:
        kind: the aspect in which it differs, for the prover's counts.
        words: the difference in words, for an example.
        suspected: the likely cause if results differ.
        worker: the index of the process that runs it.
        against: the schedule to compare with; by default the plain one.
    """

    kind: str
    words: str
    schedule: Schedule
    suspected: Cause
    worker: int = 0
    against: Schedule | None = None


KINDS = (
    "repeats",
    "same process",
    "processes",
    "hash seeds",
    "time zones",
    "clocks",
    "state",
    "restarts",
    "partitions",
    "cuts",
    "kills",
    "orders",
    "mixtures",
)


class Trials:
    """Yields the trials of one sample; those that can only have one cause come first, so that findings name the right cause.

    Args:
        plain: the schedule to which others are compared.
        hooks: the number of calls of the application's code, by micro-batch.
        belonging: for each event, the instances and rows it reaches first; see `World.belonging`.
    """

    def __init__(
        self,
        topology: Topology,
        sample: Sample,
        plain: Schedule,
        hooks: list[int],
        belonging: list[tuple[Place, list[str]]],
        draw: Random,
    ) -> None:
        self._topology, self._sample, self._plain, self._draw = topology, sample, plain, draw
        self._hooks, self._chains, self._times = hooks, chains_of(belonging), self._own_times()

    def __iter__(self) -> Iterator[Trial]:
        plain = self._plain
        for _ in range(2):
            yield Trial("repeats", "the same once more, the application loaded anew", plain, "randomness")
        yield Trial("same process", "the same once more, in the same process", changed(plain, again=True), "global")
        yield Trial("processes", "in another process", plain, "randomness", worker=ANOTHER)
        for worker in (1, 2):
            yield Trial("hash seeds", f"PYTHONHASHSEED={SEEDS[worker]} for {SEEDS[0]}", plain, "hash", worker=worker)
        yield Trial("time zones", f"the time zone {far_zone()} for the machine's", plain, "clock", worker=ELSEWHERE)
        for shift in SHIFTS_S:
            words = f"the machine's clock is {shift / 3600:+,.1f} h off"
            yield Trial("clocks", words, changed(plain, shift_s=shift), "clock")
        words = f"the machine's clock goes on by {JUMP_S / 3600:g} h between two micro-batches"
        yield Trial("clocks", words, changed(plain, jump_s=JUMP_S), "clock")
        whole = Schedule((tuple(plain.order),))  # no state is written before the end
        words = "state is written and read back after each event"
        yield Trial("state", words, changed(whole, reread=True), "state", against=whole)
        yield Trial("state", words, changed(plain, reread=True), "state")
        yield Trial("restarts", "each micro-batch in a process of its own", changed(plain, restarts=True), "global")
        for partitions in (1, 3, 7):
            yield Trial("partitions", f"{partitions} partitions for 2", changed(plain, partitions=partitions), "order")
        # Interleaved, so that a short time still covers some of each kind.
        in_turn = chain.from_iterable(zip_longest(self._cuts(), self._kills(), self._orders()))
        yield from filter(None, in_turn)
        yield from self._mixtures()

    def _kills(self) -> Iterator[Trial]:
        places = [(batch, hook) for batch, calls in enumerate(self._hooks) for hook in [*range(calls), None]]
        ends = [place for place in places if place[1] is None]
        hooks = [place for place in places if place[1] is not None]
        for batch, hook in [*ends, *self._draw.sample(hooks, min(len(hooks), HOOKS))]:
            for anew in (False, True) if hook is None else (bool(self._draw.randrange(2)),):
                at = "before its commit" if hook is None else f"at call {hook} of the application's code"
                words = f"micro-batch {batch} is run twice: {'a process' if anew else 'a task'} has ended {at}"
                yield Trial("kills", words, changed(self._plain, kills=(Kill(batch, hook, anew),)), "global")

    def _cuts(self) -> Iterator[Trial]:
        order = self._plain.order
        yield Trial("cuts", SINGLES, Schedule(cut(order, range(len(order)))), "order")
        yield Trial("cuts", "all events in one micro-batch", Schedule((tuple(order),)), "order")
        for _ in range(CUTS):
            batches = random_cut(order, self._draw)
            yield Trial("cuts", f"other micro-batches, {_sizes(batches)}", Schedule(batches), "order")

    def _orders(self) -> Iterator[Trial]:
        for _ in range(ORDERS if len(self._chains) > 1 else 0):
            batches = random_cut(self._shuffled(), self._draw)
            yield Trial("orders", "another order of events that nothing keeps in order", Schedule(batches), "order")

    def _mixtures(self) -> Iterator[Trial]:
        while True:
            batches = random_cut(self._shuffled(), self._draw)
            calls = self._draw.randrange(max(1, sum(self._hooks) // 2))
            batch, anew = self._draw.randrange(len(batches)), bool(self._draw.randrange(2))
            kill = Kill(batch, self._draw.choice((None, calls)), anew)
            schedule = Schedule(batches, self._draw.choice((1, 2, 3, 5)), (kill,), reread=bool(self._draw.randrange(2)))
            yield Trial("mixtures", "other micro-batches, order and partitions, and a kill", schedule, "order")

    def _shuffled(self) -> list[Place]:
        """Draw another order of the events. Events of one source stay in order if they reach a common instance before any
        hop.
        """
        return drawn_order([list(chain) for chain in self._chains], self._times, self._draw)

    def _own_times(self) -> dict[Place, tuple[float, float]]:
        """Return, by event, its event time, and that plus the lateness its source allows; in seconds since the epoch."""
        times: dict[Place, tuple[float, float]] = {}
        for source in self._topology.sources:
            if source.event_time is None:
                continue
            decode = json_decoder(source.event_type).decode
            for number, event in enumerate(self._sample[source.name]):
                with suppress(Exception):  # it becomes a dead letter wherever it stands
                    own = getattr(decode(event), source.event_time.field).timestamp()
                    times[source.name, number] = own, own + source.event_time.lateness
        return times


def far_zone() -> str:
    """Return a time zone that is at least eleven hours from the machine's."""
    return "Pacific/Pago_Pago" if time.localtime().tm_gmtoff >= 0 else "Pacific/Kiritimati"


def changed(schedule: Schedule, **changes: object) -> Schedule:
    """Return a copy of a schedule with some fields changed."""
    return msgspec.structs.replace(schedule, **changes)


def _sizes(batches: tuple[tuple[Place, ...], ...]) -> str:
    return f"{len(batches)} of {', '.join(str(len(batch)) for batch in batches)} events"
