"""Observations: the micro-batches, latencies and settings that recordings of a query, or of all queries of a run, show."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from penstock.app.description import ElementDescription
from penstock.app.display import table
from penstock.app.duration import seconds
from penstock.connectors.admission import DEFAULT_MAX_ROWS
from penstock.connectors.registry import is_gated
from penstock.connectors.uri import Uri
from penstock.errors import ConfigurationError, SourceError
from penstock.planner.arrivals import Flow
from penstock.planner.gate import SimulatedBatches
from penstock.planner.prediction import QUANTILES, summary
from penstock.planner.reading import Found, Progress, Task, find
from penstock.planner.series import Real, Series, series_of
from penstock.planner.setting import Setting
from penstock.runs.batches import BatchRecord, records_in
from penstock.runs.files import ledger_of
from penstock.runs.manifest import Manifest, is_run, manifest_of
from penstock.runs.record import Record
from penstock.runs.starts import Start, last_start
from penstock.runtime.histogram import Histogram
from penstock.runtime.tally import ElementTally
from penstock.storage.place import path_of, real
from penstock.storage.reach import meet

if TYPE_CHECKING:
    from penstock.queueing.plot import Plot

WARM_RATIO = 1.15
"""The warm-up ends once the running median of durations is below this multiple of later durations for as many rows."""
CLOCK_BACK_S = 1.0
"""Where a micro-batch begins so much before the one before it, the clock was set back."""
LEAST_TIMED = 20
"""Timed results that are needed to take the latency from them; results of timers and windows are not timed."""
LEAST_WARM = 8
"""Warm micro-batches that are needed to fit a model."""


@dataclass(frozen=True)
class Note:
    """A peculiarity of a recording, and how it was dealt with."""

    kind: Literal["torn", "missing", "restart", "warm-up", "trigger", "short", "late", "earlier", "names"]
    text: str


@dataclass(frozen=True)
class QueryObservation:
    """What the recordings show of one query.

    Args:
        name: of the query, or else the beginning of its identifier.
        upstream: the query whose results it reads by a hop; None if it reads a source.
        series: warm micro-batches, one series for each start in each recording.
        cold: all micro-batches, with the warm-up, one series for each start in each recording.
        setting: the gate of the last recording, as far as it was recorded or can be inferred.
        trigger_inferred: whether the trigger was inferred from the starts of micro-batches.
        rows_per_source_row: rows it reads for each row of the run's source.
        latency_ms: latencies of results, one histogram per recording of a run of Penstock; empty for other queries.
        records: all progress records, in order.
        service_us: mean service time of an event by element, where a run of Penstock measured it.
        events: number of events by element, for each row that the query reads.
        instances: (time of a commit, number of instances of all keyed elements), where a run of Penstock counted them.
        hottest: by element, the key with the most events, and its share of the element's events.
    """

    name: str
    upstream: str | None
    series: tuple[Series, ...]
    cold: tuple[Series, ...]
    setting: Setting
    trigger_inferred: bool
    rows_per_source_row: float
    latency_ms: tuple[Histogram, ...]
    records: tuple[Record, ...]
    service_us: Mapping[str, float]
    events: Mapping[str, float]
    instances: tuple[tuple[float, int], ...] = ()
    hottest: Mapping[str, tuple[str, float]] = field(default_factory=dict)

    @property
    def batches(self) -> int:
        """Number of warm micro-batches."""
        return sum(map(len, self.series))

    def latency(self) -> dict[str, float]:
        """Mean and quantiles of the latency over the last recording's warm micro-batches, by name, in seconds.

        For a run of Penstock they are measured, from an event's intended send time to each result that it caused. For other
        queries, and where fewer than 20 results were caused by events (not by timers or windows), they are derived: rows
        are assumed to arrive evenly between two successive admissions whose progress was both recorded, and to be done
        when their micro-batch is. Empty where nothing is known.
        """
        if self.timed >= LEAST_TIMED:
            measured = self.latency_ms[-1]
            quantiles = {name: (measured.quantile(p) or 0.0) / 1e3 for name, p in QUANTILES.items()}
            return {"mean": (measured.mean or 0.0) / 1e3, **quantiles}
        if self.upstream is not None or not self.series:
            return {}
        parts = [(float(part.rows[1:].sum()), derived(part)) for part in _unbroken(self.series[-1]) if len(part) > 1]
        total = sum(rows for rows, latencies in parts if len(latencies))
        return summary(np.concatenate([_spread(latencies, rows / total) for rows, latencies in parts])) if total else {}

    @property
    def timed(self) -> int:
        """Number of results of the last recording whose latency was measured."""
        return self.latency_ms[-1].count if self.latency_ms else 0

    @property
    def latency_kind(self) -> Literal["measured", "derived"]:
        """Whether `latency` is measured on results that were timed, or derived from the assumed arrival times of rows."""
        return "measured" if self.timed >= LEAST_TIMED else "derived"

    @property
    def latency_words(self) -> str:
        """In words, whether `latency` is measured or derived, and from how many results or rows."""
        if self.latency_kind == "measured":
            return f"measured, of {self.timed:,} results"
        return f"derived, of {sum(self.series[-1].rows):,.0f} rows" if self.series else "derived"


@dataclass(frozen=True)
class Observation:
    """What one or more recordings show.

    Args:
        queries: a query comes after the query that it reads from.
        tasks: of all queries, from an event log.
        edges: from element to element, for a run of Penstock.
        manifest, start: the manifest and the last start of the last recording; None if it is no run of Penstock.
    """

    queries: tuple[QueryObservation, ...]
    notes: tuple[Note, ...]
    tasks: tuple[Task, ...]
    edges: tuple[tuple[str, str], ...]
    manifest: Manifest | None = None
    start: Start | None = None

    def plot(self, query: str | None = None) -> "Plot":
        """Draw durations, rate and waiting rows over time: a matplotlib figure, which a notebook shows.

        Args:
            query: which one; the first unless given.
        """
        from penstock.planner.plot import over_time  # which needs matplotlib

        return over_time(self.queries[0] if query is None else self.query(query))

    def _repr_html_(self) -> str:
        """HTML for notebooks: a table of the latencies of each query."""
        return "".join(
            table(
                f"{query.name}: {query.batches} warm micro-batches",
                [(name, f"{value:.2f} s") for name, value in query.latency().items()],
                f"Latency, {query.latency_words}.",
            )
            for query in self.queries
        )

    def query(self, name: str) -> QueryObservation:
        """The query with this name."""
        return next(query for query in self.queries if query.name == name)


def observe(
    *sources: str | Path, query: str | None = None, cores: float | None = None, progress: Progress | None = None
) -> Observation:
    """Read one or more recordings of one query, or of one application of Penstock.

    Args:
        sources: each the directory of a run of Penstock, a file of progress as JSON lines, or a Spark event log.
        query: name, or beginning of the identifier, of the query to observe, where a recording has several.
        cores: that the query has, where the recording does not say.
        progress: called now and then with the bytes of a recording that have been read, and their total.

    Raises:
        SourceError: a recording cannot be read or has no progress.
        ConfigurationError: it has several queries and none was chosen, it lacks the chosen one, or it is given twice.

    Examples:
        >>> seen = observe("examples/recordings/digests-1.jsonl").queries[0]
        >>> seen.setting.trigger, seen.latency_kind
        (1.0, 'derived')
    """
    if not sources:
        raise ConfigurationError("observe() needs at least one recording: the directory of a run, or a file of progress.")
    places = [path_of(source) for source in sources]
    for number, place in enumerate(places):
        meet(place)
        if real(place) in map(real, places[:number]):
            raise ConfigurationError(f"{place} is given twice: its micro-batches would count twice. Give each recording once.")
    recordings = [_Recording.of(place, progress) for place in places]
    notes = []
    if all(len(recording.queries) == 1 for recording in recordings):  # one query, even if it is named differently
        named = dict.fromkeys(name for recording in recordings for name in recording.names)
        if len(named) > 1:
            several = f"Recordings of {', '.join(named)} are taken as of one query: leave out those of another one."
            notes.append(Note("names", several))
        for recording in recordings:
            recording.rename(next(iter(recordings[-1].queries)))
    seen = _observed(recordings, _chosen(recordings, query), cores)
    return replace(seen, notes=(*notes, *seen.notes))


def observe_running(directory: Path, records: Sequence[Record], ledgers: Mapping[str, Sequence[BatchRecord]]) -> Observation:
    """Observe a run of Penstock that goes on, from its progress and, by group, its committed micro-batches so far.

    Raises:
        ConfigurationError: a group reads from several groups, which is not modelled.
    """
    recording = _Recording.made(Found(directory, list(records)))
    recording.ledgers = {name: list(ledgers.get(name, ())) for name in recording.queries}
    return _observed([recording], list(recording.queries), None)


def _observed(recordings: Sequence["_Recording"], names: Sequence[str], cores: float | None) -> Observation:
    """Combine the recordings of the named queries into an observation."""
    notes = [note for recording in recordings for note in recording.notes(names)]
    upstream = {name: other for name, other in recordings[-1].upstream.items() if other in names}  # else: reads a source
    queries = []
    for name in names:
        seen = [recording for recording in recordings if name in recording.queries]
        cold = tuple(series for recording in seen for series in recording.series(name) if len(series))
        warm = tuple(series for series in map(_warm, cold) if len(series))
        dropped = sum(map(len, cold)) - sum(map(len, warm))
        if dropped:
            notes.append(Note("warm-up", f"{dropped} micro-batches of {name} are of the warm-up and are left out."))
        setting, inferred = seen[-1].setting(name, warm, cores)
        queries.append(
            QueryObservation(
                name,
                upstream.get(name),
                warm,
                cold,
                setting,
                inferred,
                seen[-1].rows_per_source_row(name) if name in upstream else 1.0,
                tuple(map(_Recording.latency, seen, repeat(name))) if any(part.ledgers.get(name) for part in seen) else (),
                tuple(record for recording in seen for record in recording.queries[name]),
                *seen[-1].service(name),
                seen[-1].instances(name),
                seen[-1].hottest(name),
            )
        )
    tasks = tuple(task for recording in recordings for task in recording.found.tasks)
    last = recordings[-1]
    return Observation(tuple(_ordered(queries)), tuple(notes), tasks, last.edges, last.manifest, last.start)


@dataclass
class _Recording:
    """One file or directory: its progress records by query, and the files of a run of Penstock."""

    found: Found
    queries: dict[str, list[Record]]
    manifest: Manifest | None = None
    start: Start | None = None
    ledgers: dict[str, list[BatchRecord]] = field(default_factory=dict)
    _series: dict[str, list[Series]] = field(default_factory=dict)

    @classmethod
    def of(cls, path: Path, progress: Progress | None) -> "_Recording":
        recording = cls.made(find(path, progress))
        if recording.manifest is not None:
            recording.ledgers = {name: _records(ledger_of(path, name)) for name in recording.queries}
        return recording

    @classmethod
    def made(cls, found: Found) -> "_Recording":
        """The recording of the progress in ``found``, with empty ledgers."""
        path = found.path
        queries: dict[str, list[Record]] = {}
        names: dict[str, str] = {}
        called: dict[str, str] = {}  # name by identifier
        together = _together(found.records)
        for record in found.records:
            if not record.sources:  # idle: only its identifier is known
                if record.query in called:
                    queries[called[record.query]].append(record)
                continue
            kind = record.name or record.query or " ".join(source.description for source in record.sources)
            if kind in together:  # two queries of one name, which ran at the same time
                kind, usual = record.query, f"{record.name}-{record.query[:8]}"
            else:
                usual = record.name or record.query[:8] or "query"
            called[record.query] = names.setdefault(kind, usual)
            queries.setdefault(called[record.query], []).append(record)
        recording = cls(found, queries)
        if is_run(path):
            recording.manifest = manifest = manifest_of(path)
            if manifest.is_real_time:
                raise SourceError(
                    f"{path} ran in real time, where events do not wait for micro-batches; the models are of micro-batches: "
                    "record the application without --real-time."
                )
            recording.start = last_start(path)
            present = manifest.hops if manifest.layout.moves else {}  # other groups are from before a move
            recording.queries = {name: records for name, records in queries.items() if name in present or not present}
            if not recording.queries:
                raise SourceError(
                    f"{path} was moved to other groups, and nothing has run in them since: record it as it is now."
                )
        return recording

    @property
    def names(self) -> set[str]:
        """The names that the queries were given."""
        return {record.name for records in self.queries.values() for record in records if record.name is not None}

    def rename(self, name: str) -> None:
        """Rename the only query."""
        (known,) = self.queries
        self.queries = {name: self.queries[known]}
        self.ledgers = {name: self.ledgers.get(known, [])}

    @property
    def elements(self) -> list[ElementDescription]:
        """The elements of a run of Penstock; empty for other recordings."""
        return [] if self.manifest is None else self.manifest.topology.elements

    @property
    def upstream(self) -> dict[str, str]:
        """By query, the query that it reads from, according to the streams of the topology."""
        groups = {} if self.manifest is None else self.manifest.groups
        emitted: dict[str, set[str]] = {}
        for element in self.elements:
            for stream in element.emits:
                emitted.setdefault(stream, set()).add(groups[element.name])
        reads: dict[str, set[str]] = {}
        for element in self.elements:
            own = groups[element.name]
            for stream in element.inputs:
                reads.setdefault(own, set()).update(emitted.get(stream, set()) - {own})
        several = sorted(name for name, others in reads.items() if len(others) > 1)
        if several:
            raise ConfigurationError(
                f"Group {several[0]} reads from several groups ({', '.join(sorted(reads[several[0]]))}), which is not "
                "modelled: predict the groups one by one, with --query."
            )
        return {name: others.pop() for name, others in reads.items() if others}

    def series(self, name: str) -> list[Series]:
        """The query's series, one for each start, in order; cached, since making them takes most of the time."""
        if name not in self._series:
            self._series[name] = self._made_series(name)
        return self._series[name]

    def _made_series(self, name: str) -> list[Series]:
        runs: dict[tuple[str, int], list[Record]] = {}
        clocks, latest = Counter[str](), dict[str, float]()
        for record in self.queries[name]:
            if record.taken:
                clocks[record.run] += record.started < latest.get(record.run, record.started) - CLOCK_BACK_S
                latest[record.run] = record.started
            runs.setdefault((record.run, clocks[record.run]), []).append(record)
        visible = {record.batch: record.committed_us / 1e6 for record in self.ledgers.get(name, ())}
        return [series_of(records, visible) for records in runs.values()]

    def setting(self, name: str, warm: Sequence[Series], cores: float | None) -> tuple[Setting, bool]:
        """The gate of the last start, and whether its trigger was inferred."""
        trigger = None if self.start is None else self.start.trigger
        inferred = trigger is None
        if inferred and warm:
            judged = [series.trigger() for series in warm if len(series) >= LEAST_WARM] or [warm[-1].trigger()]
            trigger = judged[-1]
        gate: dict[str, Any] = {}
        if not self.upstream.get(name):
            known = self.start or self.manifest
            gate = {} if known is None else _gate_of([Uri.parse(uri) for uri in known.sources.values()])
            if "max_rows" not in gate and warm and (most := warm[-1].maximum) is not None:
                gate["max_rows"] = most
        recorded = _cores(self.start)
        if cores is not None and recorded is not None and cores != recorded:
            raise ConfigurationError(
                f"The recording says that the query had {recorded:g} cores, and {cores:g} were given: leave them out; "
                "for a prediction with others, ask for these."
            )
        known_cores = recorded if cores is None else cores
        partitions = (self.manifest and self.manifest.partitions) or max(
            (r.partitions or 0 for r in self.queries[name]), default=0
        )
        return Setting(trigger=trigger, cores=known_cores, partitions=partitions or None, **gate), inferred

    def rows_per_source_row(self, name: str) -> float:
        """Rows that the query reads for each row of the source, which the queries before it multiply or reduce."""
        first = name
        while first in self.upstream:
            first = self.upstream[first]
        rows = {query: sum(series.rows.sum() for series in self.series(query)) for query in {name, first}}
        return float(rows[name] / rows[first]) if first != name and rows[first] else 1.0

    def latency(self, name: str) -> Histogram:
        """The measured latency of the results of the warm micro-batches of the last start."""
        warm = [series for series in map(_warm, self.series(name)) if len(series)]
        first, last = (warm[-1].numbers[0], warm[-1].numbers[-1]) if warm else (0, math.inf)
        measured = Histogram()
        for record in self.ledgers.get(name, ()):
            if first <= record.batch <= last:
                measured.merge(record.latency_ms)
        return measured

    def service(self, name: str) -> tuple[dict[str, float], dict[str, float]]:
        """By element: the mean service time of an event in microseconds, and the events per row that the query reads."""
        busy: dict[str, tuple[float, int]] = {}
        for record in self.ledgers.get(name, ()):
            for element, tally in record.elements.items():
                before = busy.get(element, (0.0, 0))
                busy[element] = (before[0] + tally.busy_us, before[1] + tally.events)
        rows = sum(series.rows.sum() for series in self.series(name))
        return (
            {element: time / events for element, (time, events) in busy.items() if events},
            {element: events / rows for element, (_, events) in busy.items() if events and rows},
        )

    def instances(self, name: str) -> tuple[tuple[float, int], ...]:
        """After each commit: its time, and the number of instances of the keyed elements that keep their instances for ever.

        Elements whose instances expire, and windows, are left out. A partition without events counts as it last did.
        """
        passing = {element.name for element in self.elements if element.expires_s is not None or element.note}
        alive: dict[tuple[str, int], int] = {}
        counts = []
        for record in self.ledgers.get(name, ()):
            for element, tally in record.elements.items():
                if element in passing:
                    continue
                alive.update({(element, partition): count for partition, count in tally.instances.items()})
            counts.append((record.committed_us / 1e6, sum(alive.values())))
        return tuple(counts)

    def hottest(self, name: str) -> dict[str, tuple[str, float]]:
        """By element, the key with the most events, and its share of them."""
        totals: dict[str, ElementTally] = {}
        for record in self.ledgers.get(name, ()):
            for element, tally in record.elements.items():
                total = totals.setdefault(element, ElementTally())
                total.hottest.merge(tally.hottest)
                total.events += tally.events
        leaders = {element: (total.hottest.most(1), total.events) for element, total in totals.items()}
        return {element: (most[0][0], most[0][1] / events) for element, (most, events) in leaders.items() if most}

    @property
    def edges(self) -> tuple[tuple[str, str], ...]:
        """Pairs of elements of which the second reads a stream that the first emits."""
        return tuple(
            (one.name, other.name) for one in self.elements for other in self.elements if set(one.emits) & set(other.inputs)
        )

    def notes(self, names: Iterable[str]) -> list[Note]:
        """Notes on what is cut off, implausible, left out or missing in the recording, and on restarts."""
        path = self.found.path
        notes = [Note("torn", f"A file of {path} is left out: {text}") for text in self.found.unread]
        if self.found.torn:
            notes.append(Note("torn", f"{self.found.torn} lines of {path} are cut off or no progress, and are left out."))
        if self.found.odd:
            notes.append(
                Note(
                    "torn", f"{self.found.odd} progress records of {path} have impossible times or durations, and are left out."
                )
            )
        if self.found.earlier:
            notes.append(
                Note(
                    "earlier",
                    f"{path} has {self.found.earlier:,} progress records before the last {len(self.found.records):,}; only the "
                    "last are used.",
                )
            )
        for name in names:
            runs = {record.run for record in self.queries.get(name, ())}
            if len(runs) > 1:
                notes.append(Note("restart", f"{path} has {len(runs)} starts of {name}; each has a warm-up of its own."))
            missing = sum(
                int(np.diff(series.numbers)[~series.whole[1:]].sum() - (~series.whole[1:]).sum())
                for series in (self.series(name) if name in self.queries else ())
                if len(series)
            )
            if missing:
                notes.append(Note("missing", f"The progress of {missing} micro-batches of {name} is missing in {path}."))
        return notes


def _together(records: Iterable[Record]) -> set[str]:
    """The names that several queries had at one time, by their identifiers; one after the other they are one query."""
    spans: dict[str, dict[str, tuple[float, float]]] = {}
    for record in records:
        if record.name and record.query and record.sources:
            of_name = spans.setdefault(record.name, {})
            first, last = of_name.get(record.query, (record.started, record.started))
            of_name[record.query] = min(first, record.started), max(last, record.started)
    return {name for name, of_name in spans.items() if any(b[0] < a[1] for a, b in pairwise(sorted(of_name.values())))}


def _chosen(recordings: Sequence[_Recording], query: str | None) -> list[str]:
    """The names of the queries to observe: the chosen one, the only one, or all queries of a run of Penstock."""
    names = list(dict.fromkeys(name for recording in recordings for name in recording.queries))
    if query is not None:
        matching = [
            name
            for name in names
            if name == query or any(record.query.startswith(query) for r in recordings for record in r.queries.get(name, ()))
        ]
        if len(matching) != 1:
            raise ConfigurationError(f"{query} names no query, or several: choose among {', '.join(names)}.")
        return matching
    if len(names) > 1 and any(recording.manifest is None for recording in recordings):
        raise ConfigurationError(
            f"The recording has {len(names)} queries ({', '.join(names)}): choose one with --query (query= in Python)."
        )
    return names


def _unbroken(series: Series) -> list[Series]:
    """The parts of the series in which no progress is missing."""
    breaks = [0, *np.flatnonzero(~series.whole[1:]) + 1, len(series)]
    return [series[slice(low, high)] for low, high in pairwise(breaks)]


def derived(series: Series) -> Any:
    """Latencies, in seconds, of rows assumed to arrive evenly between the moments at which the source was looked at."""
    taken = np.cumsum(series.rows)
    # A trigger that found nothing is a look at the source, too: no row had arrived since the admission before.
    since = series.quiet()
    quiet = np.flatnonzero(np.isfinite(since))
    quiet = quiet[quiet > 0]
    looked = np.concatenate([series.admitted, since[quiet]])
    there = np.concatenate([taken + series.waiting, taken[quiet - 1] + series.waiting[quiet - 1]])
    order = np.argsort(looked, kind="stable")
    arrived = Flow(looked[order], np.maximum.accumulate(there[order]))
    passage = SimulatedBatches(series.started, series.admitted, series.visible, series.ended, taken)
    return passage.latencies(arrived, float(series.admitted[0]))[1]


def _spread(latencies: Real, share: float) -> Real:
    """A share of the latencies, which are in the order of the rows, evenly spread over them; at least one if there are any."""
    return (
        latencies[np.linspace(0, len(latencies) - 1, max(1, round(share * len(latencies)))).astype(int)]
        if len(latencies)
        else latencies
    )


def _warm(series: Series) -> Series:
    """The series without its warm-up: the first micro-batch, and the next ones while they are slower than later ones."""
    if len(series) < 4:
        return series[1:]
    later = series[len(series) // 2 :]
    typical = np.maximum(np.interp(series.rows, *_profile(later)), 1e-3)
    # Larger micro-batches than any later one may take longer, in proportion to their rows: the rate falls, it is no warm-up.
    typical *= np.maximum(1.0, series.rows / later.rows.max())
    ratios = series.durations / typical
    running = np.array([np.median(ratios[place : place + 3]) for place in range(len(ratios))])
    slow = np.flatnonzero(running[: len(series) // 2] > WARM_RATIO)
    # Only a beginning that is slow throughout is a warm-up: a model must know of single slow micro-batches later on.
    first = 1
    while first < len(series) // 2 and np.isin(np.arange(first, first + 3), slow).sum() >= 2:
        first += 1
    return series[first:]


def _profile(series: Series) -> tuple[Any, Any]:
    """Median rows and median durations of up to four groups of micro-batches, in the order of their rows."""
    order = np.argsort(series.rows)
    groups = [group for group in np.array_split(order, 4) if len(group)]
    rows = np.array([np.median(series.rows[group]) for group in groups])
    return rows, np.array([np.median(series.durations[group]) for group in groups])


def _ordered(queries: Sequence[QueryObservation]) -> list[QueryObservation]:
    """Order the queries so that each comes after the query that it reads from."""
    waiting, done = list(queries), list[QueryObservation]()
    while waiting:
        ready = [query for query in waiting if query.upstream not in {other.name for other in waiting}]
        done += ready
        waiting = [query for query in waiting if query not in ready]
    return done


def _gate_of(sources: Sequence[Uri]) -> dict[str, Any]:
    """The gate of all sources together: each has its own share of the rows. There is no threshold where one source has none."""
    gate: dict[str, Any] = {}
    given = [uri.options for uri in sources]
    most = [float(uri.options.get("max_rows", DEFAULT_MAX_ROWS if is_gated(str(uri)) else math.inf)) for uri in sources]
    if given and math.isfinite(sum(most)):
        gate["max_rows"] = sum(most)
    if given and all("min_rows" in options for options in given):
        gate["min_rows"] = sum(float(options["min_rows"]) for options in given)
    delays = [options["max_delay"] for options in given if "max_delay" in options]
    return gate | ({"max_delay": min(delays, key=seconds)} if delays else {})


def _cores(start: Start | None) -> float | None:
    """The cores of a run on a local master; None for other masters."""
    match = None if start is None else re.fullmatch(r"local\[(\d+|\*)\]", start.master)
    if start is None or match is None:
        return None
    return start.environment.cores if match[1] == "*" else int(match[1])


def _records(path: Path) -> list[BatchRecord]:
    try:
        return list(records_in(path))
    except OSError as error:
        raise SourceError(f"{path} cannot be read ({error.strerror}): it belongs to the recording.") from error
