"""The prover: tries schedules in turn, and for the first that differs finds the element, the line, the cause and the least input."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from math import inf
from random import Random
from typing import NamedTuple

import msgspec

from penstock.app.application import App
from penstock.app.loader import AppReference
from penstock.app.topology import Topology
from penstock.errors import TopologyError
from penstock.kinds.coding import json_decoder
from penstock.testing.proof.agreement import Agreement, Disagreement, says_moments
from penstock.testing.proof.effects import Effect
from penstock.testing.proof.outcome import Outcome
from penstock.testing.proof.proof import Example, Finding, Proof
from penstock.testing.proof.sample import Sample
from penstock.testing.proof.schedule import MICROBATCHES, Kill, Place, Schedule, alternating, cut, random_cut
from penstock.testing.proof.shrinking import smallest
from penstock.testing.proof.suspects import Cause, Part
from penstock.testing.proof.workers import Worker
from penstock.testing.proof.world import Told

RUNS = 240
SECONDS = 20.0
SHRINKING_S = 3.0
SHIFTS_S = (400 * 86_400 + 7 * 3600 + 780.0, -3.8 * 3600)
"""By how much the machine's clock is off: more than a year, and some hours."""
SEEDS = (0, 1, 2)
"""Of Python's hashes; the first is that of the run with which all others are compared."""

Advance = Callable[[float, float, str], None]


class Trial(NamedTuple):
    """A schedule to be tried.

    Parameters
    ----------
    kind: what is different in it, as the prover counts it. words: the same, for an example.
    suspected: the cause, if it differs. worker: which process runs it. against: what it is compared with; the plain run unless given.
    """

    kind: str
    words: str
    schedule: Schedule
    suspected: Cause
    worker: int = 0
    against: Schedule | None = None


class Prover:
    """Proves one application over one sample.

    Parameters
    ----------
    reference: how processes find the application.
    runs, seconds: after how many runs, or how long, it stops.
    """

    def __init__(
        self, app: App, reference: AppReference, sample: Sample, *, seed: int = 0, runs: int = RUNS, seconds: float = SECONDS,
        drawn: bool = False, advance: Advance | None = None,
    ) -> None:  # fmt: skip
        self._topology = app.topology()
        _refuse_queries(self._topology)
        self._reference, self._sample, self._draw = reference, sample, Random(seed)
        self._runs, self._deadline, self._advance = runs, time.monotonic() + seconds, advance
        self._workers: list[Worker] = []
        self._agreement = Agreement(self._topology)
        self._application, self._drawn = app.name, drawn
        self._tried: dict[str, int] = {}
        self._findings: list[Finding] = []
        self._done = 0

    def prove(self) -> Proof:
        """Try what there is to try.

        Raises
        ------
        ConfigurationError: the application cannot be run over the sample.
        """
        with ExitStack() as stack:
            stack.callback(self._close)
            self._workers = [Worker(self._reference, self._sample, seed) for seed in SEEDS]
            self._order = alternating({name: len(events) for name, events in self._sample.items()})
            size = len(self._order)
            ends = [round(size * number / MICROBATCHES) for number in range(1, MICROBATCHES)]
            self._plain = Schedule(cut(self._order, ends))
            self._expected = self._workers[0].run(_with(self._plain, counted=True))
            told: Told = self._workers[0].tell(self._plain)
            self._suspects, self._first_lines = told.suspects, told.first_lines
            self._note_effects(told.effects)
            if not any(_is_far(effect) for effect in told.effects):
                self._try_all()
        sizes = {name: len(events) for name, events in self._sample.items()}
        return Proof(self._application, self._tried, sizes, self._drawn, self._findings, self._notes())

    def _try_all(self) -> None:
        finest: Outcome | None = None
        for trial in self._trials():
            if self._done >= self._runs or time.monotonic() > self._deadline or self._agreement.all_excused:
                break
            got = self._run(trial)
            expected = self._expected if trial.against is None else self._workers[0].run(trial.against)
            while (found := self._compared(trial, expected, got)) is not None:
                self._find(trial, found)
            if trial.words == SINGLES:
                finest = got
            if finest is not None and trial.kind == "cuts" and len(self._sample) == 1:
                self._look_at_moments(trial, got, finest)

    def _trials(self) -> Iterator[Trial]:
        """What is tried, the clearest causes first, so that each is found by what shows it alone."""
        plain = self._plain
        for _ in range(2):
            yield Trial("repeats", "the same once more, the application loaded anew", plain, "randomness")
        yield Trial("same process", "the same once more, in the same process", _with(plain, again=True), "global")
        for worker in (1, 2):
            yield Trial("hash seeds", f"PYTHONHASHSEED={SEEDS[worker]} for {SEEDS[0]}", plain, "hash", worker=worker)
        for shift in SHIFTS_S:
            yield Trial(
                "clocks", f"the machine's clock is {shift / 3600:+,.1f} h off", _with(plain, shift_s=shift), "clock"
            )
        yield Trial(
            "clocks",
            "the machine's clock goes on an hour between two micro-batches",
            _with(plain, jump_s=3600.0),
            "clock",
        )
        whole = Schedule((tuple(self._order),))  # in which nothing is written before the end
        words = "state is written and read back after each event"
        yield Trial("state", words, _with(whole, reread=True), "state", against=whole)
        yield Trial("state", words, _with(plain, reread=True), "state")
        yield Trial("restarts", "each micro-batch in a process of its own", _with(plain, restarts=True), "global")
        yield from self._kills()
        for partitions in (1, 3, 7):
            yield Trial("partitions", f"{partitions} partitions for 2", _with(plain, partitions=partitions), "order")
        yield from self._cuts()
        yield from self._orders()
        yield from self._mixed()

    def _kills(self) -> Iterator[Trial]:
        places = [(batch, hook) for batch, calls in enumerate(self._expected.hooks) for hook in [*range(calls), None]]
        ends = [place for place in places if place[1] is None]
        hooks = [place for place in places if place[1] is not None]
        for batch, hook in [*ends, *self._draw.sample(hooks, min(len(hooks), 60))]:
            for anew in (False, True) if hook is None else (bool(self._draw.randrange(2)),):
                at = "before its commit" if hook is None else f"at call {hook} of the application's code"
                words = f"micro-batch {batch} is run twice: {'a process' if anew else 'a task'} has ended {at}"
                yield Trial("kills", words, _with(self._plain, kills=(Kill(batch, hook, anew),)), "global")

    def _cuts(self) -> Iterator[Trial]:
        order = self._order
        yield Trial("cuts", SINGLES, Schedule(cut(order, range(len(order)))), "order")
        yield Trial("cuts", "all events in one micro-batch", Schedule((tuple(order),)), "order")
        for _ in range(20):
            batches = random_cut(order, self._draw)
            yield Trial("cuts", f"other micro-batches, {_sizes(batches)}", Schedule(batches), "order")

    def _orders(self) -> Iterator[Trial]:
        shuffled = self._shuffler()
        for _ in range(40):
            order = shuffled()
            if order is None:
                return
            batches = random_cut(order, self._draw)
            yield Trial("orders", "another order of events that nothing keeps in order", Schedule(batches), "order")

    def _mixed(self) -> Iterator[Trial]:
        shuffled = self._shuffler()
        for _ in range(self._runs):
            batches = random_cut(shuffled() or self._order, self._draw)
            calls = self._draw.randrange(max(1, sum(self._expected.hooks) // 2))
            kill = Kill(
                self._draw.randrange(len(batches)), self._draw.choice((None, calls)), bool(self._draw.randrange(2))
            )
            schedule = Schedule(batches, self._draw.choice((1, 2, 3, 5)), (kill,), reread=bool(self._draw.randrange(2)))
            yield Trial("mixtures", "other micro-batches, order and partitions, and a kill", schedule, "order")

    def _shuffler(self) -> Callable[[], list[Place] | None]:
        """Draws orders in which what belongs together stays in order: events of a source that reach one instance first of all."""
        chains = _chains(self._workers[0].belonging())
        times = self._times()

        def draw() -> list[Place] | None:
            return None if len(chains) < 2 else _drawn_order([list(chain) for chain in chains], times, self._draw)

        return draw

    def _times(self) -> dict[Place, tuple[float, float]]:
        """Of the events that have times of their own: this, and until when others may come, by the lateness of their source."""
        times: dict[Place, tuple[float, float]] = {}
        for source in self._topology.sources:
            if source.event_time is None:
                continue
            decode = json_decoder(source.event_type).decode
            for number, event in enumerate(self._sample[source.name]):
                with suppress(Exception):  # a dead letter, wherever it is
                    own = getattr(decode(event), source.event_time.field).timestamp()
                    times[source.name, number] = own, own + source.event_time.lateness
        return times

    # --- one run --------------------------------------------------------------------------------

    def _run(self, trial: Trial) -> Outcome:
        self._done += 1
        self._tried[trial.kind] = self._tried.get(trial.kind, 0) + 1
        if self._advance is not None:
            self._advance(self._done, self._runs, trial.kind)
        return self._workers[trial.worker].run(trial.schedule)

    def _compared(self, trial: Trial, expected: Outcome, got: Outcome) -> Disagreement | None:
        against = trial.against or self._plain
        return self._agreement.of(expected, got, same_batches=trial.schedule.batches == against.batches)

    def _look_at_moments(self, trial: Trial, got: Outcome, finest: Outcome) -> None:
        for outcome in (self._expected, got):
            found = self._agreement.moments_within(outcome, finest)
            if found is not None:
                self._find(trial, found, shrink=False)

    def _close(self) -> None:
        for worker in self._workers:
            worker.close()

    # --- findings -------------------------------------------------------------------------------

    def _find(self, trial: Trial, found: Disagreement, *, shrink: bool = True) -> None:
        cause = self._cause(trial, found)
        file, line, what = self._line(found.element, cause)
        example = self._example(trial, found, shrink=shrink)
        known = {(finding.cause, finding.element) for finding in self._findings}
        if (cause, found.element) not in known:
            self._findings.append(Finding(cause, found.element, file, line, what, example))
        if found.element in {element.name for element in self._topology.elements}:
            self._agreement.excuse(found.element)
        else:
            self._runs = 0  # a table that a source goes into: nothing else can be told

    def _cause(self, trial: Trial, found: Disagreement) -> Cause:
        parts = {suspect.part for suspect in self._suspects if suspect.element == found.element}
        effects = {finding.element for finding in self._findings if finding.cause == "effect"}
        cause = trial.suspected
        if cause == "randomness":
            if self._agrees_when_frozen(found):
                return "clock"
            return "effect" if found.element in effects and "randomness" not in parts else "randomness"
        if cause == "global":
            if found.element in effects:
                return "effect"
            return "randomness" if "randomness" in parts and "global" not in parts else cause
        if cause == "order":
            if found.late:
                return "late"
            if found.rounding:
                return "float-order"
            if self._keeps_in_vain(found.element):
                return "state"
        return cause

    def _agrees_when_frozen(self, found: Disagreement) -> bool:
        """Whether runs agree in what they differed once their clocks stand at the same time."""
        frozen = _with(self._plain, frozen=True)
        first, second = (self._workers[0].run(frozen) for _ in range(2))
        again = self._agreement.of(first, second, same_batches=True)
        return again is None or again.element != found.element

    def _keeps_in_vain(self, name: str) -> bool:
        """Whether an element is a class without a key, whose fields live for a micro-batch."""
        element = next((one for one in self._topology.elements if one.name == name), None)
        if element is None or element.keyed or element.prototype is None or says_moments(element):
            return False
        return bool(element.prototype.__struct_fields__)

    def _line(self, element: str, cause: Cause) -> tuple[str | None, int | None, str]:
        mine = [suspect for suspect in self._suspects if suspect.element == element]
        for part in LOOKED_FOR[cause]:
            for suspect in mine:
                if suspect.part == part:
                    return suspect.file, suspect.line, suspect.what
        file, line = self._first_lines.get(element, (None, None))
        return file, line, ""

    def _example(self, trial: Trial, found: Disagreement, *, shrink: bool) -> Example:
        kept = frozenset(self._order)
        if shrink:
            kept, found = self._shrunk(trial, found)
        events = {
            name: [event.decode("utf-8", "replace") for number, event in enumerate(events) if (name, number) in kept]
            for name, events in self._sample.items()
        }
        events = {name: rows for name, rows in events.items() if rows}
        return Example(events, trial.words, found.place, found.difference.missing, found.difference.extra)

    def _shrunk(self, trial: Trial, found: Disagreement) -> tuple[frozenset[Place], Disagreement]:
        """The fewest events with which an element differs, as far as some seconds allow to look."""
        least = found

        def differs(kept: frozenset[Place]) -> bool:
            nonlocal least
            expected = self._workers[0].run(trial.against or self._plain, kept)
            again = self._compared(trial, expected, self._workers[trial.worker].run(trial.schedule, kept))
            if again is None or again.element != found.element:
                return False
            least = again
            return True

        kept = smallest(self._order, differs, time.monotonic() + SHRINKING_S)
        return kept, least

    def _note_effects(self, effects: list[Effect]) -> None:
        for effect in effects:
            if not any(finding.element == effect.element for finding in self._findings):
                finding = Finding("effect", effect.element, effect.file, effect.line, effect.what, None)
                self._findings.append(finding)

    def _notes(self) -> list[str]:
        notes = []
        for sink in self._topology.sinks:
            if sink.stream.name in self._agreement.momentary and not sink.key:
                notes.append(
                    f"sink {sink.name} is appended a row with each micro-batch (on_batch), so that how many it has depends on the "
                    "micro-batches; the last of each key does not. Declare key= for a table that keeps the last"
                )
        if any(finding.cause == "effect" and _is_far_text(finding.what) for finding in self._findings):
            notes.append("the application reaches out of this machine, so it was run once and no more")
        return notes


LOOKED_FOR: dict[Cause, tuple[Part, ...]] = {
    "randomness": ("randomness",),
    "clock": ("clock",),
    "hash": ("hash",),
    "global": ("global", "randomness"),
    "state": ("state",),
    "float-order": ("sum",),
    "order": ("emission",),
    "late": ("emission",),
    "effect": (),
}
"""For each cause, what is looked for in the code of the element."""

SINGLES = "each event in a micro-batch of its own"


def _with(schedule: Schedule, **changes: object) -> Schedule:
    return msgspec.structs.replace(schedule, **changes)


def _sizes(batches: tuple[tuple[Place, ...], ...]) -> str:
    return f"{len(batches)} of {', '.join(str(len(batch)) for batch in batches)} events"


def _is_far(effect: Effect) -> bool:
    return _is_far_text(effect.what)


def _is_far_text(what: str) -> bool:
    return what.startswith(("sends", "starts"))


def _drawn_order(chains: list[list[Place]], times: dict[Place, tuple[float, float]], draw: Random) -> list[Place]:
    """An order of events, each chain of which stays in order; none is later after others than its source allows."""
    order: list[Place] = []
    while chains:
        until: dict[str, float] = {}
        for chain in chains:
            for place in chain:
                if place in times:
                    until[place[0]] = min(until.get(place[0], inf), times[place][1])
        free = [chain for chain in chains if times.get(chain[0], (-inf, 0))[0] <= until.get(chain[0][0], inf)]
        order.append(draw.choice(free or chains).pop(0))
        chains = [chain for chain in chains if chain]
    return order


def _chains(belonging: list[tuple[Place, list[str]]]) -> list[list[Place]]:
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


def _refuse_queries(topology: Topology) -> None:
    for element in topology.elements:
        if element.dialect == "query":
            raise TopologyError(
                f"Element {element.name} is in the query dialect, which Spark alone can run: write it in the event or batch dialect, or "
                "prove the part without it."
            )
