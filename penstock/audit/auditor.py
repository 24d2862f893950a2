"""The auditor: reads a run's sources again, runs its elements in memory, and compares the results with the content of its
sinks.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock.app.application import App
from penstock.app.loader import AppReference
from penstock.app.stream import Sink, Source
from penstock.app.topology import Topology
from penstock.audit.committed import Committed, Microbatch
from penstock.audit.replay import ExpectedRow, Origin, Replay
from penstock.audit.sample import RowSample, same
from penstock.audit.verdict import EXAMPLES, Audit, RowExample, SinkAudit, SourceAudit
from penstock.connectors.declaration import SourceContext
from penstock.connectors.files.hop import HopSource
from penstock.connectors.registry import bind_sinks, bind_source, refuse_unknown
from penstock.connectors.schedule import UNTOLD
from penstock.connectors.sink import BoundSink
from penstock.connectors.source import Reread
from penstock.errors import ConfigurationError, PenstockError
from penstock.kinds.coding import json_encoder
from penstock.kinds.fields import nan_as_null
from penstock.runs.batches import records_in
from penstock.runs.files import HOPS, OUTPUT, ledger_of
from penstock.runs.letters import letters_of
from penstock.runs.manifest import Manifest, manifest_of
from penstock.runs.overview import state_of
from penstock.runtime.letters import shown
from penstock.runtime.lineage import SOURCE_SHIFT
from penstock.runtime.output import DEAD_LETTERS, LETTERS
from penstock.storage.place import is_local, path_of
from penstock.testing.proof.agreement import says_moments

Advance = Callable[[float, float, str], None]

_encode = json_encoder().encode


class Auditor:
    """Audits one run, without writing anything.

    Args:
        run: the run's directory.
        app, reference: its application.
        sources, sinks: URIs by name, as given when the run was started.
        since: seconds since the epoch; results committed earlier may be missing from the sinks.
        sample: which rows are compared. The elements run on all events.
        advance: called with the number of micro-batches done, their total, and the present step in words.

    Raises:
        PenstockError: the directory holds no run, or a source or a sink cannot be bound.
    """

    def __init__(
        self,
        run: Path,
        app: App,
        reference: AppReference,
        *,
        sources: Mapping[str, str],
        sinks: Mapping[str, str],
        since: float | None = None,
        sample: RowSample | None = None,
        advance: Advance | None = None,
    ) -> None:
        self._run, self._app, self._since, self._advance = run, app, since, advance
        self._sample = sample or RowSample()
        self._manifest = manifest_of(run)
        self._topology = app.topology()
        _check_application(app, self._manifest)
        refuse_unknown("--source", sources, self._topology.sources)
        refuse_unknown("--sink", sinks, self._topology.sinks)
        context = SourceContext(reference)
        self._sources = {known.name: bind_source(known, sources.get(known.name), context) for known in self._topology.sources}
        self._sinks = bind_sinks(self._topology.sinks, sinks, run / OUTPUT)
        for name, bound in self._sources.items():
            bound.begin_at(self._manifest.beginnings.get(name))
        self._groups = [Committed(run, self._manifest, name, reads.sources) for name, reads in self._manifest.reads.items()]
        self._unknown = [*self._cannot_be_run_again()]
        self._origins: list[tuple[RowExample, Origin]] = []

    def audit(self) -> Audit:
        """Replay the run twice, to find unstable results, and compare its sources, sinks and dead letters."""
        try:
            exact = len(self._groups) == 1 and not self._manifest.layout.moves and self._groups[0].exact
        except PenstockError as error:
            self._unknown.append(str(error))
            exact = False
        if not exact and _goes_by_time(self._topology):
            self._unknown.append(
                "its micro-batches are not known one by one, or it has several groups, and its windows, timers and late "
                "events depend on them"
            )
        count = sum((group.last or 0) + (group.last is not None) for group in self._groups)
        audit = Audit(str(self._run), count, exact, {}, {}, {}, self._unknown, self._sample.share)
        if self._unknown:
            return audit
        moments = {} if exact else _moments(self._topology)
        keys = {sink.name: self._key_of(sink, moments) for sink in self._topology.sinks}
        try:
            replay = self._replayed(exact, keys)  # twice: results on which the two disagree cannot be judged
            another = self._replayed(exact, keys)
        except PenstockError as error:
            self._unknown.append(str(error))
            return audit
        for name in self._sources:
            counted = sum(group.accepted.get(name, 0) for group in self._groups) + self._formerly(name)
            audit.sources[name] = SourceAudit(replay.read.get(name, 0), replay.accepted.get(name, 0), counted)
        for sink in self._topology.sinks:
            rows = replay.rows.get(sink.name, [])
            unstable = _counted(rows) != _counted(another.rows.get(sink.name, []))
            audit.sinks[sink.name] = self._audited(sink, self._sinks[sink.name], rows, unstable, moments.get(sink.stream.name))
        if self._sample.share < 1 and not any(sink.expected or sink.held for sink in audit.sinks.values()):
            self._unknown.append("the sample has no row: compare a larger share")
        if _letters_of(replay) != _letters_of(another):
            self._unknown.append(
                "which events become dead letters differs in two runs of the same input; `penstock prove` says why"
            )
        else:
            audit.dead_letters = self._letters(replay, exact)
        self._trace()
        if any(Committed(self._run, self._manifest, group.name, []).last != group.last for group in self._groups):
            self._unknown.append("the run has gone on meanwhile: stop it, and audit it again")
        return audit

    def _key_of(self, sink: Sink, moments: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
        """Return the fields by which a sink's rows are compared; empty where all fields are."""
        return sink.key if self._sinks[sink.name].keeps_last else moments.get(sink.stream.name, ())

    def _formerly(self, source: str) -> int:
        """Return the events of a source that former groups have counted, from before the run was moved."""
        return sum(
            record.sources[source].accepted
            for former in self._manifest.layout.former
            if source in former.external
            for record in records_in(ledger_of(self._run, former.name))
            if source in record.sources
        )

    # --- obstacles ------------------------------------------------------------------------------

    def _cannot_be_run_again(self) -> Iterator[str]:
        if is_local(self._run) and state_of(self._run, self._manifest) == "running":
            yield "it is on: stop it first, because rows that it commits during the audit would count as faults"
        if self._manifest.is_real_time:
            yield "it ran in real-time mode, which keeps no record of the messages that were committed"
        for element in self._topology.elements:
            if element.dialect == "query":
                yield f"element {element.name} is in the query dialect, which Spark alone can run"
        for name, bound in self._sources.items():
            before = self._manifest.identities.get(name)
            if before not in (None, UNTOLD, bound.identity()):
                yield f"source {name} is not the one that the run has read: another is in its place"
        for group in self._groups:
            if part := group.missing_input():
                yield f"its checkpoint {group.checkpoint} lacks {part}, so it is not known what was read"
            else:
                yield from self._left_on_the_way(group)

    def _left_on_the_way(self, group: Committed) -> Iterator[str]:
        for name in self._manifest.reads[group.checkpoint.name].handed_on:
            place = self._run / HOPS / name
            if not place.exists():
                handed = f"group {group.checkpoint.name} got stream {name} through a topic, which is not read again"
                yield f"{handed}: run it until it is idle, and audit its sinks by hand"
                continue
            source = HopSource(Source(name, self._topology.stream(name).event_type), place)
            if not source.drained(group.end(name)):
                yield f"group {group.checkpoint.name} has not read all of stream {name} yet: run it until it is idle"

    # --- replay ---------------------------------------------------------------------------------

    def _replayed(self, exact: bool, keys: Mapping[str, tuple[str, ...]]) -> Replay:
        def kept(sink: str, event: Any) -> Any:
            if sink in self._sinks and self._sinks[sink].nan_is_null:
                event = nan_as_null(event)
            return event if self._sample.has(event, keys.get(sink, ())) else None

        replay = Replay(self._app, self._sources, self._manifest.layout, kept)
        replay.read.clear()
        groups = [group for group in self._groups if group.last is not None]
        batches = [(batch, group) for group in groups for batch in group.microbatches()]
        if not exact:
            batches = sorted(batches, key=lambda one: one[1].committed_us.get(one[0].number, 0))
        for done, (batch, _) in enumerate(batches):
            if self._advance is not None:
                self._advance(done, len(batches), f"micro-batch {batch.number}")
            replay.again(batch.number, self._parts(batch), batch.now, batch.watermark, told=exact)
        if not exact and self._manifest.ended:
            replay.finish_again()
        return replay

    def _parts(self, batch: Microbatch) -> dict[str, Iterable[Reread]]:
        parts: dict[str, Iterable[Reread]] = {}
        for name, (after, upto) in batch.positions.items():
            if upto.offset is None:
                continue
            parts_read = self._sources[name].again(after, upto)
            if parts_read is None:
                raise ConfigurationError(f"source {name} ({self._sources[name].uri}) cannot be read again")
            parts[name] = parts_read
        return parts

    # --- sinks ----------------------------------------------------------------------------------

    def _audited(
        self, sink: Sink, bound: BoundSink, rows: list[ExpectedRow], unstable: bool, moments: tuple[str, ...] | None
    ) -> SinkAudit:
        if unstable:
            return SinkAudit(bound.uri, len(rows), 0, unknown="two runs of the same input differ; `penstock prove` says why")
        try:
            bound.recall(self._manifest.run)
            key = sink.key if bound.keeps_last else moments or ()
            held = [event for event in bound.read() if self._sample.has(event, key)]
        except (PenstockError, OSError) as error:
            return SinkAudit(bound.uri, len(rows), 0, unknown=f"it cannot be read ({error})")
        rows = self._without_refused(sink, rows)
        # Undelivered rows of the last micro-batch may be missing, unless it is not clear which rows these are.
        owed = sum(group.owed(bound.files.label, path_of(bound.files.directory)) for group in self._groups)
        if owed and (bound.keeps_last or len(self._groups) > 1):
            return SinkAudit(
                bound.uri, len(rows), len(held), unknown="its last micro-batch is not delivered yet: start the run once more"
            )
        if moments is not None and not bound.keeps_last:  # other micro-batches give other momentary rows
            if not moments:
                return SinkAudit(
                    bound.uri,
                    len(rows),
                    len(held),
                    unknown="its rows depend on the micro-batches, which are not known any more",
                )
            result = self._compared(bound.uri, _last_rows(rows, moments), _last_events(held, moments), owed)
            result.by_key = True
            return result
        expected = _last_rows(rows, sink.key) if bound.keeps_last else rows
        return self._compared(bound.uri, expected, held, owed)

    def _without_excused(
        self, missing: Counter[bytes], equal: Mapping[bytes, list[ExpectedRow]], owed: int
    ) -> tuple[Counter[bytes], Counter[str]]:
        """Return the missing rows less those that may be missing, and how many these are, by the reason.

        Of equal rows of several micro-batches nobody can tell which are missing: those that may be are taken first.

        Args:
            equal: the expected rows, by their identity.
            owed: how many rows of the last micro-batch are staged, and not delivered yet.
        """
        committed = {number: us for group in self._groups for number, us in group.committed_us.items()}
        last, excused, left = max(committed, default=None), Counter[str](), Counter[bytes]()
        for name, times in missing.items():
            batches = [row.batch for row in equal[name]]
            older = [batch for batch in batches if self._since is not None and committed.get(batch, 0) / 1e6 < self._since]
            staged = batches.count(last) if owed and last is not None and last not in older else 0
            if self._sample.share == 1:  # of a sample it is not known how many are staged
                staged = min(staged, owed)
            aged = min(times, len(older))
            late = min(times - aged, staged)
            owed -= late if self._sample.share == 1 else 0
            excused += Counter({"older than --since": aged, "not delivered yet": late})
            left[name] = times - aged - late
        return +left, excused

    def _without_refused(self, sink: Sink, rows: list[ExpectedRow]) -> list[ExpectedRow]:
        """Leave out rows that the sink has refused, which are dead letters under its name."""
        names = self._of_sinks() & {(sink.name, sink.stream.name)}
        refused = Counter(
            _as_json(letter.event) for letter in letters_of(self._run) if (letter.element, letter.stream) in names
        )
        if not refused:
            return rows
        accepted = []
        for row in rows:
            text = _as_json(row.event)
            if refused[text]:
                refused[text] -= 1
            else:
                accepted.append(row)
        return accepted

    def _of_sinks(self) -> set[tuple[str | None, str]]:
        """Return what letters of sinks name: a sink and its stream, where no element has the one name and reads the other."""
        elements = {(element.name, stream.name) for element in self._topology.elements for stream in element.inputs}
        return {pair for sink in self._topology.sinks if (pair := (sink.name, sink.stream.name)) not in elements}

    def _letters(self, replay: Replay, exact: bool) -> dict[str, dict[str, int]]:
        """Count dead letters that only the replay (missing) or only the run (strange) has, by place; not those of sinks."""
        names = self._of_sinks()
        in_run = Counter(
            (letter.place, json.dumps([letter.stream, letter.raw, letter.event], sort_keys=True))
            for letter in letters_of(self._run)
            if (letter.element, letter.stream) not in names and (exact or letter.raw is not None or letter.event is not None)
        )
        in_replay = _letters_of(replay)
        owed = any(group.owed(LETTERS, self._run / DEAD_LETTERS) for group in self._groups)
        differences: dict[str, dict[str, int]] = {}
        for kind, difference in (("missing", Counter() if owed else in_replay - in_run), ("strange", in_run - in_replay)):
            for (place, _), times in difference.items():
                counts = differences.setdefault(place, {"missing": 0, "strange": 0})
                counts[kind] += times
        return differences

    def _compared(self, place: str, rows: list[ExpectedRow], held: list[Any], owed: int) -> SinkAudit:
        """Compare the rows expected in a sink with those that it holds, as multisets."""
        there = {same(event): event for event in held}
        equal: dict[bytes, list[ExpectedRow]] = {}
        for row in rows:
            equal.setdefault(row.same, []).append(row)
        wanted, actual = _counted(rows), Counter(map(same, held))
        missing, more = wanted - actual, actual - wanted
        missing, excused = self._without_excused(missing, equal, owed)
        doubled = Counter({name: times for name, times in more.items() if name in wanted})
        strange = more - doubled
        kinds = {"missing": missing, "too many": doubled, "of no input": strange}
        examples = {
            kind: [self._example(there.get(name), times, equal.get(name, [])) for name, times in counted.most_common(EXAMPLES)]
            for kind, counted in kinds.items()
            if counted
        }
        return SinkAudit(
            place, len(rows), len(held), missing.total(), doubled.total(), strange.total(), examples, excused=dict(excused)
        )

    def _example(self, event: Any, times: int, rows: list[ExpectedRow]) -> RowExample:
        row = rows[-1] if rows else None
        shown = json.loads(_as_json(event if row is None else row.event))
        example = RowExample(shown, times, None if row is None else row.batch, None)
        example.earlier = sorted({one.batch for one in rows} - {example.batch})
        if row is not None and row.origin is not None:
            self._origins.append((example, row.origin))
        return example

    # --- examples -------------------------------------------------------------------------------

    def _trace(self) -> None:
        """Find the input of each example, by reading the sources of its micro-batch once more."""
        wanted: dict[Origin, list[RowExample]] = {}
        for example, origin in self._origins:
            wanted.setdefault(origin, []).append(example)
        if not wanted:
            return
        batches = {example.batch for example, _ in self._origins}
        names = [source.name for source in self._topology.sources]
        for group in self._groups:
            for microbatch in group.microbatches():
                if microbatch.number not in batches:
                    continue
                for name, parts in self._parts(microbatch).items():
                    for part in parts:
                        self._note_inputs(part, names.index(name), name, microbatch.number, wanted)

    def _note_inputs(self, part: Reread, number: int, name: str, batch: int, wanted: dict[Origin, list[RowExample]]) -> None:
        for row, (major, minor) in enumerate(zip(part.major.tolist(), part.minor.tolist(), strict=True)):
            for example in wanted.get((major, minor | (number << SOURCE_SHIFT)), ()):
                if example.batch == batch and example.input is None:
                    example.input = f"{name} {_shown(part, row)}"


def _shown(part: Reread, row: int) -> str:
    if not isinstance(part.rows, list):
        return json.dumps(part.rows.slice(row, 1).to_pylist()[0], default=str)
    thing = part.rows[row]
    if isinstance(thing, dict) and "payload" in thing:
        thing = thing["payload"]
    return thing.decode("utf-8", "backslashreplace") if isinstance(thing, bytes) else json.dumps(thing, default=str)


def _letters_of(replay: Replay) -> Counter[tuple[str, str]]:
    """Count the dead letters of a replay, by place and content."""
    return Counter(
        (
            letter["element"] or f"decoding {letter['stream']}",
            json.dumps([letter["stream"], letter.get("raw"), letter.get("event")], sort_keys=True),
        )
        for letter in replay.dead_letters
    )


def _goes_by_time(topology: Topology) -> bool:
    """Whether results depend on the watermark or the processing time of micro-batches."""
    timed = any(source.event_time is not None for source in topology.sources)
    return timed or any(element.has_timers or element.expires is not None for element in topology.elements)


def _moments(topology: Topology) -> dict[str, tuple[str, ...]]:
    """Return streams that may hold momentary rows, emitted with each micro-batch, with the fields that name an instance;
    empty where no fields do.
    """
    moments: dict[str, tuple[str, ...]] = {}
    for element in topology.in_order:
        own = says_moments(element) or (element.dialect == "batch" and element.keyed)
        inherited = not element.keyed and any(stream.name in moments for stream in element.inputs)
        for stream in element.emits if own or inherited else ():
            fields = stream.event_type.__struct_fields__
            moments[stream.name] = element.key if own and set(element.key) <= set(fields) else ()
    return moments


def _counted(rows: list[ExpectedRow]) -> Counter[bytes]:
    return Counter(row.same for row in rows)


def _as_json(event: Any) -> str:
    """Return an event, or the event of a dead letter, as canonical JSON."""
    try:
        return json.dumps(json.loads(_encode(event)), sort_keys=True)
    except (OverflowError, ValueError):  # JSON cannot hold it, so the letter has what Python shows of it
        return json.dumps(shown(event))


def _last_rows(rows: list[ExpectedRow], key: tuple[str, ...]) -> list[ExpectedRow]:
    """Return the last row of each key."""
    return list({_key_of(row.event, key): row for row in rows}.values())


def _last_events(events: list[Any], key: tuple[str, ...]) -> list[Any]:
    return list({_key_of(event, key): event for event in events}.values())


def _key_of(event: Any, key: tuple[str, ...]) -> bytes:
    return same([getattr(event, name) for name in key])


def _check_application(app: App, manifest: Manifest) -> None:
    if app.name != manifest.application:
        raise ConfigurationError(
            f"The run is of application {manifest.application}, and this is {app.name}: name the file that it was started with."
        )
