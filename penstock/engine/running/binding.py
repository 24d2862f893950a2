"""Binds an application to its sources, sinks, groups and recording."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from msgspec.structs import replace as replaced

from penstock.app.application import App
from penstock.app.earlier import forms_of
from penstock.app.loader import AppReference
from penstock.app.shape import misfit, shape_of
from penstock.app.state import describe_state
from penstock.app.topology import Topology
from penstock.connectors.checkpoint import Position
from penstock.connectors.declaration import Jars, SourceContext
from penstock.connectors.files.hop import HopSource
from penstock.connectors.files.sink import DirectorySink
from penstock.connectors.files.source import misread
from penstock.connectors.kafka.place import JARS, KafkaPlace
from penstock.connectors.registry import bind_sinks, bind_source, jars, refuse_shared, refuse_unknown
from penstock.connectors.sink import BoundSink, Refusals
from penstock.connectors.source import BoundSource
from penstock.engine.query.group import Group, group_elements
from penstock.engine.query.stateful import time_mode_of
from penstock.engine.running.agreement import keeps
from penstock.engine.running.ledger import Ledger, staged_below
from penstock.engine.running.options import RunOptions
from penstock.engine.running.recording import Recording
from penstock.engine.running.steering import Change
from penstock.engine.session.stores import jars_for, schemes_of
from penstock.errors import ConfigurationError, IncompatibleStateError, TopologyError
from penstock.masked import is_secret, masked, shown
from penstock.runs.batches import records_in
from penstock.runs.layout import Layout
from penstock.runs.manifest import Manifest, Mode, Reads
from penstock.runs.starts import Environment, Loaded, Start
from penstock.runtime.log import storable
from penstock.runtime.output import DEAD_LETTERS, SinkFiles
from penstock.runtime.wiring import WiringReference
from penstock.storage import durable
from penstock.storage.place import path_of


@dataclass(frozen=True)
class BoundGroup:
    """A group with its part of the topology, and with the sources and sinks of its query.

    Args:
        order: the sources' names in Spark's order; a source that the query reads twice occurs twice.
    """

    group: Group
    topology: Topology
    sources: list[BoundSource]
    sinks: tuple[BoundSink, ...]
    ledger: Ledger
    checkpoint: Path
    wiring: WiringReference
    order: tuple[str, ...]

    def read_in(self, order: Sequence[str]) -> "BoundGroup":
        """Return the group with its sources in Spark's order, without those that the query does not read."""
        by_name = {bound.source.name: bound for bound in self.sources}
        return replace(self, sources=[by_name[name] for name in dict.fromkeys(order)], order=tuple(order))

    def reading(self, sources: Sequence[BoundSource]) -> "BoundGroup":
        """Return the group with newly opened sources, sorted in its order."""
        number = {name: place for place, name in reversed(list(enumerate(self.order)))}
        last = len(self.order)
        return replace(self, sources=sorted(sources, key=lambda bound: number.get(bound.source.name, last)))

    @property
    def places(self) -> tuple[int, ...]:
        """Spark's number of each source (of its first occurrence)."""
        return tuple(self.order.index(bound.source.name) for bound in self.sources)

    @property
    def external(self) -> frozenset[str]:
        """The names of the sources that no other group feeds."""
        return frozenset(self.group.sources)

    @property
    def handed_on(self) -> frozenset[str]:
        """The names of the streams that other groups feed."""
        return frozenset(bound.source.name for bound in self.sources) - self.external

    def positions(self, back: int = 0) -> list[tuple[BoundSource, Position]]:
        """Return each source with the position up to which committed batches have read it.

        Args:
            back: how many batches to go back from the last one.
        """
        last = self.ledger.last
        batch = None if last is None or last < back else last - back
        return [
            (bound, Position(self.checkpoint, place, batch)) for bound, place in zip(self.sources, self.places, strict=True)
        ]


AS_THEY_ARE = (
    "master",
    "name",
    "partitions",
    "duration",
    "until_idle",
    "fresh",
    "take_over",
    "checkpoint_every",
    "retain",
    "quiet",
    "log_level",
)
"""Options that the record of a start contains unchanged."""


class Binding:
    """An application bound to its sources, its sinks and its recording.

    Args:
        mode: how the application runs; it cannot change between the starts of a run.

    Raises:
        PenstockError: a source or sink cannot be bound, or another process is running the run.
    """

    def __init__(self, app: App, options: RunOptions, application: AppReference, mode: Mode = "micro-batches") -> None:
        self.app, self.options, self.application, self._mode = app, options, application, mode
        self.topology = topology = app.topology()
        if not topology.sinks:
            streams = ", ".join(stream.name for stream in topology.streams if stream not in topology.sources)
            raise TopologyError(
                f"Application {app.name} has no sink, so nothing that it computes would leave it: add app.sink(NAME, STREAM) "
                f"for one of its streams ({streams})."
            )
        for element in topology.elements:
            element.prepare()
        refuse_unknown("--source", options.sources, topology.sources)
        refuse_unknown("--sink", options.sinks, topology.sinks)
        if options.hops is not None:
            KafkaPlace.of_hops(options.hops)
        context = SourceContext(application)
        self.sources = {
            source.name: bind_source(source, options.sources.get(source.name), context) for source in topology.sources
        }
        self.recording = Recording(options.directory(app.name), options.retain, take_over=options.take_over)
        try:
            stored = None if options.fresh else self.recording.stored()
            self._state = describe_state(topology, None if stored is None else stored.state)
            self.layout = Layout.beginning(options.groups, options.partitions) if stored is None else stored.layout
            element_names = {element.name for element in topology.elements}  # the code may have lost an element meanwhile
            if stored is not None:
                kept_groups = {name: group for name, group in self.layout.grouping.items() if name in element_names}
                self.layout = replaced(self.layout, grouping=kept_groups)
            self.wanted = self.layout.asked(options.groups, options.partitions)
            """The layout to which the run is moved before it goes on; mostly the present one."""
            self.groups = self.groups_of(self.layout)
            self._refuse_unfit_hops(self.groups_of(self.wanted))
            self.sinks = bind_sinks(topology.sinks, options.sinks, self.recording.output)
        except BaseException:
            self.recording.release()
            raise
        self.letters = DirectorySink(
            SinkFiles(DEAD_LETTERS, "jsonl", str(self.recording.directory / DEAD_LETTERS), role="letters")
        )
        for number, sink in enumerate(topology.sinks):
            place = self.recording.directory / DEAD_LETTERS
            self.sinks[sink.name].refusals = Refusals(place, number, sink.name, sink.stream.name)

    def _refuse_unfit_hops(self, wanted: list[Group]) -> None:
        """Refuse to join groups by files in a directory whose name Spark takes for a glob pattern, and reads other files; and
        brokers where there is nothing to join.
        """
        pattern = misread(self.recording.directory)
        hops = any(group.hops for group in (*self.groups, *wanted))
        if self.options.hops is not None and not hops:
            raise ConfigurationError(
                f"--hops {masked(self.options.hops)} joins groups, and no stream goes from one group to another: leave it out, "
                "or put an element into a group of its own, as --group ELEMENT=GROUP."
            )
        if pattern is not None and hops and self.options.hops is None:
            raise ConfigurationError(
                f"{self.recording.directory} has {pattern!r} in its name, which Spark takes for a pattern where it reads what "
                "groups hand on "
                "by files: choose another --runs or --name, put all elements in one group, or join groups by topics (--hops "
                "kafka:BROKERS)."
            )

    def groups_of(self, layout: Layout) -> list[Group]:
        """Return the groups of a layout, each after those that feed it.

        Raises:
            ConfigurationError, TopologyError: such groups are not possible.
        """
        groups = group_elements(self.topology, layout.grouping)
        return [replace(group, name=layout.full_name(group.name)) for group in groups]

    def settle_partitions(self, partitions: int) -> None:
        """Record the number of partitions, which the first start takes from the session."""
        self.layout = replaced(self.layout, partitions=partitions)
        self.wanted = replaced(self.wanted, partitions=self.wanted.partitions or partitions)
        self.recording.keep(**self._laid_out())

    def begin_move(self, number: int) -> None:
        """Record a move's number before it makes any files, so that no other move has it."""
        self.layout = replaced(self.layout, begun=number)
        self.recording.keep(**self._laid_out())

    def move_to(self, layout: Layout) -> None:
        """Change to another layout. Writing it to the manifest is the moment at which a move takes effect."""
        self.layout = self.wanted = layout
        self.groups = self.groups_of(layout)
        self.recording.keep(**self._laid_out())

    def claim(self) -> bool:
        """Begin or resume the recording, and claim the place of every sink for this run. Returns whether the run is resumed.

        Raises:
            PenstockError: the earlier recording, or a sink's content, does not fit this run.
        """
        recording, options = self.recording, self.options
        sinks = (*self.sinks.values(), self.letters)

        def inspect(run: str, discarded: list[str], known: Collection[str]) -> None:
            for sink in sinks:
                sink.inspect(run, () if sink.place and sink.files.name in known else discarded)

        resumed = recording.prepare(self._manifest(), fresh=options.fresh, inspect=inspect)
        known = recording.manifest.places if resumed else ()
        for sink in sinks:
            # A sink claimed by an earlier start discards nothing more, wherever --sink leads, unless its place may be shared.
            claimed_before = bool(sink.place) and sink.files.name in known
            sink.claim(recording.manifest.run, () if claimed_before else recording.manifest.discarded)
        refuse_shared(self.sinks)
        self._note_start(resumed=resumed)
        return resumed

    def check_hops(self, groups: Sequence[BoundGroup]) -> None:
        """Check that the code can read the events that groups have handed on and not read yet.

        Raises:
            IncompatibleStateError: a stream between groups has another type of event now, and has events that are not read yet.
        """
        before: dict[str, Any] = self.recording.manifest.handed
        handed = dict(before)
        for group in groups:
            for bound, position in group.positions():
                name = bound.source.name
                if name not in group.handed_on:
                    continue
                shape = shape_of(bound.source.event_type)
                trouble = misfit(handed.get(name, shape), shape, f"an event of stream {name}")
                if trouble is not None and not bound.drained(position):
                    raise IncompatibleStateError(
                        f"{trouble}, and {group.group.name} has yet to read some that another group has handed on: put the "
                        "type back until the run is idle, or start afresh with --fresh."
                    )
                handed[name] = shape
        if handed != before:
            self.recording.keep(handed=handed)

    def check_sinks(self, groups: Sequence[BoundGroup]) -> None:
        """Check that all sinks still hold the batches delivered to them, by the present groups and those before a move.

        Raises:
            IncompatibleStateError: a sink was removed, replaced or rolled back.
        """
        first, directory = self.layout.first, str(self.recording.directory)
        owed = {group.group.name: {sink.files.label: group.ledger.owed(sink) for sink in group.sinks} for group in groups}
        committed = {group.group.name: max(group.ledger.reached.values(), default=-1) for group in groups}
        for former in self.layout.former:
            reached = owed.setdefault(former.name, {})
            for record in records_in(self.recording.ledger(former.name)):
                reached |= {sink: first.get(former.name, 0) + last for sink, last in record.delivered.items()}
            committed[former.name] = max(reached.values(), default=-1)
        places = {name: f"{sink.uri} {sink.place}".replace(directory, ".") for name, sink in self.sinks.items()}
        since = self.recording.places_of(places, committed)
        for name, last in owed.items():  # not for dead letters, which users may remove
            keeps(name, last, {sink: batches.get(name, -1) for sink, batches in since.items()}, self.sinks.values())
        for group in groups:
            hops = [sink for sink in group.sinks if sink.files.role == "hop"]
            keeps(group.group.name, owed[group.group.name], {}, hops)

    def change(self, change: Change) -> None:
        """Use other settings from now on. Sources that were opened before keep theirs."""
        sources = {**self.options.sources, **change.sources}
        self.options = replace(self.options, trigger=change.trigger, sources=sources)
        for source in self.topology.sources:
            if source.name in change.sources:
                context = SourceContext(self.application)
                self.sources[source.name] = bind_source(source, change.sources[source.name], context)
        self._note_start(resumed=True, changed=True)

    def _note_start(self, *, resumed: bool, changed: bool = False) -> None:
        self.recording.note_start(
            lambda time, environment: start_of(
                self.options, self.application, self.trigger, time, environment, resumed=resumed, changed=changed
            )
        )

    @property
    def trigger(self) -> float:
        """Seconds between the starts of micro-batches."""
        return self.app.trigger if self.options.trigger is None else self.options.trigger

    def jars(self) -> list[Jars]:
        """Return the jars that Spark needs for the run's connectors and stores."""
        options = self.options
        needed = [
            *(
                jar
                for source in self.topology.sources
                for jar in jars("sources", options.sources.get(source.name) or source.uri)
            ),
            *(jar for sink in self.topology.sinks for jar in jars("sinks", options.sinks.get(sink.name) or sink.uri)),
        ]
        return [*needed, *jars_for(self.stores), *([JARS] if options.hops else [])]

    @property
    def stores(self) -> set[str]:
        """The URI schemes of the stores that hold the run, its sources or its sinks."""
        uris = [*(bound.uri for bound in self.sources.values()), *(bound.uri for bound in self.sinks.values())]
        return schemes_of([self.recording.directory, *uris])

    def staged(self) -> list[Path]:
        """Return what earlier attempts have staged for all sinks, dead letters and other groups."""
        hops = (self.recording.hops / stream for stream in durable.names(self.recording.hops))
        between_groups = (hop / group for hop in hops for group in durable.names(hop))
        own = (path_of(sink.files.directory) for sink in (*self.sinks.values(), self.letters))
        return staged_below({*own, *between_groups})

    def open(self, group: Group) -> BoundGroup:
        """Bind a group to its sources and sinks, and open its ledger."""
        topology = self.part(group)
        sources = self.open_sources(group)
        own = [self.sinks[sink.name] for sink in topology.sinks if not sink.hop]
        sinks = (*own, *(self._hop_sink(stream, group.name) for stream in group.hops), self.letters)
        first = self.layout.first.get(group.name, 0)
        with self.recording.held():  # opening it fences who has it open: not one that has followed this driver
            ledger = Ledger(self.recording.ledger(group.name), group.name, sinks, first, self.options.retain)
        wiring = self.wiring(group, self.layout, tuple(sink.files for sink in sinks))
        known_order = self.recording.manifest.orders.get(group.name, [])
        order = (*known_order, *(bound.source.name for bound in sources if bound.source.name not in known_order))
        bound = BoundGroup(group, topology, [], sinks, ledger, self.recording.checkpoint(group.name), wiring, order)
        return bound.reading(sources)

    def part(self, group: Group) -> Topology:
        """Return a group's part of the topology."""
        return self.topology.subset(group.elements, group.hops, group.sources)

    def wiring(self, group: Group, layout: Layout, sinks: tuple[SinkFiles, ...] = ()) -> WiringReference:
        """Return the reference by which workers load a group of a layout."""
        forms = [(name, forms_of(self._state[name])) for name in group.elements if name in self._state]
        return WiringReference(
            self.application,
            group.elements,
            group.hops,
            group.sources,
            layout.partitions or 1,  # a run whose first start failed before a session told its number has none
            sinks,
            self.app.on_error,
            self.options.log_level,
            tuple((name, earlier) for name, earlier in forms if earlier),
            layout.partitioner,
        )

    def open_sources(self, group: Group) -> list[BoundSource]:
        """Return a group's sources, and the streams that it reads from other groups as sources."""
        topology = self.part(group)
        return [
            self.sources[source.name] if source.name in group.sources else self._hop_source(topology, source.name)
            for source in topology.sources
        ]

    def _manifest(self) -> Manifest:
        return Manifest(
            application=self.app.name,
            mode=self._mode,
            topology=self.topology.describe(),
            state=self._state,
            sources={name: bound.uri.partition("?")[0] for name, bound in self.sources.items()},
            identities={name: bound.identity() for name, bound in self.sources.items()},
            parameters={name: storable(str(value)) for name, value in self.app.values.items() if not is_secret(name)},
            **self._laid_out(),
        )

    def _laid_out(self) -> dict[str, Any]:
        """Return the fields of the manifest that describe the division of the run."""
        parts = {group: self.part(group) for group in self.groups}
        return {
            "groups": {name: group.name for group in self.groups for name in group.elements},
            "hops": {group.name: part.hops for group, part in parts.items()},
            "clocks": {
                group.name: [time_mode_of(part, hop) for hop in range(1, part.hops + 1)] for group, part in parts.items()
            },
            "reads": {
                group.name: Reads(
                    list(group.sources), [source.name for source in part.sources if source.name not in group.sources]
                )
                for group, part in parts.items()
            },
            "partitions": self.layout.partitions,
            "layout": self.layout,
        }

    def _hop_source(self, topology: Topology, name: str) -> BoundSource:
        source = next(source for source in topology.sources if source.name == name)
        topic = self._hop_topic(name)
        if topic is None:
            return HopSource(source, self.recording.hops / name)
        from penstock.connectors.kafka.source import KafkaHopSource  # needs an extra

        return KafkaHopSource(source, topic.uri(), {})

    def _hop_sink(self, stream: str, group: str) -> BoundSink:
        """Return the sink by which a group hands on a stream to other groups, claimed for this run."""
        files = SinkFiles(stream, "parquet", str(self.recording.hops / stream / group), role="hop")
        topic = self._hop_topic(stream)
        if topic is None:
            sink: BoundSink = DirectorySink(files)
        else:
            from penstock.connectors.kafka.sink import KafkaHopSink  # needs an extra

            # By transactions, so that a driver that was paused and followed sends nothing twice to who reads the stream.
            sink = KafkaHopSink(self.topology.stream(stream), topic, self.recording.directory, files, transactions=True)
        sink.claim(self.recording.manifest.run, ())
        return sink

    def _hop_topic(self, stream: str) -> KafkaPlace | None:
        if self.options.hops is None:
            return None
        place = KafkaPlace.of_hops(self.options.hops)
        name = quote(stream, safe="").replace("%", "_")
        return replace(place, topic=f"penstock-{self.recording.manifest.run}-{name}")


def start_of(
    options: RunOptions,
    where: AppReference,
    trigger: float,
    time: float,
    environment: Environment,
    *,
    resumed: bool,
    changed: bool,
) -> Start:
    """Make the record of a start from its options, without secrets."""
    file = str(Path(where.directory, *where.module.split(".")).with_suffix(".py")) if where.directory else None
    parameters = {name: "***" if is_secret(name) else storable(str(value)) for name, value in where.parameters}
    return Start(
        time=time,
        environment=environment,
        application=Loaded(file, where.name, parameters),
        resumed=resumed,
        changed=changed,
        trigger=trigger,
        sources={name: masked(uri) for name, uri in options.sources.items()},
        sinks={name: masked(uri) for name, uri in options.sinks.items()},
        groups=dict(options.groups),
        conf=shown({name: str(value) for name, value in options.conf.items()}),
        hops=options.hops and masked(options.hops),
        archives=list(options.archives),
        runs=str(options.runs),
        report=None if options.report is None else str(options.report),
        spark=None if options.spark is None else "given",
        **{name: getattr(options, name) for name in AS_THEY_ARE},
    )
