"""The options of a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from penstock.errors import ConfigurationError
from penstock.runtime.log import LOG_LEVELS, LogLevel
from penstock.storage.place import path_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


RETAIN = 50_000


@dataclass(frozen=True)
class RunOptions:
    """Options of a run.

    Args:
        name: the name of the run's directory; the application's name unless given.
        runs: the directory in which runs lie, a path or the URI of a store (``s3a://BUCKET/...``, ``hdfs://HOST:PORT/...``).
        take_over: fence off another process of this machine that is running the run, instead of giving up.
        sources, sinks: URIs by name, in place of those that the application declares.
        master: the Spark master.
        partitions: of each keyed hop; the number of cores unless given. A run that was begun with others is moved.
        duration: seconds after which to stop, or None.
        until_idle: stop when every source has been drained. The input has ended then: windows close and timers on event time
            fire, and the run is not started again. With ``"pause"`` they wait, for the run is to go on when there is more.
        fresh: discard everything that an earlier run of this name left, and begin anew.
        report: where to write a copy of the report, or None.
        groups: a group's name by element; all in one group unless given. A run that was begun with others is moved.
        trigger: seconds between the starts of micro-batches; the application's unless given, and 0 starts one as soon as
            the last is over.
        hops: ``kafka:BROKERS``, to join groups by topics; by files unless given.
        checkpoint_every: seconds that a batch lasts in real-time mode.
        archives: packed environments to ship to executors (see the how-to on clusters).
        conf: settings handed to Spark as they are.
        retain: how many micro-batches of each group the recording keeps one by one; older ones are summed up.
        quiet: show no live line.
        log_level: the lowest level of the lines that elements log which is kept in ``elements.log`` of the run's directory;
            lines that they print are kept, too.
        spark: a session to run in, such as a notebook's, which is left running. Otherwise a session is started on ``master``.
    """

    name: str | None = None
    runs: Path | str = Path("runs")
    sources: Mapping[str, str] = field(default_factory=dict)
    sinks: Mapping[str, str] = field(default_factory=dict)
    master: str = "local[*]"
    partitions: int | None = None
    duration: float | None = None
    until_idle: bool | Literal["pause"] = False
    fresh: bool = False
    report: Path | None = None
    groups: Mapping[str, str] = field(default_factory=dict)
    trigger: float | None = None
    hops: str | None = None
    checkpoint_every: float = 300.0
    archives: Sequence[str] = ()
    conf: Mapping[str, str] = field(default_factory=dict)
    retain: int = RETAIN
    quiet: bool = False
    take_over: bool = False
    log_level: LogLevel = "info"
    spark: "SparkSession | None" = None

    def __post_init__(self) -> None:
        if self.log_level not in LOG_LEVELS:
            raise ConfigurationError(f"log_level={self.log_level!r}: choose {', '.join(LOG_LEVELS)}.")

    def directory(self, name: str) -> Path:
        """Return the directory of the run of an application called ``name``.

        Raises:
            ConfigurationError: the run's name cannot be used as the name of a directory.
        """
        own = name if self.name is None else self.name
        if not own or "/" in own or own.startswith(".") or not own.isprintable():
            raise ConfigurationError(f"--name {own!r} must be a plain directory name.")
        return path_of(self.runs) / own
