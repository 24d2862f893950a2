"""What the page shows of a run, as plain data: a pure function of what was followed and forecast."""

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any

from penstock.app.drawing import nodes_and_edges
from penstock.app.picture import drawn
from penstock.connectors.lag import said
from penstock.runs.batches import BatchRecord
from penstock.runs.follower import Follower
from penstock.runs.letters import last_letters, topics_of_letters
from penstock.runs.overview import counted_in_real_time
from penstock.runs.record import Record
from penstock.runs.report import Outcome
from penstock.runtime.hottest import Hottest
from penstock.runtime.tally import ElementTally
from penstock.ui.causes import causes
from penstock.ui.forecast import Forecast

POINTS = 300
"""Of each series; more micro-batches are put together."""
LATELY_S = 30.0
"""Rates and service times are of so many seconds before the last commit, or of its last two micro-batches."""
LETTERS = 20
HOTTEST = 8
"""Keys of an element."""
WIDEST = "1,000,000/s · 100 ms"
"""What a box must have room for."""
OUTCOMES = ("accepted", "processed", "dead_lettered", "queued", "lost", "duplicated", "late")
"""Of events, as counted."""


def picture(follower: Follower) -> str:
    """The topology, drawn, with room for figures in the boxes; with the queries that elements run in, if there are several."""
    nodes, edges = nodes_and_edges(follower.manifest.topology)
    groups = follower.manifest.groups if len(set(follower.manifest.groups.values())) > 1 else {}
    roomy = [
        node._replace(note=max(node.note, WIDEST, key=len), group=groups.get(node.identity.removeprefix("element_"), ""))
        for node in nodes
    ]
    # What is in a box before anything is known is nothing.
    return drawn(roomy, edges, follower.manifest.application).replace(f">{WIDEST}<", "><")


def snapshot(follower: Follower, forecast: Forecast) -> dict[str, Any]:
    """All that changes while a run is on."""
    state = follower.state
    found = causes(follower, forecast.verdicts, state)
    trigger = follower.starts[-1].trigger if follower.starts else None
    return {
        "run": follower.manifest.run,
        "name": follower.run.name,
        "path": str(follower.run),
        "application": follower.manifest.application,
        "state": state,
        "causes": [one._asdict() for one in found],
        "healthy": not any(one.fault for one in found),
        "counts": _counts(follower, state),
        "batches": follower.totals.batches,
        "lately": _lately(follower),
        "series": _series(follower),
        "master": follower.starts[-1].master if follower.starts else None,
        "marks": _marks(follower),
        "today": forecast.today,
        "why_not": forecast.why_not,
        "trigger": trigger,
        "fits": forecast.fits,
        "real_time": follower.manifest.is_real_time,
        "letters": _letters(follower),
        "letters_in": topics_of_letters(follower.manifest),
        "groups": follower.manifest.groups,
        "partitions": follower.manifest.partitions,
    }


def _counts(follower: Follower, state: str) -> dict[str, Any]:
    """accepted = processed + dead-lettered + queued; while a run is on, what is queued is what Spark's offsets say."""
    if follower.manifest.is_real_time:
        reported = None if state == "running" else counted_in_real_time(follower.run)
        if reported is None:
            return {**dict.fromkeys(OUTCOMES), "kind": "a run in real time is counted when it stops"}
        return _as_reported(reported)
    report = follower.report
    if report is not None and report.batches == follower.totals.batches and state != "running":  # it is of the last stop
        return _as_reported(report.counts)
    decoded = sum(source.accepted for source in follower.totals.sources.values())
    dead = follower.totals.dead_lettered
    waiting = _waiting(follower)
    queued = None if waiting is None else int(waiting)
    return {
        "accepted": None if queued is None else decoded + queued,
        "processed": decoded - dead,
        "dead_lettered": dead,
        "queued": queued,
        "lost": None,
        "duplicated": None,
        "late": sum(one.late for one in follower.totals.elements.values()),
        "kind": "committed so far; queued as of the last micro-batch, where the sources tell",
    }


def _as_reported(counts: Outcome) -> dict[str, Any]:
    return {**{name: getattr(counts, name) for name in OUTCOMES}, "kind": "counted when the run stopped"}


def _waiting(follower: Follower) -> float | None:
    """Rows that wait at the sources; None where one of them does not tell."""
    last = {record.name: record for record in follower.progress if record.sources}
    left = [_left(last[name]) for name in follower.present if follower.groups[name].external and name in last]
    known = [one for one in left if one is not None]
    return sum(known) if left and len(known) == len(left) else None


def _left(record: Record) -> float | None:
    """Rows that a micro-batch has left for later; None where a source does not tell."""
    known = [source.waiting for source in record.sources if source.waiting is not None]
    return float(sum(known)) if known and len(known) == len(record.sources) else None


def _recent(records: Sequence[BatchRecord]) -> list[BatchRecord]:
    last = records[-1].committed_us if records else 0
    recent = [record for record in records if record.committed_us > last - LATELY_S * 1e6]
    return recent if len(recent) > 2 else list(records[-3:])


def _lately(follower: Follower) -> dict[str, Any]:
    """Rates of streams, sources and sinks, and what elements do, over the last half minute of commits."""
    streams: dict[str, float] = {}
    sinks: dict[str, float] = {}
    elements: dict[str, _Lately] = {}
    rate = 0.0
    for name in follower.present:
        seen = follower.groups[name]
        records = list(seen.records)[-POINTS:]
        recent = _recent(records)
        if len(recent) < 2:
            continue
        span = (recent[-1].committed_us - recent[0].committed_us) / 1e6
        for record in recent[1:]:
            for stream, events in record.streams.items():
                if stream not in seen.handed_on:
                    streams[stream] = streams.get(stream, 0.0) + events / span
            for sink, events in record.outputs.items():
                sinks[sink] = sinks.get(sink, 0.0) + events / span
            for source, tally in record.sources.items():
                rate += tally.accepted / span if source in seen.external else 0.0
            for element, one in record.elements.items():
                elements.setdefault(element, _Lately(span)).add(one)
    totals, waiting = follower.totals.elements, follower.waiting()
    return {
        "rate": rate,
        "streams": streams,
        "sinks": sinks,
        "elements": {
            name: {
                "rate": one.events / one.span,
                "service_us": one.busy_us / one.events if one.events and one.busy_us else None,
                "busy": one.busy_us / 1e6 / one.span if one.busy_us else None,
                "dead_letters": totals[name].dead_letters,
                "late": totals[name].late,
                "late_in_part": totals[name].late_in_part,
                "instances": sum(totals[name].instances.values()),
                "events": totals[name].events,
                "skew": _skew(totals[name].instances),
                "hottest": [(key, times / one.events) for key, times in one.hottest.most(HOTTEST)],
            }
            for name, one in elements.items()
        },
        "waiting": {name: float(one.rows) for name, one in waiting.items()},
        "lag": {name: dict(one.partitions) for name, one in waiting.items() if one.partitions},
        "waits": said(waiting),
    }


@dataclass
class _Lately:
    """What an element has done in a span of seconds, without the histograms, which take long to add up."""

    span: float
    events: int = 0
    busy_us: float = 0.0
    hottest: Hottest = field(default_factory=Hottest)

    def add(self, tally: ElementTally) -> None:
        self.events += tally.events
        self.busy_us += tally.busy_us
        if tally.hottest.counts:
            self.hottest.merge(tally.hottest)


def _skew(instances: dict[int, int]) -> float | None:
    """Instances of the fullest partition over the mean."""
    total = sum(instances.values())
    return max(instances.values()) * len(instances) / total if len(instances) > 1 and total else None


def _series(follower: Follower) -> list[dict[str, Any]]:
    """Over time, of each group that gives results: latency, rate, duration of micro-batches, and what waits."""
    found = []
    durations = {(record.name, record.number): record.duration for record in follower.progress}
    waiting = {(record.name, record.number): _left(record) for record in follower.progress}
    for name in follower.present:
        records = list(follower.groups[name].records)
        if not records:
            continue
        stride = max(1, math.ceil(len(records) / POINTS))
        rows: list[list[float | None]] = []
        before = None
        for _, several in groupby(records, partial(_place, stride)):
            part = list(several)
            taken = sum(source.accepted for record in part for source in record.sources.values())
            span = None if before is None else (part[-1].committed_us - before) / 1e6
            before = part[-1].committed_us
            lasted = [one for record in part if (one := durations.get((name, record.batch))) is not None]
            rows.append(
                [
                    part[-1].committed_us / 1e6,
                    *follower.groups[name].quantiles(part),
                    taken / span if span else None,
                    sum(lasted) / len(lasted) if lasted else None,
                    waiting.get((name, part[-1].batch)),
                ]
            )
        found.append({"group": name, "gives_results": any(row[1] is not None for row in rows), "rows": rows})
    return found


def _place(stride: int, record: BatchRecord) -> int:
    """Which point a micro-batch is part of; by its number, so that points stay as they are when others come."""
    return record.batch // stride


def _marks(follower: Follower) -> list[dict[str, Any]]:
    """Restarts, plans and moves, at their times."""
    marks: list[dict[str, Any]] = [{"at": start.time, "kind": "start"} for start in follower.starts if not start.changed]
    marks += [
        {"at": one.time, "kind": one.kind, "why": one.why} for one in follower.decisions if one.kind in ("apply", "revert")
    ]
    marks += [{"at": one.time, "kind": "move", "why": f"{one.instances:,} instances moved"} for one in follower.moves]
    return marks


def _letters(follower: Follower) -> list[dict[str, Any]]:
    """The last dead letters, and how to have those of their kind read again."""
    if not follower.totals.dead_lettered and not follower.report:
        return []
    last = last_letters(follower.run, LETTERS)
    return [
        {
            "place": one.place,
            "error": one.error,
            "line": one.line,
            "payload": (one.again() or one.raw or "")[:500],
            "replay": shlex.join(["penstock", "letters", str(follower.run), "--of", one.place, "--replay", "again.jsonl"]),
        }
        for one in reversed(last)
    ]
