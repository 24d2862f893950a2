"""The health of a run: the causes of trouble, the gravest first, each with its evidence and its remedy."""

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from penstock.app.description import EventTimeDescription
from penstock.planner.verdict import Verdict
from penstock.runs.files import PROGRESS
from penstock.runs.follower import Follower
from penstock.runs.record import SourceRecord

RECENT = 30
"""The number of last micro-batches that are searched for dead letters and late events."""
SILENT_S = 60.0
LAGGED, LAGGED_BY = 3, 0.9
"""A partition is skewed if each of so many last micro-batches has left at least this share of the waiting rows there, and left
more rows than it took.
"""
LASTED = 5
"""The number of last micro-batches of which the longest sets how long a run may be silent: three times as long."""

MENDS = {
    "saturated": "Give it more cores or partitions, or make the busiest element cheaper; a longer trigger helps where "
    "micro-batches are small.",
    "working off": "Wait until what had gathered is worked off; only then is the latency as it will be.",
    "at capacity": "Give it more cores or partitions before the rate rises: hardly any time is left.",
    "slowing": "Look for state, tables or files that grow: each row takes longer than before.",
    "source throttled": "Raise max_rows (max_files, maxOffsetsPerTrigger), or trigger more often.",
    "rate rising": "Plan for the rate to come: penstock plan --what-if rate=2x, or run with --adapt.",
    "state growing": "Let instances expire (expires=), or close windows by a watermark.",
    "skewed": "Spread the busiest keys, or aggregate before the key.",
    "skewed partition": (
        "One task reads a partition, however many cores there are: have its senders give messages other keys, or none, so "
        "that they spread."
    ),
    "slow sink": "Look at the sink: its commits take longer than the work. Larger micro-batches make fewer of them.",
    "garbage collection": "Give Spark more memory (--conf spark.driver.memory=4g), or take smaller micro-batches (max_rows).",
    "trigger too short": "Set a longer trigger: penstock tune says which.",
    "waiting at the gate": "Let fewer rows (min_rows) or less time (max_delay) open it: penstock plan says which.",
    "trigger too long": "Set a shorter trigger: penstock tune says which.",
    "silent": "Look into spark.log in the run's directory: a micro-batch hangs, or lasts very long.",
    "dead letters": "Read them below; mend the element or the input, and have them read again.",
    "late events": "Allow more lateness, or look for a source that lags.",
    "stopped": "The same command resumes it.",
}
"""The remedy for each cause, by its kind."""
NO_FAULT = {"healthy", "idle", "unclear"}
"""Kinds of verdicts that are not faults."""


class HealthStatement(NamedTuple):
    """A statement on a run's health; ``fault`` is False if it only describes the state; ``sure`` is False if uncertain."""

    kind: str
    evidence: str
    mend: str
    sure: bool
    fault: bool


def causes(follower: Follower, verdicts: Sequence[Verdict], state: str) -> list[HealthStatement]:
    """Return the causes of trouble of a run, the gravest first, or one or more statements on its state; never empty."""
    known = [*_of_silence(follower), *_of_counts(follower), *_of_verdicts(follower, verdicts, state), *_of_lag(follower, state)]
    faults = [cause for cause in known if cause.fault]
    if faults:
        return faults
    if state != "running":
        last = "its input is over" if state == "ended" else "it may be resumed"
        return [HealthStatement(state, f"The run is not on; {last}.", MENDS.get(state, ""), sure=True, fault=False)]
    if follower.manifest.is_real_time:
        return [
            HealthStatement("real time", "Events pass as they come; no micro-batch says how long.", "", sure=False, fault=False)
        ]
    return known or [HealthStatement("unclear", "Nothing was committed yet.", "", sure=False, fault=False)]


def _of_silence(follower: Follower) -> Iterator[HealthStatement]:
    minutes = silent_for(follower)
    if minutes:
        yield HealthStatement(
            "silent",
            f"The run is on, and has neither committed nor reported anything for {minutes} minutes.",
            MENDS["silent"],
            sure=True,
            fault=True,
        )


def _of_verdicts(follower: Follower, verdicts: Sequence[Verdict], state: str) -> Iterator[HealthStatement]:
    for verdict in verdicts:
        fault = verdict.kind not in NO_FAULT
        if fault or state == "running":
            busiest = _busiest(follower) if verdict.kind == "saturated" else ""
            yield HealthStatement(
                verdict.kind, f"{verdict.text}{busiest}", MENDS.get(verdict.kind, ""), verdict.confident, fault
            )


def _busiest(follower: Follower) -> str:
    """Return a sentence on the element that takes most of the elements' time; empty without measurements."""
    busy: dict[str, float] = {}
    for name in follower.present:
        for record in list(follower.groups[name].records)[-RECENT:]:
            for element, tally in record.elements.items():
                busy[element] = busy.get(element, 0.0) + tally.busy_us
    total = sum(busy.values())
    if not total:
        return ""
    worst = max(busy, key=lambda name: busy[name])
    return f" {worst} takes {busy[worst] / total:.0%} of the elements' time."


def _of_counts(follower: Follower) -> Iterator[HealthStatement]:
    """Yield the causes that follow from the ledger's counts, without a model: dead letters and late events."""
    recent = [(follower.groups[name], list(follower.groups[name].records)[-RECENT:]) for name in follower.present]
    records = [record for _, several in recent for record in several]
    taken = sum(
        source.accepted
        for seen, several in recent
        for record in several
        for name, source in record.sources.items()
        if name in seen.external
    )
    letters: dict[str, int] = {}
    late: dict[str, int] = {}
    in_part = 0
    for record in records:
        for name, tally in record.elements.items():
            letters[name] = letters.get(name, 0) + tally.dead_letters
            late[name] = late.get(name, 0) + tally.late
            in_part += tally.late_in_part
    # Late events that become dead letters count as late events only, so that the same event is not reported twice.
    are_letters = all(event_time.late == "dead-letter" for event_time in _event_times(follower))
    late_letters = {name: min(late[name], letters[name]) if are_letters else 0 for name in letters}
    dead = sum(record.dead_lettered for record in records) - sum(late_letters.values())
    if dead > 0:
        worst = max(letters, key=lambda name: letters[name] - late_letters[name], default="")
        where = f"most in {worst}" if worst and letters[worst] > late_letters[worst] else "while decoding"
        yield HealthStatement(
            "dead letters",
            f"{dead:,} of the last {max(taken, dead):,} events became dead letters, {where}.",
            MENDS["dead letters"],
            sure=True,
            fault=True,
        )
    if sum(late_letters.values()) or sum(late.values()) + in_part > 0.001 * max(taken, 1):
        worst = max(late, key=lambda name: late[name])
        part = f"; {in_part:,} more missed some of their windows" if in_part else ""
        yield HealthStatement(
            "late events",
            f"{sum(late.values()):,} of the last {taken:,} events came after the watermark, most at {worst}{part}.",
            MENDS["late events"],
            sure=True,
            fault=True,
        )


def _of_lag(follower: Follower, state: str) -> Iterator[HealthStatement]:
    """Yield a cause for each source at which one partition alone lags."""
    for name, several in follower.told(LAGGED).items() if state == "running" else ():
        lagging = [_lagging(record) for record in several]
        if len(lagging) == LAGGED and lagging[-1] is not None and len(set(lagging)) == 1:
            yield HealthStatement(
                "skewed partition",
                f"waiting at {name}: {several[-1].lag}; the last {LAGGED} micro-batches have all left more there than they "
                "took.",
                MENDS["skewed partition"],
                sure=True,
                fault=True,
            )


def _lagging(told: SourceRecord) -> str | None:
    """Return the partition that holds nearly all rows left by a micro-batch, if these are more than it took; else None."""
    if told.lag is None or told.lag.worst is None or told.lag.rows <= told.taken:
        return None
    name, rows = told.lag.worst
    return name if rows >= LAGGED_BY * told.lag.rows else None


def _event_times(follower: Follower) -> list[EventTimeDescription]:
    """Return the event-time settings of the sources that have them."""
    return [source.event_time for source in follower.manifest.topology.sources if source.event_time is not None]


def silent_for(follower: Follower) -> int:
    """Return the minutes since a run last committed or reported; 0 if it is not running, or not silent for unusually long."""
    last = max((seen.records[-1].committed_us / 1e6 for seen in follower.groups.values() if seen.records), default=None)
    if last is None or follower.state != "running":
        return 0
    reported = follower.run / PROGRESS  # an idle run, too, reports every ten seconds
    with suppress(OSError):  # a directory in a store may have no modification time
        last = max(last, reported.stat().st_mtime)
    trigger = follower.starts[-1].trigger if follower.starts else 0.0
    lasted = max((record.duration for record in list(follower.progress)[-LASTED:]), default=0.0)
    silent = time.time() - last
    return int(silent // 60) if silent > max(SILENT_S, 3 * trigger, 3 * lasted) else 0
