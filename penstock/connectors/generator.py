"""The generator: a source whose events its own ``sample`` function makes, on an open-loop schedule."""

import sys
import time
from typing import Any

import msgspec
import numpy as np

from penstock.app.stream import Source
from penstock.connectors.admission import ADMISSION
from penstock.connectors.declaration import COUNT, NUMBER, WHOLE, Option, Options, SourceConnector, SourceContext
from penstock.connectors.schedule import ArrivalSchedule, RecordedSchedule, schedule_of
from penstock.connectors.sequence import Sequence, SequenceSource, Slice
from penstock.connectors.uri import Uri
from penstock.errors import SourceError
from penstock.kinds.fields import refuse_unwritable
from penstock.runtime.codec import Codec


class GeneratedSequence(Sequence):
    """Events that the source's ``sample`` makes from their numbers, each due by a schedule."""

    def __init__(self, source: Source[Any], schedule: ArrivalSchedule | RecordedSchedule) -> None:
        if source.sample is None:
            raise SourceError(
                f"Source {source.name} has no sample to generate events with: declare app.source(..., sample=function of n)."
            )
        self._sample, self._schedule = source.sample, schedule
        self._codec = Codec(source.event_type)

    def identity(self) -> str:
        return self._schedule.identity()

    def end(self, started: float) -> int:
        return self._schedule.due(time.time() - started)

    def last(self) -> int:
        count = self._schedule.count
        return sys.maxsize if count is None else count  # without a count it never ends, so it is never drained

    def read(self, start: int, end: int, started: float) -> Slice:
        payloads = [self._payload(number) for number in range(start, end)]
        return Slice(payloads, ((started + self._schedule.times(start, end)) * 1e6).astype(np.int64))

    def _payload(self, number: int) -> bytes:
        """Return an event as JSON; for one that does not fit, an error text: it becomes a dead letter."""
        event = self._sample(number)
        try:
            event = self._codec.checked(event)
            refuse_unwritable(event, self._codec.floats)
            return self._codec.encode_json(event)
        except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, NotImplementedError) as error:
            return f"sample({number}) does not fit ({error}): {event!r}".encode()


def _bind(source: Source[Any], uri: Uri, options: Options, context: SourceContext) -> SequenceSource:
    return SequenceSource(source, GeneratedSequence(source, schedule_of(uri, options)), uri, options, context)


GENERATOR = SourceConnector(
    "generator",
    "KIND",
    "events that the source's `sample` makes, on a schedule: `constant`, `poisson`, `bursty` or `recorded`",
    (
        Option("rate", "events per second", NUMBER),
        Option("count", "how many in all; without end unless given", COUNT),
        Option("seed", "of the schedule's random numbers", WHOLE),
        Option("scv", "of `bursty`: squared coefficient of variation of the gaps, above 1", NUMBER),
        Option("times", "of `recorded`: a file of times in seconds, one a line"),
        Option("speed", "of `recorded`: by how much the times are sped up", NUMBER),
        *ADMISSION,
    ),
    bind=_bind,
)
