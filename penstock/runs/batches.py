"""The committed micro-batches of a group: ``batches-GROUP.jsonl``, a record each, in order."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec import structs

from penstock.runs.lines import records_of
from penstock.runtime.histogram import Histogram
from penstock.runtime.output import StagedFile
from penstock.runtime.places import Place, Seen
from penstock.runtime.tally import Counts, Tally


class BatchRecord(Counts, kw_only=True):
    """What is kept of a committed micro-batch; times are in microseconds since the epoch."""

    batch: int
    committed_us: int
    files: list[StagedFile] = []
    latency_ms: Histogram = msgspec.field(default_factory=Histogram)
    dead_lettered: int = 0
    """Source events that, or a descendant of which, became a dead letter."""
    places: dict[str, Place] = {}
    """What has left for each place and what has come there."""
    offsets: str = ""
    """A checksum of how far the batch has read its sources, as Spark's checkpoint had it."""
    moved: bool = False
    """Whether it is no micro-batch but what a group began with that another has handed its instances to."""
    summed: int = 0
    """How many micro-batches it is the sum of, the last of which gives it its number; 0 for a single one."""
    reached: dict[str, int] = {}
    """Of a sum: the last micro-batch that had something for each output, by the outputs' labels."""

    @property
    def batches(self) -> int:
        """How many micro-batches it stands for."""
        return self.summed or int(not self.moved)

    @property
    def delivered(self) -> dict[str, int]:
        """The last micro-batch with something for each output, as far as this record knows."""
        return {**self.reached, **{file.sink: self.batch for file in self.files}}

    @classmethod
    def of(cls, batch: int, committed_us: int, tallies: list[Tally], offsets: str = "") -> "BatchRecord":
        """The record that the tallies of a batch's stages and partitions add up to."""
        record = cls(batch=batch, committed_us=committed_us, offsets=offsets)
        for tally in tallies:
            record.merge(tally)
            for births in tally.births:
                record.latency_ms.merge(births.latencies_ms(committed_us))
        record.places = _places(tallies)
        record.dead_lettered = len({origin for tally in tallies for origin in tally.failed})
        return record


def _places(tallies: Iterable[Tally]) -> dict[str, Place]:
    """What the tallies of a micro-batch have seen at both ends of each place."""
    left: dict[str, Seen] = {}
    came: dict[str, Seen] = {}
    for tally in tallies:
        for ends, seen in ((left, tally.left), (came, tally.came)):
            for place, one in seen.items():
                ends.setdefault(place, Seen()).merge(one)
    return {place: Place.between(left.get(place, Seen()), came.get(place, Seen())) for place in left | came}


def sum_of(records: Iterable[BatchRecord]) -> BatchRecord:
    """Successive records, at least one, as one: their counts added up, and the number of the last."""
    counts, latency_ms, dead_lettered, summed = Counts(), Histogram(), 0, 0
    reached: dict[str, int] = {}
    places: dict[str, Place] = {}
    for record in records:
        reached |= record.delivered
        add_places(places, record.places)
        counts.merge(record)
        latency_ms.merge(record.latency_ms)
        dead_lettered += record.dead_lettered
        summed += record.batches
    return BatchRecord(
        batch=record.batch,
        committed_us=record.committed_us,
        offsets=record.offsets,
        latency_ms=latency_ms,
        dead_lettered=dead_lettered,
        places=places,
        moved=not summed,
        summed=summed,
        reached=reached,
        **structs.asdict(counts),
    )


def add_places(places: dict[str, Place], more: dict[str, Place]) -> None:
    """Add what another micro-batch has found, place by place."""
    for name, place in more.items():
        places.setdefault(name, Place()).merge(place)


def records_in(path: Path) -> Iterator[BatchRecord]:
    """The committed batches that a ledger's file holds; no batch relied on a line that is torn."""
    return records_of(path, BatchRecord)
