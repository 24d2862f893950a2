"""The report of a run: a pure function of what was recorded."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from penstock.app.topology import Topology
from penstock.connectors.source import Reckoning
from penstock.engine.ledger import BatchRecord
from penstock.engine.progress import Sums
from penstock.runtime.histogram import Histogram
from penstock.runtime.lineage import NONE
from penstock.runtime.output import LETTERS
from penstock.runtime.tally import Counts, ElementTally


class Totals(Counts):
    """The sums over the committed batches of all groups."""

    batches: int = 0
    dead_lettered: int = 0
    latency_ms: Histogram = msgspec.field(default_factory=Histogram)

    def add(self, record: BatchRecord, external: frozenset[str], handed_on: frozenset[str]) -> None:
        """Add a batch.

        Parameters
        ----------
        external: the sources that are not hops, whose events count as accepted.
        handed_on: streams that enter this group by a hop, which the group before has counted.
        """
        sources = {name: source for name, source in record.sources.items() if name in external}
        streams = {name: events for name, events in record.streams.items() if name not in handed_on}
        failed = record.dead_lettered if external else 0
        self.merge(msgspec.structs.replace(record, sources=sources, streams=streams, dead_lettered=failed))
        self.batches += record.batches


def report_of(
    topology: Topology,
    totals: Totals,
    reckonings: dict[str, Reckoning],
    progress: Sums,
    *,
    engine: str,
    master: str,
    refused: int,
) -> dict[str, Any]:
    """The report; every figure in it is measured.

    Parameters
    ----------
    refused: results that sinks have refused as they were delivered, which are dead letters, too.

    ``lost`` and ``duplicated`` compare counts made at different places: the source's own reckoning
    against what was decoded, and what was sent to each keyed element against what it received.
    """
    decoded = sum(source.accepted for source in totals.sources.values())
    reckoned = {name: reckoning.committed for name, reckoning in reckonings.items() if reckoning.committed is not None}
    uncountable = [name for name in reckonings if name not in reckoned]  # what was decoded stands for what was read
    committed = sum(reckoned.values()) + sum(totals.source(name).accepted for name in uncountable)
    queued = sum(reckoning.queued for reckoning in reckonings.values())
    gaps = [committed - decoded]
    gaps += [totals.sent.get(name, 0) - totals.received.get(name, 0) for name in totals.sent | totals.received]
    busy_ms, rows = progress.busiest
    return {
        "application": topology.application,
        "engine": engine,
        "master": master,
        "counts": {
            "accepted": committed + queued,
            "processed": decoded - totals.dead_lettered,
            "dead_lettered": totals.dead_lettered,
            "queued": queued,
            "uncounted_sources": uncountable,
            "lost": sum(gap for gap in gaps if gap > 0),
            "duplicated": -sum(gap for gap in gaps if gap < 0),
            "late": sum(element.late for element in totals.elements.values()) + progress.late,
            "late_in_part": sum(element.late_in_part for element in totals.elements.values()),
            "dead_letters": totals.outputs.get(LETTERS, 0) + refused,
            "refused": refused,
        },
        "lag": {name: dict(reckoning.lag) for name, reckoning in reckonings.items() if reckoning.lag},
        "streams": {stream.name: totals.streams.get(stream.name, 0) for stream in topology.streams},
        "sinks": {sink.name: totals.outputs.get(sink.name, 0) for sink in topology.sinks},
        "elements": {
            element.name: _element(totals.elements.get(element.name, ElementTally()), element.keyed)
            for element in topology.elements
        },
        "watermarks": watermarks_of(topology, totals),
        "throughput_events_per_s": round(rows / busy_ms * 1000, 1) if busy_ms else None,
        "latency_ms": _rounded(totals.latency_ms.summary()),
        "batches": totals.batches,
        "units": {
            "throughput_events_per_s": "measured: source events per second of micro-batches that had any",
            "latency_ms": "measured: intended send time to commit of the result, quantiles within 0.5%",
            "service_time_us": "measured: one event's handling, one in 64 sampled",
        },
    }


def watermarks_of(topology: Topology, totals: Totals) -> dict[str, str]:
    """How far each source with an event time is, the one that holds the others back first."""
    reached = {
        source.name: totals.source(source.name).newest_us / 1e6 - source.event_time.lateness
        for source in topology.sources
        if source.event_time is not None and totals.source(source.name).newest_us != NONE
    }
    return {
        name: datetime.fromtimestamp(mark, UTC).isoformat()
        for name, mark in sorted(reached.items(), key=lambda item: item[1])
    }


def _element(tally: ElementTally, keyed: bool) -> dict[str, Any]:
    return {
        "events": tally.events,
        "dead_letters": tally.dead_letters,
        "late": tally.late,
        "late_in_part": tally.late_in_part,
        "instances": sum(tally.instances.values()) if keyed else None,
        "service_time_us": _rounded(
            {"mean": tally.busy_us / tally.events if tally.events else None, **tally.service_us.summary()}
        ),
    }


def _rounded(values: dict[str, float | None]) -> dict[str, float | None]:
    return {name: None if value is None else round(value, 3) for name, value in values.items()}
