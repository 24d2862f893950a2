"""The ledger of a group: ``batches-GROUP.jsonl``, with one record for each committed micro-batch, in order."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec import structs

from penstock.errors import IncompatibleStateError
from penstock.runtime.histogram import Histogram
from penstock.runtime.output import StagedFile
from penstock.runtime.places import Place, Seen
from penstock.runtime.tally import Counts, Tally
from penstock.storage import journal


class BatchRecord(Counts, kw_only=True):
    """The ledger's record of a committed micro-batch. Times are in microseconds since the epoch."""

    batch: int
    committed_us: int
    files: list[StagedFile] = []
    latency_ms: Histogram = msgspec.field(default_factory=Histogram)
    dead_lettered: int = 0
    """Source events that became a dead letter, or of which a descendant did; if ``judged``, without those that failed in
    another group before. In records of older versions, events from other groups count here in place of source events.
    """
    judged: bool = False
    origins: list[int] = []
    """In a run of several groups: origins (see `Lineage`) of the source events that failed in this micro-batch."""
    places: dict[str, Place] = {}
    """By place: how many events left for it, and how many of them did not arrive, or arrived in excess."""
    offsets: str = ""
    """A checksum of the offsets up to which the batch has read its sources, from Spark's checkpoint."""
    moved: bool = False
    """Whether this is no micro-batch, but the first record of a group that took over the instances of other groups."""
    summed: int = 0
    """How many micro-batches were summed up in this record, whose number is that of the last; 0 for a single one."""
    reached: dict[str, int] = {}
    """In a summed record: by label of an output, the last micro-batch that wrote to it."""

    @property
    def batches(self) -> int:
        """How many micro-batches the record stands for."""
        return self.summed or int(not self.moved)

    @property
    def delivered(self) -> dict[str, int]:
        """By label of an output, the last micro-batch that wrote to it, as far as this record knows."""
        return {**self.reached, **{file.sink: self.batch for file in self.files}}

    @classmethod
    def of(cls, batch: int, committed_us: int, tallies: list[Tally], offsets: str = "") -> "BatchRecord":
        """Add up the tallies of a batch's stages and partitions to one record."""
        record = cls(batch=batch, committed_us=committed_us, offsets=offsets)
        for tally in tallies:
            record.merge(tally)
            for births in tally.births:
                record.latency_ms.merge(births.latencies_ms(committed_us))
        record.places = _places(tallies)
        record.origins = sorted({origin for tally in tallies for origin in tally.failed})
        record.dead_lettered = len(record.origins)
        return record


def _places(tallies: Iterable[Tally]) -> dict[str, Place]:
    """Compare, for each place, the events that left for it with those that arrived, over all tallies of a micro-batch."""
    departed: dict[str, Seen] = {}
    arrived: dict[str, Seen] = {}
    for tally in tallies:
        for ends, seen in ((departed, tally.left), (arrived, tally.came)):
            for place, events in seen.items():
                ends.setdefault(place, Seen()).merge(events)
    return {place: Place.between(departed.get(place, Seen()), arrived.get(place, Seen())) for place in departed | arrived}


def sum_of(records: Iterable[BatchRecord]) -> BatchRecord:
    """Sum up successive records (at least one) to one record, which has the number of the last.

    Of a group that reads from others, dead letters of records that are not ``judged`` are left out once one is.
    """
    counts, latency_ms, summed = Counts(), Histogram(), 0
    dead_lettered = {False: 0, True: 0}
    judged = False
    reached: dict[str, int] = {}
    places: dict[str, Place] = {}
    for record in records:
        reached |= record.delivered
        add_places(places, record.places)
        counts.merge(record)
        latency_ms.merge(record.latency_ms)
        dead_lettered[record.judged] += record.dead_lettered
        judged |= record.judged
        summed += record.batches
    return BatchRecord(
        batch=record.batch,
        committed_us=record.committed_us,
        offsets=record.offsets,
        latency_ms=latency_ms,
        dead_lettered=dead_lettered[True] + (0 if judged and counts.taken else dead_lettered[False]),
        judged=judged,
        places=places,
        moved=not summed,
        summed=summed,
        reached=reached,
        **structs.asdict(counts),
    )


def add_places(places: dict[str, Place], more: dict[str, Place]) -> None:
    """Add the counts of another micro-batch to ``places``, place by place."""
    for name, place in more.items():
        places.setdefault(name, Place()).merge(place)


_decode = msgspec.json.Decoder(BatchRecord).decode


def records_in(path: Path) -> Iterator[BatchRecord]:
    """Yield the records in a ledger's file. A torn last line is left out: its batch was not committed.

    Raises:
        IncompatibleStateError: another line is damaged, so that it is not known what was committed.
    """
    for number, line in enumerate(journal.lines_of(path), 1):
        try:
            yield _decode(line)
        except msgspec.DecodeError as error:
            raise IncompatibleStateError(
                f"Line {number} of {path} is damaged ({error}), so that it is not known what was committed: put the file back "
                "from a copy, or start afresh with --fresh."
            ) from error
