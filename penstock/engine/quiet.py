"""Runs to which nothing comes: Spark asks their sources a hundred times a second, where five times are enough.

Without a trigger interval a query asks again 10 ms after it has found nothing. That takes a tenth of a core, half of it for
settings that Spark copies to list a directory. After some seconds of silence the queries get an interval instead, until the next
micro-batch begins: the first event after a silence waits a little longer, and no other.
"""

import time
from collections.abc import Callable, Iterable

from pyspark.sql.streaming.query import StreamingQuery

from penstock.engine.steering import retime

SILENT_S = 10.0
"""Without a micro-batch."""
INTERVAL_S = 0.2


class Quiet:
    """Slows queries that have no trigger interval while no micro-batch begins. Used by two threads."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._slowed = set[str]()

    def look(self, queries: Iterable[StreamingQuery]) -> None:
        """Slow the queries if it has been silent for long; called several times a second."""
        if time.monotonic() - self._begun > SILENT_S:
            for query in queries:
                if query.runId not in self._slowed and retime(query, INTERVAL_S):
                    self._slowed.add(query.runId)

    def begin(self, query: Callable[[], StreamingQuery]) -> None:
        """A query begins a micro-batch: it is to go on at once."""
        self._begun = time.monotonic()
        if self._slowed:
            woken = query()
            if woken.runId in self._slowed:
                self._slowed.discard(woken.runId)
                retime(woken, 0.0)
