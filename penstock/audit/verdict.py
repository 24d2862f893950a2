"""The result of an audit, and its report."""

from typing import Any, Literal

import msgspec

Verdict = Literal["sound", "not sound", "cannot tell"]

EXAMPLES = 5
"""The most examples of each kind of fault."""


class RowExample(msgspec.Struct):
    """An example of a wrong row.

    Args:
        row: the row that the sink holds, or should hold.
        times: how many are too many, or missing.
        batch: the last micro-batch that emitted it; None where unknown.
        input: the source event that caused it; None where no single one did.
        earlier: the earlier micro-batches that emitted an equal row: which of them is missing cannot be told.
    """

    row: Any
    times: int
    batch: int | None
    input: str | None
    earlier: list[int] = []


class SinkAudit(msgspec.Struct):
    """A sink compared with the results that the run's input should give. All figures count rows.

    Args:
        expected: results of the input.
        held: rows in the sink.
        missing: expected rows that the sink lacks.
        doubled: surplus copies of expected rows.
        strange: rows that no input gives.
        unknown: why the sink cannot be judged; empty if it can.
        by_key: whether only the last row of each key was compared.
        excused: expected rows that the sink lacks, and may lack, by the reason.
    """

    place: str
    expected: int
    held: int
    missing: int = 0
    doubled: int = 0
    strange: int = 0
    examples: dict[str, list[RowExample]] = {}
    unknown: str = ""
    by_key: bool = False
    excused: dict[str, int] = {}


class SourceAudit(msgspec.Struct):
    """A source compared with the counts of the run.

    Args:
        read: rows read again.
        accepted: events in these rows.
        counted: events that the run counted in committed micro-batches.
    """

    read: int
    accepted: int
    counted: int


class Audit(msgspec.Struct):
    """The result of the audit of a run.

    Args:
        dead_letters: by place of the failure, how many dead letters only the replay (missing) or only the run (strange) has.
        unknown: why nothing, or not everything, can be judged.
        share: of the rows, or of the keys, that were compared.
        exact: whether each micro-batch was replayed exactly; otherwise of momentary rows only the last of each key is compared.
    """

    run: str
    microbatches: int
    exact: bool
    sources: dict[str, SourceAudit]
    sinks: dict[str, SinkAudit]
    dead_letters: dict[str, dict[str, int]]
    unknown: list[str]
    share: float = 1.0

    @property
    def verdict(self) -> Verdict:
        """The overall verdict; a fault decides it even where other parts cannot be judged."""
        wrong = any(sink.missing or sink.doubled or sink.strange for sink in self.sinks.values())
        wrong |= any(source.accepted != source.counted for source in self.sources.values())
        if wrong or self.dead_letters:
            return "not sound"
        return "cannot tell" if self.unknown or any(sink.unknown for sink in self.sinks.values()) else "sound"

    def to_json(self) -> dict[str, Any]:
        """Return the audit as plain data, for JSON."""
        content: dict[str, Any] = {"verdict": self.verdict, **msgspec.to_builtins(self)}
        return content

    def to_text(self) -> str:
        """Return the report as text."""
        how = "as they were" if self.exact else "together, since it is not known any more how they were divided"
        lines = [f"{self.run}: {self.microbatches} committed micro-batches were run again in memory, {how}."]
        for name, source in self.sources.items():
            comparison = (
                "as the run has counted" if source.accepted == source.counted else f"but the run has counted {source.counted:,}"
            )
            lines.append(f"  source {name}: {source.accepted:,} events are there, {comparison}")
        if self.share < 1:
            lines.append(f"  a sample of {100 * self.share:.3g}% of the rows in sinks was compared")
        for name, sink in self.sinks.items():
            lines += _said(name, sink)
        for place, counts in self.dead_letters.items():
            lines.append(f"  dead letters of {place}: {counts['missing']} are missing, {counts['strange']} come of no input")
        lines += [f"  not known: {reason}" for reason in self.unknown]
        meaning = MEANINGS[self.verdict]
        if self.verdict == "sound" and any(sink.excused for sink in self.sinks.values()):
            meaning = SOUND_BUT_EXCUSED
        elif self.verdict == "sound" and self.share < 1:
            meaning = SOUND_IN_SAMPLE
        return "\n".join([*lines, meaning])


MEANINGS: dict[Verdict, str] = {
    "sound": "Sound: every event that was read has come to its results, once.",
    "not sound": "Not sound: what the sinks hold is not what the input comes to.",
    "cannot tell": "Cannot tell: what could be looked at is sound, and not all could be.",
}


SOUND_BUT_EXCUSED = (
    "Sound but for what is not delivered yet, or older than --since: no other row is missing, too many, or of no input."
)
SOUND_IN_SAMPLE = "Sound in the sample: of the rows that were compared none is missing, too many, or of no input."


def _said(name: str, sink: SinkAudit) -> list[str]:
    if sink.unknown:
        return [f"  sink {name} ({sink.place}): not known: {sink.unknown}"]
    wrong = [
        f"{count:,} {word}"
        for count, word in ((sink.missing, "missing"), (sink.doubled, "too many"), (sink.strange, "of no input"))
        if count
    ]
    wrong += [f"{count:,} {why}" for why, count in sink.excused.items()]
    unit = "last rows of keys" if sink.by_key else "rows"
    lines = [
        f"  sink {name} ({sink.place}): {sink.held:,} {unit}, {sink.expected:,} expected: {', '.join(wrong) or 'the same'}"
    ]
    for kind, examples in sink.examples.items():
        for example in examples:
            batches = [number for number in (*example.earlier, example.batch) if number is not None and number >= 0]
            batch = f", of micro-batch {' or '.join(map(str, batches))}" if batches else ""
            origin = "" if example.input is None else f", from {example.input}"
            times = "" if example.times == 1 else f", {example.times} times"
            lines.append(f"    {kind}: {msgspec.json.encode(example.row).decode()}{times}{batch}{origin}")
    return lines
