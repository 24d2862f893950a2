"""The sums over a run's committed micro-batches."""

import msgspec

from penstock.runs.batches import BatchRecord, add_places
from penstock.runtime.histogram import Histogram
from penstock.runtime.places import Place
from penstock.runtime.tally import Counts


class Totals(Counts):
    """The sums over the committed micro-batches of one group or of all groups."""

    batches: int = 0
    dead_lettered: int = 0
    places: dict[str, Place] = {}
    latency_ms: Histogram = msgspec.field(default_factory=Histogram)

    def add(self, record: BatchRecord, external: frozenset[str], handed_on: frozenset[str]) -> None:
        """Add a micro-batch of a group.

        Args:
            external: the group's sources that are not hops; their events count as accepted.
            handed_on: streams that the group reads from other groups, which have counted them already.
        """
        sources = {name: source for name, source in record.sources.items() if name in external}
        streams = {name: events for name, events in record.streams.items() if name not in handed_on}
        failed = record.dead_lettered if external or record.judged else 0
        add_places(self.places, record.places)
        self.merge(msgspec.structs.replace(record, sources=sources, streams=streams, dead_lettered=failed, places={}))
        self.batches += record.batches
