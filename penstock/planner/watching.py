"""Records the progress of any Spark session: one line in a notebook or a job, through Spark's public listener."""

import json
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from penstock.app.duration import Duration, seconds
from penstock.errors import ConfigurationError, SinkError
from penstock.planner.calibration import calibrate
from penstock.planner.observation import Observation, observe
from penstock.planner.prediction import Prediction
from penstock.planner.setting import Setting
from penstock.planner.tuning import Target, Tuning, tune


class Watching:
    """Writes the progress of a session's queries to a file, and observes, predicts and tunes from it; see `watch`.

    Args:
        path: the file of progress as JSON lines, which ``penstock tune`` reads, too.
    """

    def __init__(self, spark: Any, path: Path) -> None:
        from penstock.engine.session.listener import listen  # which needs Spark

        self.path = path
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a", encoding="utf-8")
        except OSError as error:
            raise SinkError(f"The progress cannot be kept in {path} ({error.strerror}); give watch() another path.") from error
        self._silence = listen(spark, self._keep)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def observe(self, query: str | None = None) -> Observation:
        """The observation so far; see `penstock.planner.observe`."""
        return observe(self.path, query=query)

    def predict(self, setting: Setting | None = None, *, query: str | None = None) -> Prediction:
        """Predict a setting at the query's present speed; see `Calibration.predict`."""
        seen = self.observe(query)
        return calibrate(seen).following(seen, now=time.time()).predict(setting)

    def tune(self, *, p95: Duration, query: str | None = None) -> Tuning:
        """Choose the options for a bound on the 95th percentile of the latency."""
        return tune(self.observe(query), Target("p95", seconds(p95)), now=time.time())

    def stop(self) -> None:
        """Stop recording; the file stays."""
        self._silence()
        with self._lock:
            self._file.close()

    def _keep(self, progress: dict[str, Any]) -> None:
        """Write a progress record, or drop it if the disk is full: the query must not suffer, and `observe` notes the gap."""
        with self._lock, suppress(OSError, ValueError):
            self._file.write(json.dumps(progress) + "\n")
            self._file.flush()


def watch(spark: Any, path: str | Path = "progress.jsonl") -> Watching:
    """Record the progress of all streaming queries of a session from now on.

    Args:
        spark: the session.
        path: the file to append to.

    Raises:
        SinkError: the file cannot be written.
        ConfigurationError: ``spark`` is no session.

    Examples:
        In a notebook::

            watching = penstock.watch(spark)
            ...  # the query runs
            watching.tune(p95="5 seconds").options
    """
    if not hasattr(spark, "streams"):
        raise ConfigurationError(f"penstock.watch takes a Spark session, and not {spark!r:.60}: give it spark.")
    return Watching(spark, Path(path))
