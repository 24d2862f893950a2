"""What groups of a run hand on to each other: the events that were written, against those that each group has read."""

from penstock.runtime.output import label
from penstock.runtime.places import Place, Seen
from penstock.runtime.tally import Counts

UNKNOWN = -1
"""The ``print`` of events of which not all have been told: by query elements, or by older versions."""


def handed_on(counts: Counts, stream: str) -> Seen:
    """Return the events of a stream that were handed on, by the sums of all groups' records."""
    return _seen(counts.outputs.get(label(stream, "hop"), 0), counts.handed.get(stream, Seen()))


def read_on(counts: Counts, stream: str) -> Seen:
    """Return the events of a stream that a group has read from others, by the sums of its records."""
    return _seen(counts.sources[stream].accepted if stream in counts.sources else 0, counts.taken.get(stream, Seen()))


def _seen(events: int, told: Seen) -> Seen:
    return told if told.events == events else Seen(events, UNKNOWN)


def between(handed: Seen, before: Seen, waiting: int, read: Seen) -> Place:
    """Compare the events that were handed on with those that a group has read.

    Args:
        before: those that were handed on before the group was made.
        waiting: how many it is still to read.
    """
    place = Place.of(handed.events - before.events - waiting, read.events)
    known = not waiting and UNKNOWN not in (handed.print, before.print, read.print)
    place.differs = int(known and handed.events - before.events == read.events and handed.less(before).print != read.print)
    return place
