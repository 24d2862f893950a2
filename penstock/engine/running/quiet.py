"""Runs to which nothing comes, whose sources Spark would ask a hundred times a second.

Without a trigger interval a query asks again 10 ms after it has found nothing. That takes a tenth of a core, half of it for
settings that Spark copies to list a directory. After some seconds of silence the queries get an interval instead, and after a
minute a longer one, until the next micro-batch begins: the first event after a silence waits a little longer, and no other.
"""

import time
from collections.abc import Callable, Iterable

from pyspark.sql.streaming.query import StreamingQuery

from penstock.engine.running.steering import retime

SLOWER = ((60.0, 0.5), (10.0, 0.2))
"""After so many seconds without a micro-batch, the interval in seconds."""


class Quiet:
    """Slows queries that have no trigger interval while no micro-batch begins. Used by two threads."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._slowed: dict[str, float] = {}
        """Intervals of queries by their runs."""

    def look(self, queries: Iterable[StreamingQuery]) -> None:
        """Slow the queries if it has been silent for long; called several times a second."""
        silent = time.monotonic() - self._begun
        interval = next((interval for after, interval in SLOWER if silent > after), None)
        if interval is None:
            return
        for query in queries:
            if interval > self._slowed.get(query.runId, 0.0) and retime(query, interval):
                self._slowed[query.runId] = interval

    def begin(self, query: Callable[[], StreamingQuery]) -> None:
        """A query begins a micro-batch: it is to go on at once."""
        self._begun = time.monotonic()
        if self._slowed:
            woken = query()
            if self._slowed.pop(woken.runId, None):
                retime(woken, 0.0)
