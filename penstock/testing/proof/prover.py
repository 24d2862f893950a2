"""The prover: runs schedules in turn, and explains each difference by an element, a line of code, a cause and a small input."""

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from random import Random

from penstock.app.application import App
from penstock.app.loader import AppReference
from penstock.app.topology import Topology
from penstock.errors import ConfigurationError, TopologyError
from penstock.testing.proof.agreement import Agreement, Disagreement, says_moments
from penstock.testing.proof.effects import Effect
from penstock.testing.proof.outcome import Outcome
from penstock.testing.proof.proof import Example, Finding, Proof
from penstock.testing.proof.sample import Sample
from penstock.testing.proof.schedule import MICROBATCHES, Place, Schedule, alternating, cut
from penstock.testing.proof.shrinking import smallest
from penstock.testing.proof.suspects import Cause, Part
from penstock.testing.proof.trials import ELSEWHERE, KINDS, SEEDS, SINGLES, Trial, Trials, changed, far_zone
from penstock.testing.proof.workers import Worker
from penstock.testing.proof.world import CodeFacts

RUNS = 240
SECONDS = 20.0
SHRINKING_S = 3.0
FROZEN_RUNS = 6
Advance = Callable[[float, float, str], None]


class Prover:
    """Proves one application over one sample.

    Args:
        reference: tells worker processes how to load the application.
        runs, seconds: the number of runs, or the time, after which it stops.
    """

    def __init__(
        self,
        app: App,
        reference: AppReference,
        sample: Sample,
        *,
        seed: int = 0,
        runs: int = RUNS,
        seconds: float = SECONDS,
        drawn: bool = False,
        advance: Advance | None = None,
    ) -> None:
        self._topology = app.topology()
        _refuse(self._topology)
        self._reference, self._sample, self._draw = reference, sample, Random(seed)
        self._runs, self._seconds, self._advance = runs, seconds, advance
        self._workers: list[Worker] = []
        self._agreement = Agreement(self._topology)
        self._application, self._drawn = app.name, drawn
        self._tried: dict[str, int] = {}
        self._findings: list[Finding] = []
        self._done = 0

    def prove(self) -> Proof:
        """Run all trials, as far as the limits allow.

        Raises:
            ConfigurationError: the application cannot be run over the sample.
        """
        with ExitStack() as stack:
            stack.callback(self._close)
            for number, seed in enumerate(SEEDS):
                zone = far_zone() if number == ELSEWHERE else None
                self._workers.append(Worker(self._reference, self._sample, seed, zone))
            order = alternating({name: len(events) for name, events in self._sample.items()})
            ends = [round(len(order) * number / MICROBATCHES) for number in range(1, MICROBATCHES)]
            self._plain = Schedule(cut(order, ends))
            self._expected = self._workers[0].run(changed(self._plain, counted=True))
            self._deadline = time.monotonic() + self._seconds
            self._refuse_sample()
            facts = self._workers[0].tell()
            self._suspects, self._first_lines = facts.suspects, facts.first_lines
            self._note_effects(facts.effects)
            if not any(effect.far for effect in facts.effects):
                self._note_effects(self._workers[0].grown(self._plain))
                self._try_all()
        sizes = {name: len(events) for name, events in self._sample.items()}
        return Proof(self._application, self._tried, sizes, self._drawn, self._findings, self._notes(facts))

    def _refuse_sample(self) -> None:
        """Refuse a sample that proves nothing.

        Raises:
            ConfigurationError: none of a source's events can be decoded, or the application stops over one.
        """
        if self._expected.failed:
            raise ConfigurationError(
                f"{self._application} stops over its sample ({self._expected.failed}): leave out the event, or what comes "
                "after it cannot be tried."
            )
        for name, events in self._sample.items():
            bad = sum(
                json.loads(row)["element"] is None and json.loads(row)["stream"] == name for row in self._expected.letters
            )
            if bad == len(events):
                raise ConfigurationError(
                    f"None of the {bad} events of {name} can be decoded ({self._expected.errors[f'decoding {name}']}): give "
                    "one JSON event a line."
                )

    def _try_all(self) -> None:
        finest: Outcome | None = None
        belonging = self._workers[0].belonging()
        for trial in Trials(self._topology, self._sample, self._plain, self._expected.hooks, belonging, self._draw):
            if self._done >= self._runs or time.monotonic() > self._deadline or self._agreement.all_excused:
                break
            got = self._run(trial)
            expected = self._expected if trial.against is None else self._workers[0].run(trial.against)
            while (disagreement := self._compared(trial, expected, got)) is not None:
                self._find(trial, disagreement)
            if trial.words == SINGLES:
                finest = got
            if finest is not None and trial.kind == "cuts" and len(self._sample) == 1:
                self._look_at_moments(trial, got, finest)

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
            disagreement = self._agreement.moments_within(outcome, finest)
            if disagreement is not None:
                self._find(trial, disagreement, shrink=False)

    def _close(self) -> None:
        for worker in self._workers:
            worker.close()

    # --- findings -------------------------------------------------------------------------------

    def _find(self, trial: Trial, found: Disagreement, *, shrink: bool = True) -> None:
        cause = self._cause(trial, found)
        file, line, name = self._line(found.element, cause)
        example = self._example(trial, found, shrink=shrink)
        known = {(finding.cause, finding.element) for finding in self._findings}
        if (cause, found.element) not in known:
            self._findings.append(Finding(cause, found.element, file, line, name, example))
        self._agreement.excuse(found.element)

    def _cause(self, trial: Trial, found: Disagreement) -> Cause:
        parts = {suspect.part for suspect in self._suspects if suspect.element == found.element}
        effects = {finding.element for finding in self._findings if finding.cause == "effect"}
        cause = trial.suspected
        if cause == "randomness":
            if trial.kind == "repeats" and self._agrees_when_frozen(found):
                return "clock"
            if "clock" in parts and "randomness" not in parts:
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
        """Whether runs no longer differ in the element once their clocks are frozen at one time; two may agree by chance."""
        frozen = changed(self._plain, frozen=True)
        first = self._workers[0].run(frozen)
        others = (self._workers[0].run(frozen) for _ in range(FROZEN_RUNS))
        disagreements = (self._agreement.of(first, other, same_batches=True) for other in others)
        return not any(disagreement is not None and disagreement.element == found.element for disagreement in disagreements)

    def _keeps_in_vain(self, name: str) -> bool:
        """Whether an element is a keyless class with fields, which are lost after each micro-batch."""
        element = next((known for known in self._topology.elements if known.name == name), None)
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
        places = frozenset(self._plain.order)
        if shrink:
            places, found = self._shrunk(trial, found)
        events = {
            name: [event.decode("utf-8", "replace") for number, event in enumerate(events) if (name, number) in places]
            for name, events in self._sample.items()
        }
        events = {name: rows for name, rows in events.items() if rows}
        return Example(events, trial.words, found.place, found.difference.missing, found.difference.extra)

    def _shrunk(self, trial: Trial, found: Disagreement) -> tuple[frozenset[Place], Disagreement]:
        """Find a small set of events with which the element still differs, within `SHRINKING_S` seconds."""
        least = found

        def differs(kept: frozenset[Place]) -> bool:
            nonlocal least
            expected = self._workers[0].run(trial.against or self._plain, kept)
            again = self._compared(trial, expected, self._workers[trial.worker].run(trial.schedule, kept))
            if again is None or again.element != found.element:
                return False
            least = again
            return True

        kept = smallest(self._plain.order, differs, time.monotonic() + SHRINKING_S)
        return kept, least

    def _note_effects(self, effects: list[Effect]) -> None:
        for effect in effects:
            if not any(finding.element == effect.element for finding in self._findings):
                finding = Finding("effect", effect.element, effect.file, effect.line, effect.what, None)
                self._findings.append(finding)

    def _notes(self, told: CodeFacts) -> list[str]:
        notes = []
        moments = self._agreement.momentary(self._expected)
        for sink in self._topology.sinks:
            if sink.stream.name in moments and not sink.key:
                notes.append(
                    f"sink {sink.name} is appended a row with each micro-batch (on_batch), so that how many it has depends on "
                    "the micro-batches; the last of each key does not. Declare key= for a table that keeps the last"
                )
        if self._expected.errors:
            place, error = next(iter(self._expected.errors.items()))
            number, why = len(self._expected.letters), error.rstrip(".")
            notes.append(f"{number} events of the sample became dead letters, as one of {place}: {why}")
        if any(effect.far for effect in told.effects):
            notes.append("the application reaches out of its process, so it was run once and no more")
        elif not self._agreement.all_excused:
            untried = [kind for kind in KINDS if kind not in self._tried and kind != "mixtures"]
            if untried:
                notes.append(f"there was no time, or no way, to try {', '.join(untried)}; see --seconds and --tries")
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
"""For each cause, the kinds of suspects that may explain it in the element's code."""


def _refuse(topology: Topology) -> None:
    """Refuse a topology that cannot be proved: one without sinks, or with elements of the query dialect."""
    if not topology.sinks:
        raise TopologyError(
            f"{topology.application} has no sink, so that nothing of it can be seen: add app.sink(NAME, STREAM)."
        )
    for element in topology.elements:
        if element.dialect == "query":
            raise TopologyError(
                f"Element {element.name} is in the query dialect, which Spark alone can run: write it in the event or batch "
                "dialect, or prove the part without it."
            )
