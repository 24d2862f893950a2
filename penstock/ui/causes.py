"""Is the run healthy, and if not, why: the causes, the gravest first, each with its evidence and what mends it."""

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
"""Micro-batches that are looked at for dead letters and late events."""
SILENT_S = 60.0
LAGGED, LAGGED_BY = 3, 0.9
"""So many micro-batches leave such a share of what waits, and more than they take, at one partition of several that is
skewed.
"""
LASTED = 5
"""Micro-batches of which the longest says how long one may take in silence: three times as long."""

MENDS = {
    "saturated": "Give it more cores or partitions, or make the busiest element cheaper; a longer trigger helps where "
    "micro-batches are small.",
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
"""What to do about each cause."""
NO_FAULT = {"healthy", "idle", "unclear"}
"""Verdicts that only say how things are."""


class Cause(NamedTuple):
    """What was found; ``fault`` is False for what only says how things are."""

    kind: str
    evidence: str
    mend: str
    sure: bool
    fault: bool


def causes(follower: Follower, verdicts: Sequence[Verdict], state: str) -> list[Cause]:
    """All that is to be said, the gravest first; never empty."""
    found = [*_of_silence(follower), *_of_counts(follower), *_of_verdicts(follower, verdicts, state), *_of_lag(follower, state)]
    faults = [one for one in found if one.fault]
    if faults:
        return faults
    if state != "running":
        last = "its input is over" if state == "ended" else "it may be resumed"
        return [Cause(state, f"The run is not on; {last}.", MENDS.get(state, ""), sure=True, fault=False)]
    if follower.manifest.is_real_time:
        return [Cause("real time", "Events pass as they come; no micro-batch says how long.", "", sure=False, fault=False)]
    return found or [Cause("unclear", "Nothing was committed yet.", "", sure=False, fault=False)]


def _of_silence(follower: Follower) -> Iterator[Cause]:
    minutes = silent_for(follower)
    if minutes:
        yield Cause(
            "silent",
            f"The run is on, and has neither committed nor reported anything for {minutes} minutes.",
            MENDS["silent"],
            sure=True,
            fault=True,
        )


def _of_verdicts(follower: Follower, verdicts: Sequence[Verdict], state: str) -> Iterator[Cause]:
    for one in verdicts:
        fault = one.kind not in NO_FAULT
        if fault or state == "running":
            busiest = _busiest(follower) if one.kind == "saturated" else ""
            yield Cause(one.kind, f"{one.text}{busiest}", MENDS.get(one.kind, ""), one.confident, fault)


def _busiest(follower: Follower) -> str:
    """The element that most of the elements' time goes to."""
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


def _of_counts(follower: Follower) -> Iterator[Cause]:
    """What the ledger says by itself, for which no model is needed."""
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
    written = all(one.late == "dead-letter" for one in _event_times(follower))
    late_letters = {name: min(late[name], letters[name]) if written else 0 for name in letters}
    dead = sum(record.dead_lettered for record in records) - sum(late_letters.values())
    if dead > 0:
        worst = max(letters, key=lambda name: letters[name] - late_letters[name], default="")
        where = f"most in {worst}" if worst and letters[worst] > late_letters[worst] else "while decoding"
        yield Cause(
            "dead letters",
            f"{dead:,} of the last {max(taken, dead):,} events became dead letters, {where}.",
            MENDS["dead letters"],
            sure=True,
            fault=True,
        )
    if sum(late_letters.values()) or sum(late.values()) + in_part > 0.001 * max(taken, 1):
        worst = max(late, key=lambda name: late[name])
        part = f"; {in_part:,} more missed some of their windows" if in_part else ""
        yield Cause(
            "late events",
            f"{sum(late.values()):,} of the last {taken:,} events came after the watermark, most at {worst}{part}.",
            MENDS["late events"],
            sure=True,
            fault=True,
        )


def _of_lag(follower: Follower, state: str) -> Iterator[Cause]:
    """A partition that lags alone."""
    for name, several in follower.told(LAGGED).items() if state == "running" else ():
        lagging = [_lagging(one) for one in several]
        if len(lagging) == LAGGED and lagging[-1] is not None and len(set(lagging)) == 1:
            yield Cause(
                "skewed partition",
                f"waiting at {name}: {several[-1].lag}; the last {LAGGED} micro-batches have all left more there than they "
                "took.",
                MENDS["skewed partition"],
                sure=True,
                fault=True,
            )


def _lagging(told: SourceRecord) -> str | None:
    """The partition at which nearly all waits that a micro-batch has left, where that is more than it took."""
    if told.lag is None or told.lag.worst is None or told.lag.rows <= told.taken:
        return None
    name, rows = told.lag.worst
    return name if rows >= LAGGED_BY * told.lag.rows else None


def _event_times(follower: Follower) -> list[EventTimeDescription]:
    """What sources say of the times of their events, and of late ones."""
    return [source.event_time for source in follower.manifest.topology.sources if source.event_time is not None]


def silent_for(follower: Follower) -> int:
    """Minutes since a run that has something to do has last committed or reported; 0 where it is not on, or idle."""
    last = max((seen.records[-1].committed_us / 1e6 for seen in follower.groups.values() if seen.records), default=None)
    if last is None or follower.state != "running":
        return 0
    reported = follower.run / PROGRESS  # Spark reports every ten seconds that there is nothing to do
    with suppress(OSError):  # of a directory in a store there may be no such time
        last = max(last, reported.stat().st_mtime)
    trigger = follower.starts[-1].trigger if follower.starts else 0.0
    lasted = max((record.duration for record in list(follower.progress)[-LASTED:]), default=0.0)
    silent = time.time() - last
    return int(silent // 60) if silent > max(SILENT_S, 3 * trigger, 3 * lasted) else 0
