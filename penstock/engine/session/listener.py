"""Keeping every progress of a session's queries, for `recentProgress` forgets all but the last hundred."""

import json
import time
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

Keep = Callable[[dict[str, Any]], None]

EXECUTORS_EVERY_S = 5.0
"""How often the executors' times are asked for."""


class _ProgressListener(StreamingQueryListener):
    """Hands each progress on, as Spark's JSON says it, and ``{"idle": ...}`` from time to time where there is none."""

    def __init__(self, keep: Keep, spark: SparkSession) -> None:
        self._keep, self._spark = keep, spark
        self._called: Any = None

    @property
    def _jlistener(self) -> Any:
        """What the JVM calls, which PySpark asks for where queries run in a JVM of this process (not over Connect).

        PySpark's own asks the JVM for every figure of every progress, one by one: some 40 ms of Python for each
        micro-batch with state. The progress as JSON is two questions.
        """
        from pyspark import SparkContext  # which a client of Connect alone has not

        if self._called is None:
            self._called = SparkContext._jvm.PythonStreamingQueryListenerWrapper(_Called(self._keep, self._spark))  # type: ignore[union-attr]
        return self._called

    def onQueryStarted(self, event: Any) -> None:
        """Nothing to keep."""

    def onQueryProgress(self, event: Any) -> None:
        """Keep it."""
        self._keep(json.loads(event.progress.json))

    def onQueryIdle(self, event: Any) -> None:
        """Keep that there was nothing to do, which since Spark 3.5 is no progress."""
        self._keep(_idle(event.id, event.runId, event.timestamp))

    def onQueryTerminated(self, event: Any) -> None:
        """Nothing to keep."""


class _Called:
    """Keeps progresses of the events that the JVM hands over, for a listener that Java calls."""

    def __init__(self, keep: Keep, spark: SparkSession) -> None:
        self._keep, self._spark = keep, spark
        self._asked = 0.0

    def onQueryStarted(self, event: Any) -> None:
        """Nothing to keep."""

    def onQueryProgress(self, event: Any) -> None:
        """Keep it, and with it now and then what the executors' tasks have taken so far."""
        progress = json.loads(event.progress().json())
        if time.monotonic() - self._asked > EXECUTORS_EVERY_S:
            self._asked = time.monotonic()
            progress["executors"] = _executors(self._spark)
        self._keep(progress)

    def onQueryIdle(self, event: Any) -> None:
        """Keep that there was nothing to do."""
        self._keep(_idle(event.id().toString(), event.runId().toString(), event.timestamp()))

    def onQueryTerminated(self, event: Any) -> None:
        """Nothing to keep."""

    class Java:
        """What Py4J makes of it."""

        implements = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]


def _executors(spark: SparkSession) -> dict[str, int]:
    """Milliseconds of all tasks since the session began, and how many of them the JVMs' garbage collection took."""
    try:
        store = spark._jsc.sc().statusStore()
        summaries = store.executorList(False)
        each = [summaries.apply(number) for number in range(summaries.size())]
        return {"tasksMs": sum(one.totalDuration() for one in each), "collectionMs": sum(one.totalGCTime() for one in each)}
    except Py4JError:  # the session is being stopped, or a Spark that has no such store
        return {}


def _idle(query: object, run: object, timestamp: str) -> dict[str, Any]:
    return {"idle": {"id": str(query), "runId": str(run), "timestamp": timestamp}}


def listen(spark: SparkSession, keep: Keep) -> Callable[[], None]:
    """Hand on each progress of a session's queries from now on; returns what ends that."""
    listener = _ProgressListener(keep, spark)
    spark.streams.addListener(listener)
    return lambda: spark.streams.removeListener(listener)
