"""A move: a stopped run gets other groups or partitions, and goes on with all its instances.

It has four stages: finish the begun micro-batches in the old layout; make the new layout's checkpoints beside the old ones;
write the manifest, which is the moment of the move; remove the files that are no longer needed. A run that is killed before
that moment has the old layout, and after it the new one.
"""

import time
from collections.abc import Callable, Collection, Iterable

import msgspec
from msgspec.structs import replace as replaced
from pyspark.sql import SparkSession

from penstock.connectors.checkpoint import batches, clear_checkpoint, offsets_checksum
from penstock.engine.moving.continuing import Begun, continue_in
from penstock.engine.moving.seeding import (
    UNREADABLE,
    InstanceCounts,
    Links,
    OldState,
    clocks_of,
    count,
    divided,
    headers_of,
    read_pages,
    repack,
    seed,
)
from penstock.engine.query.group import Group
from penstock.engine.query.stateful import time_mode_of
from penstock.engine.running.binding import Binding
from penstock.engine.running.discarding import clear_workshops
from penstock.errors import ConfigurationError, IncompatibleStateError, RunFailedError
from penstock.runs.batches import BatchRecord, records_in
from penstock.runs.files import MOVING
from penstock.runs.handed import handed_on
from penstock.runs.layout import MOVED, Former, Layout, full_name, generation_of
from penstock.runs.moves import Division, MoveRecord, note_move
from penstock.runtime.places import Seen
from penstock.runtime.tally import Counts, ElementTally
from penstock.storage import durable, journal

ASSUMED_S, ASSUMED_RATE = 23.0, 65_000.0
"""The expected duration of a move: seconds for Spark's jobs, and instances moved per second; measured on two cores
(`benchmarks/moving.py`).
"""

Say = Callable[[str], None]


class Move:
    """The move of a run from its present layout to the wanted one.

    Raises:
        ConfigurationError, IncompatibleStateError, TopologyError: the move is not possible; nothing was changed.
    """

    def __init__(self, binding: Binding) -> None:
        self._binding, self._recording = binding, binding.recording
        number = max(binding.layout.begun, binding.layout.moves) + 1  # older versions have not told what was begun
        # A group whose elements, inputs and (with keyed hops) partitions stay keeps its checkpoint; others get a new one.
        candidates = binding.groups_of(replaced(binding.wanted, generations={}))
        kept_by_name = {group.name: self._kept_as(group) for group in candidates}
        generations = {name: number if move is None else move for name, move in kept_by_name.items()}
        self._layout = replaced(
            binding.wanted, moves=number, begun=number, generations={name: move for name, move in generations.items() if move}
        )
        before = {group.name for group in binding.groups}
        after = binding.groups_of(self._layout)
        self._made = [group for group in after if group.name not in before]
        staying = {group.name for group in after}
        self._left = [group for group in binding.groups if group.name not in staying]
        self._links = Links()
        self._check({stream for group in after for stream in group.hops})

    def carry_out(self, spark: SparkSession, settle: Callable[[], None], say: Say) -> None:
        """Move the run.

        Args:
            settle: finishes the begun micro-batches in the old layout, and leaves no events between its groups.

        Raises:
            RunFailedError: not every instance arrived in the new checkpoints; the run keeps the old layout.
        """
        settle()
        self._binding.begin_move(self._layout.begun)
        self.tidy(self._binding)  # of that number, a move of an older version may have left files when it was interrupted
        begun = {group.name: reached for group in self._binding.groups if (reached := self._begun(group)) is not None}
        since = time.monotonic()
        moved = self._move_state(spark, list(begun.values()), say)
        for group in self._made:
            self._continue(group, list(begun.values()), moved)
        layout = self._continued(begun)
        before = self._described(self._binding.layout, self._binding.groups)
        self._recording.fix_state()  # the new checkpoints have the shape of today's code
        self._binding.move_to(layout)
        if moved is not None:
            took = time.monotonic() - since
            record = MoveRecord(
                time=time.time(),
                before=before,
                after=self._described(layout, self._binding.groups),
                instances=moved.total,
                checksum=moved.checksum,
                expected_s=round(_expected(moved), 1),
                took_s=round(took, 2),
            )
            with self._recording.held():
                note_move(self._recording.directory, record)
            say(f"{moved.total:,} instances were moved in {took:.1f} s, and counted again where they are now.")
        self.tidy(self._binding)

    @property
    def _partitions(self) -> int:
        """The partitions of the wanted layout; 1 for a run whose first start failed before a session told its number."""
        return self._binding.wanted.partitions or 1

    @staticmethod
    def tidy(binding: Binding) -> None:
        """Remove the files of the old layout after a move, and those of moves that were interrupted."""
        recording, layout = binding.recording, binding.layout
        with recording.held():
            for name in (name for name in durable.names(recording.checkpoints) if _is_abandoned(name, layout)):
                durable.remove(recording.checkpoints / name)
            for path in durable.matching(recording.directory, f"batches-*{MOVED}*.jsonl"):
                if _is_abandoned(path.stem.removeprefix("batches-"), layout):
                    journal.remove(path)
            for former in layout.former:
                clear_checkpoint(recording.checkpoint(former.name))
            if layout.moves and recording.hops.exists():
                used = {stream for group in binding.groups for stream in group.hops}
                for name in set(durable.names(recording.hops)) - used:
                    durable.remove(recording.hops / name)
            clear_workshops(recording.directory)

    def _kept_as(self, group: Group) -> int | None:
        """Return the generation of the checkpoint with which a new layout's group can go on; None if it needs a new one."""
        binding = self._binding
        generation = binding.layout.generations.get(group.name, 0)
        name = full_name(group.name, generation)
        fixed = group.native or not binding.part(group).hops
        for old in binding.groups:
            same = (name, group.elements, group.sources, self._reads(group))
            if (old.name, old.elements, old.sources, self._reads(old)) == same:
                return generation if fixed or self._partitions == binding.layout.partitions else None
        return None

    def _reads(self, group: Group) -> list[str]:
        return [source.name for source in self._binding.part(group).sources]

    def _check(self, hops: set[str]) -> None:
        binding = self._binding
        for group in self._left:
            if group.native and batches(self._recording.checkpoint(group.name), "offsets"):
                raise IncompatibleStateError(
                    f"The query elements {', '.join(group.elements)} would move to another query, and their state, which Spark "
                    "keeps, cannot be moved: leave them in their group, or start afresh with --fresh."
                )
        if binding.options.hops is not None and hops != {stream for group in binding.groups for stream in group.hops}:
            raise ConfigurationError(
                "Groups that are joined by topics (--hops) cannot be moved, for the topics keep what has passed: leave the "
                "groups as they are, or start afresh with --fresh."
            )
        unreadable = UNREADABLE.search(str(self._recording.directory))
        if unreadable and not binding.options.master.startswith("local"):
            raise ConfigurationError(
                f"{self._recording.directory} has {unreadable[0]!r} in its name, and Spark cannot read state from a path "
                "with that, except with --master local[*]: change groups or partitions with that master, or leave them."
            )
        for group in self._made:
            part = binding.part(group)
            for hop in range(1, part.hops + 1):
                time_mode_of(part, hop)

    def _begun(self, group: Group) -> Begun | None:
        """Return a group's last completed micro-batch, once the old layout is settled; None if it has completed none."""
        checkpoint = self._recording.checkpoint(group.name)
        completed = batches(checkpoint, "commits")
        if not completed:
            return None
        order = self._recording.manifest.orders.get(group.name) or self._reads(group)
        return Begun(group, checkpoint, completed[-1], order, self._is_timed(group))

    def _is_timed(self, group: Group) -> bool:
        return any(source.event_time is not None for source in self._binding.part(group).sources)

    def _move_state(self, spark: SparkSession, begun: list[Begun], say: Say) -> InstanceCounts | None:
        """Copy all instances of the old groups to the new ones, and return their counts; None if no new group has state."""
        binding = self._binding
        parts = {group.name: binding.part(group) for group in self._made if _continued_by(group, self._reads(group), begun)}
        wirings = {
            group.name: binding.wiring(group, binding.wanted)
            for group in self._made
            if group.name in parts and parts[group.name].hops
        }
        if not wirings:
            return None
        pages = OldState({self._links.to(old.checkpoint): old.last for old in begun if old.group in self._left}).pages(spark)
        homes = {name: wirings[group.name] for group in self._made if group.name in wirings for name in group.elements}
        counted = count(pages, homes)
        say(
            f"{counted.total:,} instances are moved to {self._partitions} partitions of {len(self._made)} groups, which takes "
            f"some {_expected(counted):.0f} s (assumed)."
        )
        divisions = divided(counted)
        workshop = self._recording.directory / MOVING / f"{self._recording.manifest.run[:8]}-{self._layout.begun}"
        # Spark reads the new pages several times (for headers, and for each hop), so they are written to files once.
        repack(pages, homes, divisions, workshop / "pages")
        repacked, clocks = read_pages(spark, workshop / "pages"), clocks_of(pages)
        for name, reference in wirings.items():
            hops = {element.name: parts[name].depths[element.name] for element in parts[name].elements if element.keyed}
            headers = headers_of(repacked, divisions, clocks, hops, self._partitions)
            seed(spark, reference, self._recording.checkpoint(name), repacked, headers, workshop)
        # Count again in the new checkpoints: the move takes place only if every instance is there, unchanged.
        arrived = OldState({self._links.to(self._recording.checkpoint(name)): 0 for name in wirings}).pages(spark)
        if count(arrived, homes) != counted:
            raise RunFailedError(
                "Not every instance came across unchanged, so the run keeps the groups and partitions that it had, and "
                "nothing is lost; please report this."
            )
        return counted

    def _continue(self, group: Group, begun: list[Begun], moved: InstanceCounts | None) -> None:
        """Let a new group go on where the old ones ended. Its ledger begins with a record of the moved instances."""
        reads, checkpoint = self._reads(group), self._recording.checkpoint(group.name)
        concerned = _continued_by(group, reads, begun)
        if not concerned:
            return
        # An old group without events has no watermark. A new group that continues it must not take its first events for late.
        names = {former_group.group.name for former_group in begun}
        unspoken = any(
            old.name not in names and self._is_timed(old) and _shares(group, reads, old, self._reads(old)) for old in self._left
        )
        continue_in(checkpoint, group, reads, concerned, self._partitions, 0 if unspoken else None)
        offsets = offsets_checksum(checkpoint, 0)
        record = BatchRecord(batch=0, committed_us=time.time_ns() // 1000, offsets=offsets, moved=True)
        for element in self._binding.part(group).elements:
            if element.keyed:
                bucket_count = max(self._partitions, self._binding.layout.partitions or 1)
                instances = {} if moved is None else moved.instances
                held_by_bucket = {bucket: instances.get((element.name, bucket), 0) for bucket in range(bucket_count)}
                record.elements[element.name] = ElementTally(instances=held_by_bucket)
        with self._recording.held():  # a run that was begun anew meanwhile may have a group of that name
            journal.begin(self._recording.ledger(group.name), msgspec.json.encode(record))

    def _continued(self, begun: dict[str, Begun]) -> Layout:
        """Return the new layout. At the sinks, its new groups go on with the numbers of the old groups' micro-batches."""
        layout = self._binding.layout
        first = max((layout.first.get(name, 0) + reached.last + 1 for name, reached in begun.items()), default=0)
        former = [
            Former(group.name, list(group.sources), [name for name in self._reads(group) if name not in group.sources])
            for group in self._left
            if group.name in begun
        ]
        return replaced(
            self._layout,
            partitions=self._binding.wanted.partitions,
            first={**layout.first, **{group.name: first for group in self._made}},
            former=[*layout.former, *former],
            handed_before={**layout.handed_before, **self._handed()},
        )

    def _handed(self) -> dict[str, dict[str, Seen]]:
        """Return, by new group, the events that were handed on until now of each stream that it reads from others."""
        counts = Counts()
        for name in (*(former.name for former in self._binding.layout.former), *(group.name for group in self._binding.groups)):
            for record in records_in(self._recording.ledger(name)):
                counts.merge(Counts(outputs=record.outputs, handed=record.handed))
        return {
            group.name: {name: handed_on(counts, name) for name in self._reads(group) if name not in group.sources}
            for group in self._made
        }

    @staticmethod
    def _described(layout: Layout, groups: list[Group]) -> Division:
        return Division({name: group.name for group in groups for name in group.elements}, layout.partitions)


def _shares(group: Group, reads: Collection[str], old: Group, sources: Collection[str]) -> bool:
    """Whether a group has a source or an element in common with an old one, which reads ``sources``."""
    return bool(set(sources) & set(reads) or set(old.elements) & set(group.elements))


def _continued_by(group: Group, reads: Collection[str], begun: Iterable[Begun]) -> list[Begun]:
    """Return the old groups that a new one continues."""
    return [old for old in begun if _shares(group, reads, old.group, old.sources)]


def _expected(counted: InstanceCounts) -> float:
    return ASSUMED_S + counted.total / ASSUMED_RATE


def _is_abandoned(name: str, layout: Layout) -> bool:
    """Whether a group's full name is of a move that was begun, and is not that of a group which the run has or had."""
    there = {
        *(full_name(group, move) for group, move in layout.generations.items()),
        *(former.name for former in layout.former),
    }
    return 0 < generation_of(name) <= layout.begun and name not in there
