"""Steering: whoever watches a run from within it, and may change its settings while it is on."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from py4j.protocol import Py4JError
from pyspark.sql.streaming.query import StreamingQuery

from penstock.runs.batches import BatchRecord


class Change(NamedTuple):
    """Other settings for a run.

    Parameters
    ----------
    trigger: seconds between the starts of micro-batches.
    why: for who watches the run, in a sentence.
    sources: URIs by name, of those that are to be read with another gate; for these the queries start anew.
    """

    trigger: float
    why: str
    sources: Mapping[str, str] = {}


class Steering(Protocol):
    """What a run tells, and asks. Called from several threads, one after the other."""

    def progressed(self, progress: dict[str, Any]) -> None:
        """A query has reported progress, in Spark's words."""

    def committed(self, group: str, record: BatchRecord) -> None:
        """A micro-batch has been committed."""

    def wanted(self) -> Change | None:
        """Other settings from now on, or None; asked several times a second."""

    def changed(self, change: Change, *, restarted: bool) -> None:
        """It has been done, with the queries started anew or without."""


def retime(query: StreamingQuery, interval: float) -> bool:
    """Give a query that runs another trigger interval, seconds, from its next micro-batch on.

    Spark offers no way to: its executor of triggers keeps the interval in a field that it reads before each micro-batch, which
    is set here. Returns False, and has changed nothing, where Spark has no such field; then the query must be started anew.
    """
    wanted = round(interval * 1000)
    try:
        executor = query._jsq.streamingQuery().triggerExecutor()
        field = executor.getClass().getDeclaredField("intervalMs")
        field.setAccessible(True)
        field.setLong(executor, wanted)
        return bool(field.getLong(executor) == wanted)
    except (Py4JError, AttributeError):
        return False
