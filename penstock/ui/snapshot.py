"""The page's data on a run, as plain data: a pure function of the run's follower and its forecast."""

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, pairwise
from typing import Any

from penstock.app.drawing import nodes_and_edges
from penstock.app.picture import drawn
from penstock.connectors.lag import said
from penstock.errors import SourceError
from penstock.runs.batches import BatchRecord
from penstock.runs.follower import Follower
from penstock.runs.letters import last_letters, topics_of_letters
from penstock.runs.overview import counted_in_real_time
from penstock.runs.record import Record
from penstock.runs.report import EventCounts
from penstock.runtime.hottest import Hottest
from penstock.runtime.tally import ElementTally
from penstock.ui.causes import causes
from penstock.ui.forecast import Forecast

POINTS = 300
"""The greatest number of points of a series; if there are more micro-batches, several are merged into one point."""
LATELY_S = 30.0
"""The span before the last commit that rates and service times cover, in seconds; at least the last micro-batches."""
LETTERS = 20
HOTTEST = 8
"""The number of most frequent keys that are shown of an element."""
WIDEST = "1,000,000/s · 100 ms"
"""The widest figures that a box must have room for."""
OUTCOMES = ("accepted", "processed", "dead_lettered", "queued", "lost", "duplicated", "late")
"""The outcomes by which events are counted."""


def picture(follower: Follower) -> str:
    """Draw the topology with room for figures in the boxes; if there are several queries, each box names its own."""
    nodes, edges = nodes_and_edges(follower.manifest.topology)
    groups = follower.manifest.groups if len(set(follower.manifest.groups.values())) > 1 else {}
    roomy = [
        node._replace(note=max(node.note, WIDEST, key=len), group=groups.get(node.identity.removeprefix("element_"), ""))
        for node in nodes
    ]
    # The boxes are empty until there are figures.
    return drawn(roomy, edges, follower.manifest.application).replace(f">{WIDEST}<", "><")


def snapshot(follower: Follower, forecast: Forecast) -> dict[str, Any]:
    """Return the data of the page that change while a run is running."""
    state = follower.state
    statements = causes(follower, forecast.verdicts, state)
    trigger = follower.starts[-1].trigger if follower.starts else None
    return {
        "run": follower.manifest.run,
        "name": follower.run.name,
        "path": str(follower.run),
        "application": follower.manifest.application,
        "state": state,
        "causes": [cause._asdict() for cause in statements],
        "healthy": not any(cause.fault for cause in statements),
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
    """Return the events by outcome: accepted = processed + dead-lettered + queued; in a running run, queued is by offsets."""
    if follower.manifest.is_real_time:
        reported = None if state == "running" else counted_in_real_time(follower.run, follower.manifest)
        if reported is None:
            return {**dict.fromkeys(OUTCOMES), "kind": "a run in real time is counted when it stops"}
        return _as_reported(reported)
    report = follower.report
    if report is not None and report.batches == follower.totals.batches and state != "running":  # of the last stop
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
        "late": sum(tally.late for tally in follower.totals.elements.values()),
        "kind": "committed so far; queued as of the last micro-batch, where the sources tell",
    }


def _as_reported(counts: EventCounts) -> dict[str, Any]:
    return {**{name: getattr(counts, name) for name in OUTCOMES}, "kind": "counted when the run stopped"}


def _waiting(follower: Follower) -> float | None:
    """Return the number of rows that wait at the sources; None if a source does not report it."""
    last = {record.name: record for record in follower.progress if record.sources}
    backlogs = [_left(last[name]) for name in follower.present if follower.groups[name].external and name in last]
    known = [backlog for backlog in backlogs if backlog is not None]
    return sum(known) if backlogs and len(known) == len(backlogs) else None


def _left(record: Record) -> float | None:
    """Return the number of rows that a micro-batch has left at its sources; None if a source does not report it."""
    known = [source.waiting for source in record.sources if source.waiting is not None]
    return float(sum(known)) if known and len(known) == len(record.sources) else None


def _recent(records: Sequence[BatchRecord]) -> list[BatchRecord]:
    """Return the last micro-batches, of those since the clock was last set back."""
    back = (place for place, (one, other) in enumerate(pairwise(records), 1) if other.committed_us < one.committed_us)
    steady = records[max(back, default=0) :]
    last = steady[-1].committed_us if steady else 0
    recent = [record for record in steady if record.committed_us > last - LATELY_S * 1e6]
    return recent if len(recent) > 2 else list(steady[-3:])


def _lately(follower: Follower) -> dict[str, Any]:
    """Return the rates of streams, sources and sinks, and the figures of elements, over the last half minute of commits."""
    streams: dict[str, float] = {}
    sinks: dict[str, float] = {}
    elements: dict[str, _Lately] = {}
    rate = 0.0
    for name in follower.present:
        seen = follower.groups[name]
        records = list(seen.records)[-POINTS:]
        recent = _recent(records)
        span = (recent[-1].committed_us - recent[0].committed_us) / 1e6 if recent else 0.0
        if not span:
            continue
        for record in recent[1:]:
            for stream, events in record.streams.items():
                if stream not in seen.handed_on:
                    streams[stream] = streams.get(stream, 0.0) + events / span
            for sink, events in record.outputs.items():
                sinks[sink] = sinks.get(sink, 0.0) + events / span
            for source, tally in record.sources.items():
                rate += tally.accepted / span if source in seen.external else 0.0
            for element, figures in record.elements.items():
                elements.setdefault(element, _Lately(span)).add(figures)
    totals, waiting = follower.totals.elements, follower.waiting()
    return {
        "rate": rate,
        "streams": streams,
        "sinks": sinks,
        "elements": {
            name: {
                "rate": figures.events / figures.span,
                "service_us": figures.busy_us / figures.events if figures.events and figures.busy_us else None,
                "busy": figures.busy_us / 1e6 / figures.span if figures.busy_us else None,
                "dead_letters": totals[name].dead_letters,
                "late": totals[name].late,
                "late_in_part": totals[name].late_in_part,
                "instances": sum(totals[name].instances.values()),
                "events": totals[name].events,
                "skew": _skew(totals[name].instances),
                "hottest": [(key, times / figures.events) for key, times in figures.hottest.most(HOTTEST)],
            }
            for name, figures in elements.items()
        },
        "waiting": {name: float(figures.rows) for name, figures in waiting.items()},
        "lag": {name: dict(figures.partitions) for name, figures in waiting.items() if figures.partitions},
        "waits": said(waiting),
    }


@dataclass
class _Lately:
    """The work of an element in a span of seconds, without the histograms, which are slow to add up."""

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
    """Return the instances of the fullest partition divided by the mean; None for one partition, or without instances."""
    total = sum(instances.values())
    return max(instances.values()) * len(instances) / total if len(instances) > 1 and total else None


def _series(follower: Follower) -> list[dict[str, Any]]:
    """Return the series of each group over time: latency quantiles, rate, duration of micro-batches, and waiting rows."""
    series = []
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
            lasted = [duration for record in part if (duration := durations.get((name, record.batch))) is not None]
            rows.append(
                [
                    part[-1].committed_us / 1e6,
                    *follower.groups[name].quantiles(part),
                    taken / span if span and span > 0 else None,
                    sum(lasted) / len(lasted) if lasted else None,
                    waiting.get((name, part[-1].batch)),
                ]
            )
        series.append({"group": name, "gives_results": any(row[1] is not None for row in rows), "rows": rows})
    return series


def _place(stride: int, record: BatchRecord) -> int:
    """Return the index of a micro-batch's point; it depends on its number only, so that points stay when others follow."""
    return record.batch // stride


def _marks(follower: Follower) -> list[dict[str, Any]]:
    """Return the marks on the time axis: starts, plans applied or reverted, and moves of instances."""
    marks: list[dict[str, Any]] = [{"at": start.time, "kind": "start"} for start in follower.starts if not start.changed]
    marks += [
        {"at": step.time, "kind": step.kind, "why": step.why} for step in follower.decisions if step.kind in ("apply", "revert")
    ]
    marks += [{"at": move.time, "kind": "move", "why": f"{move.instances:,} instances moved"} for move in follower.moves]
    return marks


def _letters(follower: Follower) -> list[dict[str, Any]]:
    """Return the last dead letters, newest first, each with the command that replays those of its place."""
    if not follower.totals.dead_lettered and not follower.report:
        return []
    try:
        last = last_letters(follower.run, LETTERS)
    except SourceError as error:  # the rest of the page is as sound as it was
        return [{"place": "", "error": str(error), "line": None, "payload": "", "replay": ""}]
    return [
        {
            "place": letter.place,
            "error": letter.error,
            "line": letter.line,
            "payload": (letter.again() or letter.raw or "")[:500],
            "replay": shlex.join(["penstock", "letters", str(follower.run), "--of", letter.place, "--replay", "again.jsonl"]),
        }
        for letter in reversed(last)
    ]
