"""Slows the polling of idle runs, whose sources Spark would poll a hundred times a second.

Without a trigger interval, a query polls its sources again 10 ms after it has found no data. That takes a tenth of a core, half
of it for settings that Spark copies to list a directory. After some seconds without data the queries get an interval, and after
a minute a longer one, until the next micro-batch begins. Only the first event after an idle time waits a little longer.
"""

import time
from collections.abc import Callable, Iterable

from pyspark.sql.streaming.query import StreamingQuery

from penstock.engine.running.steering import retime

SLOWER = ((60.0, 0.5), (10.0, 0.2))
"""Pairs of seconds without a micro-batch and the trigger interval from then on, in seconds."""


class Quiet:
    """Slows queries that have no trigger interval while no micro-batch begins. Used by two threads."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._slowed: dict[str, float] = {}
        """The intervals of slowed queries in seconds, by Spark's run identifier."""

    def look(self, queries: Iterable[StreamingQuery]) -> None:
        """Slow the queries if none has begun a micro-batch for long; called several times a second."""
        silent = time.monotonic() - self._begun
        interval = next((interval for after, interval in SLOWER if silent > after), None)
        if interval is None:
            return
        for query in queries:
            if interval > self._slowed.get(query.runId, 0.0) and retime(query, interval):
                self._slowed[query.runId] = interval

    def begin(self, query: Callable[[], StreamingQuery]) -> None:
        """Note that a query begins a micro-batch, and remove the interval that it was given."""
        self._begun = time.monotonic()
        if self._slowed:
            woken = query()
            if self._slowed.pop(woken.runId, None):
                retime(woken, 0.0)
