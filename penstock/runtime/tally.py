"""What is counted: one type with one merge, from a stage in a partition to the report of a run.

A new figure is a field here, the place that measures it, and the place that shows it.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np

from penstock.runtime.histogram import Histogram
from penstock.runtime.hottest import Hottest
from penstock.runtime.lineage import NONE, Ints, LineageColumns
from penstock.runtime.log import Lines
from penstock.runtime.output import StagedFile
from penstock.runtime.places import Seen

Item = TypeVar("Item")

SAMPLED_EVERY = 64
BIRTH_BINS = 2000


class Merged(msgspec.Struct):
    """Figures that add up: numbers by their sum, dicts key by key, what has a merge of its own by that."""

    def merge(self, other: Any) -> None:
        """Add what was counted elsewhere; only figures that both have."""
        for name in other.__struct_fields__:
            if name in self.__struct_fields__:
                setattr(self, name, _sum(getattr(self, name), getattr(other, name)))


def _sum(mine: Any, theirs: Any) -> Any:
    if isinstance(mine, dict):
        for key, value in theirs.items():
            mine[key] = _sum(mine[key] if key in mine else type(value)(), value)
        return mine
    if isinstance(mine, msgspec.Struct):
        mine.merge(theirs)  # type: ignore[attr-defined]  # a Merged or a Histogram
        return mine
    return mine + theirs


class ElementTally(Merged):
    """What one element did. Service times are in microseconds of one event's handling."""

    events: int = 0
    dead_letters: int = 0
    late: int = 0
    late_in_part: int = 0
    """Events of which some windows had closed; they are in the others."""
    instances: dict[int, int] = {}
    """Live instances by partition, as counted last."""
    busy_us: float = 0.0
    service_us: Histogram = msgspec.field(default_factory=Histogram)
    """Of a sample: one event in `SAMPLED_EVERY`, timed by itself; in the batch dialect, of each batch its mean."""
    hottest: Hottest = msgspec.field(default_factory=Hottest)
    """The keys that have most events."""

    def timed(self, items: Sequence[Item]) -> Iterator[Item]:
        """Hand out the items of a loop, measuring how long its body takes."""
        clock = time.perf_counter_ns
        for start in range(0, len(items), SAMPLED_EVERY):
            begun = clock()
            yield items[start]
            first = clock()
            yield from items[start + 1 : start + SAMPLED_EVERY]
            self.service_us.add((first - begun) / 1e3)
            self.busy_us += (clock() - begun) / 1e3
        self.events += len(items)

    @contextmanager
    def timed_together(self, events: int) -> Iterator[None]:
        """Measure how long it takes to handle events that are handled in one call: each counts with its share."""
        begun = time.perf_counter_ns()
        yield
        self.took_together(events, begun)

    def took_together(self, events: int, begun: int) -> None:
        """Note that events were handled in one call, which began at a count of nanoseconds."""
        if events:
            took_us = (time.perf_counter_ns() - begun) / 1e3
            self.service_us.add(took_us / events)
            self.busy_us += took_us
            self.events += events

    def merge(self, other: Any) -> None:
        """Add what another partition or batch counted; of instances the last count of a partition stands."""
        instances = self.instances | other.instances
        super().merge(other)
        self.instances = instances


class SourceTally(Merged):
    """What was read from one source."""

    rows: int = 0
    blank: int = 0
    accepted: int = 0
    late_dropped: int = 0
    newest_us: int = NONE
    """The greatest event time, where the source has one."""

    def merge(self, other: Any) -> None:
        """Add what was read elsewhere."""
        newest = max(self.newest_us, other.newest_us)
        super().merge(other)
        self.newest_us = newest


class Births(msgspec.Struct):
    """When the source events behind some results were born: counts by bin, to be set against the
    time at which the batch is committed."""

    start_us: int = 0
    width_us: int = 1
    counts: dict[int, int] = {}

    @classmethod
    def of(cls, born: Ints) -> "Births":
        """Bins of at least a millisecond, and no more than `BIRTH_BINS` of them."""
        born = born[born != NONE]
        if not len(born):
            return cls()
        start = int(born.min())
        width = max(1000, (int(born.max()) - start) // BIRTH_BINS + 1)
        bins, counts = np.unique((born - start) // width, return_counts=True)
        return cls(start, width, dict(zip(bins.tolist(), counts.tolist(), strict=True)))

    @property
    def count(self) -> int:
        """How many events were counted."""
        return sum(self.counts.values())

    @property
    def newest_us(self) -> int:
        """The birth of the youngest, to the width of a bin."""
        return self.start_us + max(self.counts) * self.width_us

    def latencies_ms(self, committed_us: int) -> Histogram:
        """The time from birth to commit."""
        latencies = Histogram()
        for number, times in self.counts.items():
            born = self.start_us + number * self.width_us + self.width_us / 2
            latencies.add(max(0.0, committed_us - born) / 1e3, times)
        return latencies


Counted = Literal["streams", "outputs"]


class Counts(Merged):
    """Events by where they were counted."""

    sources: dict[str, SourceTally] = {}
    streams: dict[str, int] = {}
    """By stream, counted where they were emitted."""
    elements: dict[str, ElementTally] = {}
    outputs: dict[str, int] = {}
    """By sink, under its label."""

    def count(self, what: Counted, name: str, events: int) -> None:
        """Count events."""
        counts: dict[str, int] = getattr(self, what)
        counts[name] = counts.get(name, 0) + events

    def element(self, name: str) -> ElementTally:
        """The tally of an element."""
        return self.elements.setdefault(name, ElementTally())

    def source(self, name: str) -> SourceTally:
        """The tally of a source."""
        return self.sources.setdefault(name, SourceTally())


class Tally(Counts, kw_only=True):
    """All that a partition's stage has to tell of one micro-batch; travels to the driver as bytes."""

    stage: int
    partition: int
    files: list[StagedFile] = []
    births: list[Births] = []
    left: dict[str, Seen] = {}
    """Events that have left for a place, by its name."""
    came: dict[str, Seen] = {}
    """Those that have come there."""
    log: Lines = msgspec.field(default_factory=Lines)
    """What elements have printed and logged."""
    failed: list[tuple[int, int]] = []
    """The identities of source events that, or whose descendants, became dead letters."""

    def leave(self, place: str, lineage: LineageColumns) -> None:
        """Count events that leave for a place."""
        self.left.setdefault(place, Seen()).add(lineage)

    def come(self, place: str, lineage: LineageColumns) -> None:
        """Count events that have come there."""
        self.came.setdefault(place, Seen()).add(lineage)

    @classmethod
    def read(cls, payload: bytes) -> "Tally":
        """A tally that has travelled."""
        return msgspec.msgpack.decode(payload, type=cls)
