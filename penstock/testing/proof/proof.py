"""Proofs: what a prover has tried and found, and its report."""

from pathlib import Path

import msgspec

from penstock.testing.proof.outcome import Rows
from penstock.testing.proof.suspects import Cause

SHOWN = 3
"""The most rows and events of an example that a report shows."""

MEANINGS: dict[Cause, str] = {
    "randomness": "two runs of the same input differ, for it draws at random, or shows what is another in each process (its "
    "number, addresses): draw by the event's own id, as Random(event.id)",
    "clock": "results depend on the clock of the machine, or on its time zone: take the time from the event, or self.now, "
    "which a replay repeats, and name the zone",
    "order": "results depend on the order of events that no source promises, or on how they fall into micro-batches",
    "hash": "results depend on Python's hash seed, another in each process: sort what comes out of a set, and use no hash()",
    "global": "results depend on what the process keeps outside of state, which no replay, restart or other worker has",
    "effect": "it does something outside, which is done again whenever its micro-batch is: leave that to a sink",
    "state": "something is kept on the instance that is lost, or is not the same, once its state is written and read back",
    "float-order": "sums of floats end in other digits in another order: use math.fsum over what is kept, integers, or Decimal",
    "late": "results depend on which events are late, and that on how they fall into micro-batches: allow more lateness",
}


class Example(msgspec.Struct):
    """The smallest input found on which two runs differ.

    Args:
        events: JSON by source.
        schedule: how the second run was different, in words.
        place: the stream that differs, or the dead letters.
        expected, got: the rows that only the first, or only the second, run has there.
    """

    events: dict[str, Rows]
    schedule: str
    place: str
    expected: Rows
    got: Rows


class Finding(msgspec.Struct):
    """A reason why results differ between runs.

    Args:
        element: the element at fault.
        file, line: the line of the application's code at fault; None where it is not known.
    """

    cause: Cause
    element: str
    file: str | None
    line: int | None
    what: str
    example: Example | None


class Proof(msgspec.Struct):
    """The result of a prover. Without findings it only states what was tried.

    Args:
        tried: the number of runs, by kind of trial.
        events: the number of events in the sample, by source.
        drawn: whether the sample was drawn from the event types.
        notes: facts that are no faults, but should be known.
    """

    application: str
    tried: dict[str, int]
    events: dict[str, int]
    drawn: bool
    findings: list[Finding]
    notes: list[str]

    @property
    def sound(self) -> bool:
        """Whether there are no findings."""
        return not self.findings

    def to_text(self) -> str:
        """Return the report as text."""
        sizes = ", ".join(f"{count} of {name}" for name, count in self.events.items())
        runs = ", ".join(f"{count} {kind}" for kind, count in self.tried.items())
        origin = "drawn from their types" if self.drawn else "given"
        head = f"{self.application}: {sum(self.tried.values())} runs over {sizes} ({origin}): {runs}."
        return "\n".join([head, *(f"Note: {note}." for note in self.notes), *map(_said, self.findings), self._verdict()])

    def _verdict(self) -> str:
        if self.sound:
            return "Sound, as far as was tried: all runs came to the same."
        return f"Not sound: {len(self.findings)} finding{'s' if len(self.findings) > 1 else ''}."


def _said(finding: Finding) -> str:
    where = "" if finding.line is None else f", {Path(finding.file or '').name}:{finding.line}"
    lines = [f"{finding.cause}: element {finding.element}{where}: {MEANINGS[finding.cause]}."]
    if finding.what:
        lines.append(f"  at fault: {finding.what}")
    if finding.example is not None:
        example = finding.example
        lines.append(f"  differs: {example.schedule}")
        for source, events in example.events.items():
            lines += [f"  {source}: {event}" for event in _some(events)]
        lines += [f"  {example.place}, in the one run only: {row}" for row in _some(example.expected)]
        lines += [f"  {example.place}, in the other only: {row}" for row in _some(example.got)]
    return "\n".join(lines)


def _some(rows: Rows) -> Rows:
    more = len(rows) - SHOWN
    return rows if more <= 0 else [*rows[:SHOWN], f"(and {more} more)"]
