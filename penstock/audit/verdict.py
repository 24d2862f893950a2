"""What an audit has found, and how it says so."""

from typing import Any, Literal

import msgspec

Verdict = Literal["sound", "not sound", "cannot tell"]

EXAMPLES = 5
"""Of each kind."""


class Example(msgspec.Struct):
    """A result at fault.

    Parameters
    ----------
    row: as the sink has it, or should. times: how often too much, or too little.
    batch: the micro-batch of which it is a result. input: the event that it comes of, where one alone has caused it.
    """

    row: Any
    times: int
    batch: int | None
    input: str | None


class SinkAudit(msgspec.Struct):
    """A sink against what the run's input comes to.

    Parameters
    ----------
    expected: results of all input that was read. held: what the sink has.
    missing: results that it has not. doubled: those that it has too often. strange: rows that no input comes to.
    unknown: why nothing can be said of it; empty, where something can. by_key: whether only the last row of each key was
        compared.
    """

    place: str
    expected: int
    held: int
    missing: int = 0
    doubled: int = 0
    strange: int = 0
    examples: dict[str, list[Example]] = {}
    unknown: str = ""
    by_key: bool = False


class SourceAudit(msgspec.Struct):
    """A source against what the run has counted.

    Parameters
    ----------
    read: rows that were read again. accepted: events in them. counted: events that the run has counted in its committed
        micro-batches.
    """

    read: int
    accepted: int
    counted: int


class Audit(msgspec.Struct):
    """The audit of a run.

    Parameters
    ----------
    dead_letters: what only the run, or only the recount, has, by the place where it failed.
    unknown: why nothing, or not all, can be told.
    exact: whether each micro-batch was run again as it was; else results of moments count by the last of each key.
    """

    run: str
    microbatches: int
    exact: bool
    sources: dict[str, SourceAudit]
    sinks: dict[str, SinkAudit]
    dead_letters: dict[str, dict[str, int]]
    unknown: list[str]

    @property
    def verdict(self) -> Verdict:
        """A fault that was found is one, whatever cannot be told besides."""
        wrong = any(sink.missing or sink.doubled or sink.strange for sink in self.sinks.values())
        wrong |= any(source.accepted != source.counted for source in self.sources.values())
        if wrong or self.dead_letters:
            return "not sound"
        return "cannot tell" if self.unknown or any(sink.unknown for sink in self.sinks.values()) else "sound"

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        found: dict[str, Any] = {"verdict": self.verdict, **msgspec.to_builtins(self)}
        return found

    def to_text(self) -> str:
        """For a screen."""
        how = "as they were" if self.exact else "together, since it is not known any more how they were divided"
        lines = [f"{self.run}: {self.microbatches} committed micro-batches were run again in memory, {how}."]
        for name, source in self.sources.items():
            told = (
                "as the run has counted" if source.accepted == source.counted else f"but the run has counted {source.counted:,}"
            )
            lines.append(f"  source {name}: {source.accepted:,} events are there, {told}")
        for name, sink in self.sinks.items():
            lines += _said(name, sink)
        for place, found in self.dead_letters.items():
            lines.append(f"  dead letters of {place}: {found['missing']} are missing, {found['strange']} come of no input")
        lines += [f"  not known: {reason}" for reason in self.unknown]
        return "\n".join([*lines, MEANINGS[self.verdict]])


MEANINGS: dict[Verdict, str] = {
    "sound": "Sound: every event that was read has come to its results, once.",
    "not sound": "Not sound: what the sinks hold is not what the input comes to.",
    "cannot tell": "Cannot tell: what could be looked at is sound, and not all could be.",
}


def _said(name: str, sink: SinkAudit) -> list[str]:
    if sink.unknown:
        return [f"  sink {name} ({sink.place}): not known: {sink.unknown}"]
    wrong = [
        f"{count:,} {word}"
        for count, word in ((sink.missing, "missing"), (sink.doubled, "too many"), (sink.strange, "of no input"))
        if count
    ]
    what = "last rows of keys" if sink.by_key else "rows"
    lines = [
        f"  sink {name} ({sink.place}): {sink.held:,} {what}, {sink.expected:,} expected: {', '.join(wrong) or 'the same'}"
    ]
    for kind, examples in sink.examples.items():
        for one in examples:
            batch = "" if one.batch is None or one.batch < 0 else f", of micro-batch {one.batch}"
            origin = "" if one.input is None else f", from {one.input}"
            times = "" if one.times == 1 else f", {one.times} times"
            lines.append(f"    {kind}: {msgspec.json.encode(one.row).decode()}{times}{batch}{origin}")
    return lines
