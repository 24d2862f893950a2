"""The auditor: reads a run's sources again, runs its elements in memory, and compares what comes of it with what its sinks
hold.
"""

import fcntl
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
from penstock.audit.replay import Origin, Replay, Row
from penstock.audit.verdict import EXAMPLES, Audit, Example, SinkAudit, SourceAudit
from penstock.connectors.declaration import SourceContext
from penstock.connectors.files.hop import HopSource
from penstock.connectors.registry import bind_sinks, bind_source
from penstock.connectors.sink import BoundSink
from penstock.connectors.source import Reread
from penstock.errors import ConfigurationError, PenstockError
from penstock.kinds.coding import json_encoder
from penstock.kinds.identity import identity
from penstock.runs.batches import records_in
from penstock.runs.files import HOPS, LOG, OUTPUT, ledger_of
from penstock.runs.letters import letters_of
from penstock.runs.manifest import Manifest, manifest_of
from penstock.runtime.lineage import SOURCE_SHIFT
from penstock.runtime.output import DEAD_LETTERS, LETTERS
from penstock.storage.place import is_local, path_of
from penstock.testing.proof.agreement import says_moments

Advance = Callable[[float, float, str], None]

_encode = json_encoder().encode


class Auditor:
    """Audits one run; it writes nothing.

    Parameters
    ----------
    run: its directory. app, reference: the application that it runs. sources, sinks: URIs by name, as it was started with.
    since: seconds since the epoch; what was committed before need not be in the sinks any more.

    Raises
    ------
    PenstockError: it is not the directory of a run, or a source or a sink cannot be bound.
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
        advance: Advance | None = None,
    ) -> None:
        self._run, self._app, self._since, self._advance = run, app, since, advance
        self._manifest = manifest_of(run)
        self._topology = app.topology()
        _check_application(app, self._manifest)
        _check_names("--source", sources, [one.name for one in self._topology.sources])
        _check_names("--sink", sinks, [one.name for one in self._topology.sinks])
        context = SourceContext(reference)
        self._sources = {one.name: bind_source(one, sources.get(one.name), context) for one in self._topology.sources}
        self._sinks = bind_sinks(self._topology.sinks, sinks, run / OUTPUT)
        for name, bound in self._sources.items():
            bound.begin_at(self._manifest.beginnings.get(name))
        self._groups = [Committed(run, self._manifest, name, reads.sources) for name, reads in self._manifest.reads.items()]
        self._unknown = [*self._cannot_be_run_again()]
        self._origins: list[tuple[Example, Origin]] = []

    def audit(self) -> Audit:
        """Do it."""
        try:
            exact = len(self._groups) == 1 and not self._manifest.layout.moves and self._groups[0].exact
        except PenstockError as error:
            self._unknown.append(str(error))
            exact = False
        if not exact and _goes_by_time(self._topology):
            self._unknown.append(
                "how its micro-batches were divided is not known, or it has several groups, and windows, timers and "
                "late events go by that"
            )
        count = sum((group.last or 0) + (group.last is not None) for group in self._groups)
        audit = Audit(str(self._run), count, exact, {}, {}, {}, self._unknown)
        if self._unknown:
            return audit
        try:
            replay = self._replayed(exact)
            another = self._replayed(exact)
        except PenstockError as error:
            self._unknown.append(str(error))
            return audit
        moments = _moments(self._topology)
        for name in self._sources:
            counted = sum(group.accepted.get(name, 0) for group in self._groups) + self._formerly(name)
            audit.sources[name] = SourceAudit(replay.read.get(name, 0), replay.accepted.get(name, 0), counted)
        for sink in self._topology.sinks:
            rows = replay.rows.get(sink.name, [])
            unstable = _counted(rows) != _counted(another.rows.get(sink.name, []))
            keys = moments.get(sink.stream.name) if not exact else None
            audit.sinks[sink.name] = self._audited(sink, self._sinks[sink.name], rows, unstable, keys)
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

    def _formerly(self, source: str) -> int:
        """What groups have counted that are no more, since the run was moved."""
        return sum(
            record.sources[source].accepted
            for former in self._manifest.layout.former
            if source in former.external
            for record in records_in(ledger_of(self._run, former.name))
            if source in record.sources
        )

    # --- what can be told -----------------------------------------------------------------------

    def _cannot_be_run_again(self) -> Iterator[str]:
        if _is_on(self._run):
            yield "it is on: stop it first, for what it commits meanwhile would be taken for a fault"
        if self._manifest.is_real_time:
            yield "it ran in real time, where nothing is kept of which messages were committed"
        for element in self._topology.elements:
            if element.dialect == "query":
                yield f"element {element.name} is in the query dialect, which Spark alone can run"
        for name, bound in self._sources.items():
            before = self._manifest.identities.get(name)
            if before is not None and bound.identity() != before:
                yield f"source {name} is another than the one that the run has read, though in the same place"
        for group in self._groups:
            yield from self._left_on_the_way(group)

    def _left_on_the_way(self, group: Committed) -> Iterator[str]:
        for name in self._manifest.reads[group.checkpoint.name].handed_on:
            place = self._run / HOPS / name
            if not place.exists():
                handed = f"what group {group.checkpoint.name} was handed of {name} went by a topic"
                yield f"{handed}: run it until it is idle, and audit its sinks by hand"
                continue
            source = HopSource(Source(name, self._topology.stream(name).event_type), place)
            if not source.drained(group.end(name)):
                yield f"group {group.checkpoint.name} has yet to read some of {name}: run it on until it is idle"

    # --- once more ------------------------------------------------------------------------------

    def _replayed(self, exact: bool) -> Replay:
        replay = Replay(self._app, self._sources, self._manifest.partitions or 1)
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
            found = self._sources[name].again(after, upto)
            if found is None:
                raise ConfigurationError(f"source {name} ({self._sources[name].uri}) cannot be read again")
            parts[name] = found
        return parts

    # --- sinks ----------------------------------------------------------------------------------

    def _audited(
        self, sink: Sink, bound: BoundSink, rows: list[Row], unstable: bool, moments: tuple[str, ...] | None
    ) -> SinkAudit:
        if unstable:
            return SinkAudit(bound.uri, len(rows), 0, unknown="two runs of the same input differ; `penstock prove` says why")
        try:
            bound.recall(self._manifest.run)
            held = bound.read()
        except (PenstockError, OSError) as error:
            return SinkAudit(bound.uri, len(rows), 0, unknown=f"it cannot be read ({error})")
        rows = self._without_refused(sink, rows)
        owed = any(group.owed(bound.files.label, path_of(bound.files.directory)) for group in self._groups)
        if owed and (bound.keeps_last or len(self._groups) > 1):
            return SinkAudit(
                bound.uri, len(rows), len(held), unknown="its last micro-batch is not delivered yet: start the run once more"
            )
        if moments is not None and not bound.keeps_last:
            if not moments:
                return SinkAudit(
                    bound.uri,
                    len(rows),
                    len(held),
                    unknown="its rows depend on the micro-batches, which are not known any more",
                )
            found = self._compared(bound.uri, _last_rows(rows, moments), _last_events(held, moments), self._excused(owed=owed))
            found.by_key = True
            return found
        expected = _last_rows(rows, sink.key) if bound.keeps_last else rows
        return self._compared(bound.uri, expected, held, self._excused(owed=owed))

    def _excused(self, *, owed: bool) -> Callable[[Row], bool]:
        """Whether a row need not be there: one of before the time that is asked for, or of a micro-batch that is not delivered
        yet.
        """
        committed = {number: us for group in self._groups for number, us in group.committed_us.items()}
        last, since = max(committed, default=None), self._since

        def excused(row: Row) -> bool:
            if owed and row.batch == last:
                return True
            return since is not None and committed.get(row.batch, 0) / 1e6 < since

        return excused

    def _without_refused(self, sink: Sink, rows: list[Row]) -> list[Row]:
        """Without those that the sink has refused, which are dead letters under its name."""
        refused = Counter(_as_json(letter.event) for letter in letters_of(self._run) if letter.element == sink.name)
        if not refused:
            return rows
        kept = []
        for row in rows:
            text = _as_json(row.event)
            if refused[text]:
                refused[text] -= 1
            else:
                kept.append(row)
        return kept

    def _letters(self, replay: Replay, exact: bool) -> dict[str, dict[str, int]]:
        """Dead letters that only the run, or only the recount, has, by where they come from; those of sinks are theirs."""
        names = {sink.name for sink in self._topology.sinks} - {element.name for element in self._topology.elements}
        told = Counter(
            (letter.place, json.dumps([letter.stream, letter.raw, letter.event], sort_keys=True))
            for letter in letters_of(self._run)
            if letter.element not in names and (exact or letter.raw is not None or letter.event is not None)
        )
        again = _letters_of(replay)
        owed = any(group.owed(LETTERS, self._run / DEAD_LETTERS) for group in self._groups)
        found: dict[str, dict[str, int]] = {}
        for kind, difference in (("missing", Counter() if owed else again - told), ("strange", told - again)):
            for (place, _), times in difference.items():
                counts = found.setdefault(place, {"missing": 0, "strange": 0})
                counts[kind] += times
        return found

    def _compared(self, place: str, rows: list[Row], held: list[Any], excused: Callable[[Row], bool]) -> SinkAudit:
        """Rows that should be there against those that are, each as often."""
        there = {identity(event): event for event in held}
        by_name = {row.same: row for row in rows}
        wanted, found = _counted(rows), Counter(map(identity, held))
        missing, more = wanted - found, found - wanted
        missing = Counter({name: times for name, times in missing.items() if not excused(by_name[name])})
        doubled = Counter({name: times for name, times in more.items() if name in wanted})
        strange = more - doubled
        kinds = {"missing": missing, "too many": doubled, "of no input": strange}
        examples = {
            kind: [self._example(there.get(name), times, by_name.get(name)) for name, times in counted.most_common(EXAMPLES)]
            for kind, counted in kinds.items()
            if counted
        }
        return SinkAudit(place, len(rows), len(held), missing.total(), doubled.total(), strange.total(), examples)

    def _example(self, event: Any, times: int, row: Row | None) -> Example:
        shown = json.loads(_as_json(event if row is None else row.event))
        example = Example(shown, times, None if row is None else row.batch, None)
        if row is not None and row.origin is not None:
            self._origins.append((example, row.origin))
        return example

    # --- examples -------------------------------------------------------------------------------

    def _trace(self) -> None:
        """Say of the examples which input they come of, reading it once more."""
        wanted: dict[Origin, list[Example]] = {}
        for one, origin in self._origins:
            wanted.setdefault(origin, []).append(one)
        if not wanted:
            return
        batches = {one.batch for one, _ in self._origins}
        names = [source.name for source in self._topology.sources]
        for group in self._groups:
            for microbatch in group.microbatches():
                if microbatch.number not in batches:
                    continue
                for name, parts in self._parts(microbatch).items():
                    for part in parts:
                        self._note_inputs(part, names.index(name), name, microbatch.number, wanted)

    def _note_inputs(self, part: Reread, number: int, name: str, batch: int, wanted: dict[Origin, list[Example]]) -> None:
        for row, (major, minor) in enumerate(zip(part.major.tolist(), part.minor.tolist(), strict=True)):
            for one in wanted.get((major, minor | (number << SOURCE_SHIFT)), ()):
                if one.batch == batch and one.input is None:
                    one.input = f"{name} {_shown(part, row)}"


def _shown(part: Reread, row: int) -> str:
    if not isinstance(part.rows, list):
        return json.dumps(part.rows.slice(row, 1).to_pylist()[0], default=str)
    thing = part.rows[row]
    if isinstance(thing, dict) and "payload" in thing:
        thing = thing["payload"]
    return thing.decode("utf-8", "backslashreplace") if isinstance(thing, bytes) else json.dumps(thing, default=str)


def _letters_of(replay: Replay) -> Counter[tuple[str, str]]:
    """The dead letters of a recount: the place of each, and what it is of."""
    return Counter(
        (
            letter["element"] or f"decoding {letter['stream']}",
            json.dumps([letter["stream"], letter.get("raw"), letter.get("event")], sort_keys=True),
        )
        for letter in replay.dead_letters
    )


def _is_on(run: Path) -> bool:
    """Whether a process of this machine runs it: it holds a lock."""
    log = run / LOG
    if not is_local(run) or not log.exists():
        return False
    with log.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def _goes_by_time(topology: Topology) -> bool:
    """Whether results depend on when micro-batches were: on the watermark, or on processing time."""
    timed = any(source.event_time is not None for source in topology.sources)
    return timed or any(element.has_timers or element.expires is not None for element in topology.elements)


def _moments(topology: Topology) -> dict[str, tuple[str, ...]]:
    """Streams whose rows may stand for moments, one with each micro-batch, with the fields that name an instance; none where
    none do.
    """
    found: dict[str, tuple[str, ...]] = {}
    for element in topology.in_order:
        own = says_moments(element) or (element.dialect == "batch" and element.keyed)
        inherited = not element.keyed and any(stream.name in found for stream in element.inputs)
        for stream in element.emits if own or inherited else ():
            fields = stream.event_type.__struct_fields__
            found[stream.name] = element.key if own and set(element.key) <= set(fields) else ()
    return found


def _counted(rows: list[Row]) -> Counter[bytes]:
    return Counter(row.same for row in rows)


def _as_json(event: Any) -> str:
    """An event, or what a dead letter has of one, as JSON of one form."""
    return json.dumps(json.loads(_encode(event)), sort_keys=True)


def _last_rows(rows: list[Row], key: tuple[str, ...]) -> list[Row]:
    """The last row of each key."""
    return list({_key_of(row.event, key): row for row in rows}.values())


def _last_events(events: list[Any], key: tuple[str, ...]) -> list[Any]:
    return list({_key_of(event, key): event for event in events}.values())


def _key_of(event: Any, key: tuple[str, ...]) -> bytes:
    return identity([getattr(event, name) for name in key])


def _check_names(flag: str, given: Mapping[str, str], known: list[str]) -> None:
    strange = sorted(given.keys() - set(known))
    if strange:
        raise ConfigurationError(f"{flag} {strange[0]}: there is none of that name; there are {', '.join(known)}.")


def _check_application(app: App, manifest: Manifest) -> None:
    if app.name != manifest.application:
        raise ConfigurationError(
            f"The run is of application {manifest.application}, and this is {app.name}: name the file that it was started with."
        )
