"""Keeping every progress of a session's queries, for `recentProgress` forgets all but the last hundred."""

import json
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener


class _ProgressListener(StreamingQueryListener):
    """Hands each progress on, as Spark's JSON says it, and ``{"idle": ...}`` from time to time where there is none."""

    def __init__(self, keep: Callable[[dict[str, Any]], None]) -> None:
        self._keep = keep

    def onQueryStarted(self, event: Any) -> None:
        """Nothing to keep."""

    def onQueryProgress(self, event: Any) -> None:
        """Keep it."""
        self._keep(json.loads(event.progress.json))

    def onQueryIdle(self, event: Any) -> None:
        """Keep that there was nothing to do, which since Spark 3.5 is no progress."""
        self._keep({"idle": {"id": str(event.id), "runId": str(event.runId), "timestamp": event.timestamp}})

    def onQueryTerminated(self, event: Any) -> None:
        """Nothing to keep."""


def listen(spark: SparkSession, keep: Callable[[dict[str, Any]], None]) -> Callable[[], None]:
    """Hand on each progress of a session's queries from now on; returns what ends that."""
    listener = _ProgressListener(keep)
    spark.streams.addListener(listener)
    return lambda: spark.streams.removeListener(listener)
