"""Recording every progress report of a session's queries; Spark's `recentProgress` keeps only the last hundred."""

import json
import time
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

Keep = Callable[[dict[str, Any]], None]

EXECUTORS_EVERY_S = 5.0
"""Seconds between two queries for the executors' times."""


class _ProgressListener(StreamingQueryListener):
    """Passes each progress report, as in Spark's JSON, to a function, and ``{"idle": ...}`` while a query is idle."""

    def __init__(self, keep: Keep, spark: SparkSession) -> None:
        self._keep, self._spark = keep, spark
        self._called: Any = None

    @property
    def _jlistener(self) -> Any:
        """The listener that the JVM calls. PySpark uses it if the queries run in this process's JVM (not over Connect).

        PySpark's own listener fetches every figure of a progress report from the JVM, one by one, which takes some 40 ms of
        Python for each micro-batch with state. Fetching the report as JSON takes two calls.
        """
        from pyspark import SparkContext  # missing in a client of Connect alone

        if self._called is None:
            self._called = SparkContext._jvm.PythonStreamingQueryListenerWrapper(_Called(self._keep, self._spark))  # type: ignore[union-attr]
        return self._called

    def onQueryStarted(self, event: Any) -> None:
        """Nothing to record."""

    def onQueryProgress(self, event: Any) -> None:
        """Record the report."""
        self._keep(json.loads(event.progress.json))

    def onQueryIdle(self, event: Any) -> None:
        """Record that the query is idle. Since Spark 3.5 this is no progress report."""
        self._keep(_idle(event.id, event.runId, event.timestamp))

    def onQueryTerminated(self, event: Any) -> None:
        """Nothing to record."""


class _Called:
    """A listener that the JVM calls directly, with its own objects. Passes progress reports to a function."""

    def __init__(self, keep: Keep, spark: SparkSession) -> None:
        self._keep, self._spark = keep, spark
        self._asked = 0.0

    def onQueryStarted(self, event: Any) -> None:
        """Nothing to record."""

    def onQueryProgress(self, event: Any) -> None:
        """Record the report and, every `EXECUTORS_EVERY_S`, the total times of the executors' tasks."""
        progress = json.loads(event.progress().json())
        if time.monotonic() - self._asked > EXECUTORS_EVERY_S:
            self._asked = time.monotonic()
            progress["executors"] = _executors(self._spark)
        self._keep(progress)

    def onQueryIdle(self, event: Any) -> None:
        """Record that the query is idle."""
        self._keep(_idle(event.id().toString(), event.runId().toString(), event.timestamp()))

    def onQueryTerminated(self, event: Any) -> None:
        """Nothing to record."""

    class Java:
        """Tells Py4J which Java interface this class implements."""

        implements = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]


def _executors(spark: SparkSession) -> dict[str, int]:
    """Return the milliseconds of all tasks since the session began, and those of the JVMs' garbage collection."""
    try:
        store = spark._jsc.sc().statusStore()
        summaries = store.executorList(False)
        executors = [summaries.apply(number) for number in range(summaries.size())]
        return {
            "tasksMs": sum(executor.totalDuration() for executor in executors),
            "collectionMs": sum(executor.totalGCTime() for executor in executors),
        }
    except Py4JError:  # the session is being stopped, or this Spark has no such store
        return {}


def _idle(query: object, run: object, timestamp: str) -> dict[str, Any]:
    return {"idle": {"id": str(query), "runId": str(run), "timestamp": timestamp}}


def listen(spark: SparkSession, keep: Keep) -> Callable[[], None]:
    """Pass each progress report of a session's queries to ``keep``. Returns a function that ends this."""
    listener = _ProgressListener(keep, spark)
    spark.streams.addListener(listener)
    return lambda: spark.streams.removeListener(listener)
