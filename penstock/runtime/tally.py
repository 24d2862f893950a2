"""Tallies: the counts and measurements of a micro-batch. Those of stages are merged up to the report of a run.

To add a figure, add a field here, the code that measures it, and the code that shows it.
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
    """Base of figures that can be merged: numbers are added, dicts merged key by key, structs by their own merge."""

    def merge(self, other: Any) -> None:
        """Add the figures of another; only fields that both have."""
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
    """Figures of one element. Service times are microseconds per event."""

    events: int = 0
    dead_letters: int = 0
    late: int = 0
    late_in_part: int = 0
    """Events that came too late for some of their windows, and were added to the others."""
    instances: dict[int, int] = {}
    """The last count of live instances, by partition."""
    busy_us: float = 0.0
    service_us: Histogram = msgspec.field(default_factory=Histogram)
    """A sample: one event in `SAMPLED_EVERY` is timed by itself; where events are handled in one call, the call's mean."""
    hottest: Hottest = msgspec.field(default_factory=Hottest)
    """The keys with the most events."""

    def timed(self, items: Sequence[Item]) -> Iterator[Item]:
        """Yield the items for a loop, and measure how long the loop's body takes."""
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
        """Measure the block, which handles a number of events in one call; each event counts with its share of the time."""
        begun = time.perf_counter_ns()
        yield
        self.took_together(events, begun)

    def took_together(self, events: int, begun: int) -> None:
        """Record events that were handled in one call, given its start by `time.perf_counter_ns`."""
        if events:
            took_us = (time.perf_counter_ns() - begun) / 1e3
            self.service_us.add(took_us / events)
            self.busy_us += took_us
            self.events += events

    def merge(self, other: Any) -> None:
        """Add the figures of another partition or micro-batch. Counts of instances are replaced, not added."""
        instances = self.instances | other.instances
        super().merge(other)
        self.instances = instances


class SourceTally(Merged):
    """Figures of what was read from one source."""

    rows: int = 0
    blank: int = 0
    accepted: int = 0
    late_dropped: int = 0
    newest_us: int = NONE
    """The greatest event time in microseconds since the epoch; NONE where the source has no event time."""

    def merge(self, other: Any) -> None:
        """Add the figures of another partition or micro-batch; of event times the greatest stands."""
        newest = max(self.newest_us, other.newest_us)
        super().merge(other)
        self.newest_us = newest


class Births(msgspec.Struct):
    """A histogram of when the source events behind some results were born, in equal bins. With the time of the commit it gives
    latencies."""

    start_us: int = 0
    width_us: int = 1
    counts: dict[int, int] = {}

    @classmethod
    def of(cls, born: Ints) -> "Births":
        """Count births, in microseconds, in at most `BIRTH_BINS` bins of at least a millisecond each."""
        born = born[born != NONE]
        if not len(born):
            return cls()
        start = int(born.min())
        width = max(1000, (int(born.max()) - start) // BIRTH_BINS + 1)
        bins, counts = np.unique((born - start) // width, return_counts=True)
        return cls(start, width, dict(zip(bins.tolist(), counts.tolist(), strict=True)))

    @property
    def count(self) -> int:
        """The number of events counted."""
        return sum(self.counts.values())

    @property
    def newest_us(self) -> int:
        """The latest birth, rounded to the start of its bin, in microseconds since the epoch."""
        return self.start_us + max(self.counts) * self.width_us

    def latencies_ms(self, committed_us: int) -> Histogram:
        """Return the times from birth to a commit, in milliseconds."""
        latencies = Histogram()
        for number, times in self.counts.items():
            born = self.start_us + number * self.width_us + self.width_us / 2
            latencies.add(max(0.0, committed_us - born) / 1e3, times)
        return latencies


Counted = Literal["streams", "outputs"]


class Counts(Merged):
    """Counts of events by source, stream, element and output."""

    sources: dict[str, SourceTally] = {}
    streams: dict[str, int] = {}
    """Emitted events, by stream."""
    elements: dict[str, ElementTally] = {}
    outputs: dict[str, int] = {}
    """Written rows, by the label of the output."""
    handed: dict[str, Seen] = {}
    """By stream, the events that were written for other groups."""
    taken: dict[str, Seen] = {}
    """By stream, the events that were read from other groups."""

    def count(self, what: Counted, name: str, events: int) -> None:
        """Add to the count of a stream or an output."""
        counts: dict[str, int] = getattr(self, what)
        counts[name] = counts.get(name, 0) + events

    def element(self, name: str) -> ElementTally:
        """Return the tally of an element; it is created on first use."""
        return self.elements.setdefault(name, ElementTally())

    def source(self, name: str) -> SourceTally:
        """Return the tally of a source; it is created on first use."""
        return self.sources.setdefault(name, SourceTally())


class Tally(Counts, kw_only=True):
    """Everything that a stage in one partition reports on one micro-batch; sent to the driver as bytes."""

    stage: int
    partition: int
    files: list[StagedFile] = []
    births: list[Births] = []
    left: dict[str, Seen] = {}
    """Events that left for a place (see `places`), by its name."""
    came: dict[str, Seen] = {}
    """Events that arrived at a place, by its name."""
    log: Lines = msgspec.field(default_factory=Lines)
    """Lines that elements have printed and logged."""
    failed: list[int] = []
    """Origins (see `Lineage`) of the source events that became dead letters themselves, or through a descendant."""

    def leave(self, place: str, lineage: LineageColumns) -> None:
        """Count events that leave for a place."""
        self.left.setdefault(place, Seen()).add(lineage)

    def come(self, place: str, lineage: LineageColumns) -> None:
        """Count events that arrive at a place."""
        self.came.setdefault(place, Seen()).add(lineage)

    @classmethod
    def read(cls, payload: bytes) -> "Tally":
        """Decode a tally that a stage has sent."""
        return msgspec.msgpack.decode(payload, type=cls)
