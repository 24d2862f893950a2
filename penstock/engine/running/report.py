"""Makes the report of a run: a pure function of the recorded counts."""

from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType

from penstock.app.topology import Topology
from penstock.connectors.source import Reckoning
from penstock.runs.progress import ProgressSums
from penstock.runs.report import ElementReport, EventCounts, Report
from penstock.runs.totals import Totals
from penstock.runtime.lineage import NONE
from penstock.runtime.output import LETTERS
from penstock.runtime.places import Place, read_from
from penstock.runtime.tally import ElementTally


def report_of(
    topology: Topology,
    totals: Totals,
    reckonings: dict[str, Reckoning],
    progress: ProgressSums,
    *,
    engine: str,
    master: str,
    refused: int,
    handed_on: Mapping[str, Place] = MappingProxyType({}),
) -> Report:
    """Make the report of a run; every figure in it is measured.

    Args:
        refused: number of results that sinks refused at delivery, which are dead letters, too.
        handed_on: the places at which groups read what others have handed on, by name.

    ``lost`` and ``duplicated`` are sums over places, at both ends of which events are counted: the events that a source says
    were read against those decoded, the events sent to an element against those that arrived, and so on; see
    `penstock.runtime.places`. If equal numbers of different events were counted, that is one lost and one duplicated.
    """
    decoded = sum(source.accepted for source in totals.sources.values())
    reckoned = {name: reckoning.committed for name, reckoning in reckonings.items() if reckoning.committed is not None}
    uncountable = [name for name in reckonings if name not in reckoned]  # for these, the number of decoded events is taken
    committed = sum(reckoned.values()) + sum(totals.source(name).accepted for name in uncountable)
    queued = sum(reckoning.queued for reckoning in reckonings.values())
    places = {read_from(name): Place.of(count, totals.source(name).accepted) for name, count in reckoned.items()}
    places |= {**handed_on, **dict(sorted(totals.places.items()))}
    busy_ms, rows = progress.busiest
    return Report(
        application=topology.application,
        engine=engine,
        master=master,
        counts=EventCounts(
            accepted=committed + queued,
            processed=decoded - totals.dead_lettered,
            dead_lettered=totals.dead_lettered,
            queued=queued,
            uncounted_sources=uncountable,
            lost=sum(place.missing + place.differs for place in places.values()),
            duplicated=sum(place.extra + place.differs for place in places.values()),
            late=sum(element.late for element in totals.elements.values()) + progress.late,
            late_in_part=sum(element.late_in_part for element in totals.elements.values()),
            dead_letters=totals.outputs.get(LETTERS, 0) + refused,
            refused=refused,
        ),
        places=places,
        uncounted=[element.name for element in topology.elements if element.dialect == "query"],
        lag={name: dict(reckoning.lag) for name, reckoning in reckonings.items() if reckoning.lag},
        streams={stream.name: totals.streams.get(stream.name, 0) for stream in topology.streams},
        sinks={sink.name: totals.outputs.get(sink.name, 0) for sink in topology.sinks},
        elements={
            element.name: _element(totals.elements.get(element.name, ElementTally()), element.keyed)
            for element in topology.elements
        },
        watermarks=watermarks_of(topology, totals),
        throughput_events_per_s=round(rows / busy_ms * 1000, 1) if busy_ms else None,
        latency_ms=_rounded(totals.latency_ms.summary()),
        timed_results=totals.latency_ms.count,
        batches=totals.batches,
        units={
            "throughput_events_per_s": "measured: source events per second of micro-batches that had any",
            "latency_ms": "measured: intended send time to commit of the result, quantiles within 0.5%",
            "service_time_us": "measured: one event's handling, one in 64 sampled",
        },
    )


def watermarks_of(topology: Topology, totals: Totals) -> dict[str, str]:
    """Return the watermark of each source with an event time, in ISO 8601, the lowest first."""
    reached = {
        source.name: totals.source(source.name).newest_us / 1e6 - source.event_time.lateness
        for source in topology.sources
        if source.event_time is not None and totals.source(source.name).newest_us != NONE
    }
    return {
        name: datetime.fromtimestamp(mark, UTC).isoformat() for name, mark in sorted(reached.items(), key=lambda item: item[1])
    }


def _element(tally: ElementTally, keyed: bool) -> ElementReport:
    mean = tally.busy_us / tally.events if tally.events else None
    return ElementReport(
        tally.events,
        tally.dead_letters,
        tally.late,
        tally.late_in_part,
        sum(tally.instances.values()) if keyed else None,
        _rounded({"mean": mean, **tally.service_us.summary()}),
    )


def _rounded(values: dict[str, float | None]) -> dict[str, float | None]:
    return {name: None if value is None else round(value, 3) for name, value in values.items()}
