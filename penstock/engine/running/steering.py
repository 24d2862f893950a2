"""Steering: the interface for code that watches a run from within, and may change its settings while it runs."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from py4j.protocol import Py4JError
from pyspark.sql.streaming.query import StreamingQuery

from penstock.runs.batches import BatchRecord


class Change(NamedTuple):
    """Other settings for a run.

    Args:
        trigger: seconds between the starts of micro-batches.
        why: the reason, as a sentence for the person who watches the run.
        sources: new URIs, by name, of the sources that get another gate; if there are any, the queries are restarted.
    """

    trigger: float
    why: str
    sources: Mapping[str, str] = {}


class Steering(Protocol):
    """The hooks that a run calls while it runs. Calls come from several threads, one after the other."""

    def progressed(self, progress: dict[str, Any]) -> None:
        """Called with each progress report of a query, as Spark's JSON has it."""

    def committed(self, group: str, record: BatchRecord) -> None:
        """Called when a micro-batch has been committed."""

    def wanted(self) -> Change | None:
        """Return the settings to change to, or None; called several times a second."""

    def changed(self, change: Change, *, restarted: bool) -> None:
        """Called when a change has been made, either by restarting the queries or without that."""


def retime(query: StreamingQuery, interval: float) -> bool:
    """Change the trigger interval of a running query, in seconds, from its next micro-batch on.

    Spark has no interface for this, so it sets the field in which Spark's executor of triggers keeps the interval, and which
    that reads before each micro-batch. Returns False if Spark has no such field; then the query must be restarted.
    """
    interval_ms = round(interval * 1000)
    try:
        executor = query._jsq.streamingQuery().triggerExecutor()
        field = executor.getClass().getDeclaredField("intervalMs")
        field.setAccessible(True)
        field.setLong(executor, interval_ms)
        return bool(field.getLong(executor) == interval_ms)
    except (Py4JError, AttributeError):
        return False
