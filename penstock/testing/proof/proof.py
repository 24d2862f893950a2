"""What a prover has tried and found, and how it says so."""

from pathlib import Path

import msgspec

from penstock.testing.proof.outcome import Rows
from penstock.testing.proof.suspects import Cause

SHOWN = 3
"""Rows and events of an example that are shown on a screen."""

MEANINGS: dict[Cause, str] = {
    "randomness": "two runs of the same input differ, for it draws at random: draw by the event's own id, as Random(event.id)",
    "clock": "results depend on the clock of the machine: take the time from the event, or self.now, which a replay repeats",
    "order": "results depend on the order of events that no source promises, or on how they fall into micro-batches",
    "hash": "results depend on Python's hash seed, another in each process: sort what comes out of a set, and use no hash()",
    "global": "results depend on what the process keeps outside of state, which no replay, restart or other worker has",
    "effect": "it does something outside, which is done again whenever its micro-batch is: leave that to a sink",
    "state": "something is kept on the instance that is lost, or is not the same, once its state is written and read back",
    "float-order": "sums of floats end in other digits in another order: use math.fsum over what is kept, integers, or Decimal",
    "late": "results depend on which events are late, and that on how they fall into micro-batches: allow more lateness",
}


class Example(msgspec.Struct):
    """The smallest input that was found on which runs differ.

    Parameters
    ----------
    events: by source. schedule: what was different, in words. place: the stream, or the dead letters, that differ.
    expected, got: what only one of the two runs has there.
    """

    events: dict[str, Rows]
    schedule: str
    place: str
    expected: Rows
    got: Rows


class Finding(msgspec.Struct):
    """Why results are not always the same.

    Parameters
    ----------
    element: at fault. file, line: of the application's code, where it is known.
    """

    cause: Cause
    element: str
    file: str | None
    line: int | None
    what: str
    example: Example | None


class Proof(msgspec.Struct):
    """What a prover has to say; nothing found says what was tried, and no more.

    Parameters
    ----------
    tried: how many runs there were, by what was different in them. events: of the sample, by source. drawn: whether they were
        drawn from their types, and not given.
    notes: what is no fault, and should be known.
    """

    application: str
    tried: dict[str, int]
    events: dict[str, int]
    drawn: bool
    findings: list[Finding]
    notes: list[str]

    @property
    def sound(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def to_text(self) -> str:
        """For a screen."""
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
    left = len(rows) - SHOWN
    return rows if left <= 0 else [*rows[:SHOWN], f"(and {left} more)"]
