"""A keyed hop on Spark: one group of rows per partition, whose containers keep pages in the state store."""

import math
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues

from penstock.app.topology import Topology
from penstock.errors import TopologyError
from penstock.runtime.arrivals import ArrivedBlocks
from penstock.runtime.hop import Hop
from penstock.runtime.log import listen
from penstock.runtime.output import FileOutput
from penstock.runtime.stage import Stage
from penstock.runtime.wire import CLOCK
from penstock.runtime.wiring import Wiring, WiringReference

if TYPE_CHECKING:
    import pandas as pd  # Spark starts a process for each hop that declares its state only, and pandas is half of its imports


def time_mode_of(topology: Topology, hop: int) -> str:
    """Return Spark's time mode of a hop, which says which clock its timers follow.

    Raises:
        TopologyError: the hop's elements need both clocks, which Spark cannot give to one operator.
    """
    processing: list[str] = []
    event: list[str] = []
    for element in topology.elements:
        if element.keyed and element.has_timers and topology.depths[element.name] == hop:
            (event if element.timers == "event" else processing).append(element.name)
    judged = any(source.event_time is not None for source in topology.sources)
    if processing and (event or (judged and hop == 1)):
        other = f"{event[0]} has timers on event time" if event else "its source declares an event time"
        raise TopologyError(
            f"Element {processing[0]} has timers on processing time, but in the same hop {other}: use timers='event' for "
            "it, or put it behind another keyed element."
        )
    return "ProcessingTime" if processing else "EventTime" if event or judged else "None"


class PagesInState:
    """The map of pages in the state store; implements `penstock.runtime.pages.PageStore`."""

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        self._pages = handle.getMapState("pages", "element string, page int", "content binary")

    def get(self, element: str, page: int) -> bytes | None:
        """Return the bytes of a page; None if there is no such page."""
        row = self._pages.getValue((element, page))
        return None if row is None else bytes(row[0])

    def put(self, element: str, page: int, content: bytes) -> None:
        """Write a page."""
        self._pages.updateValue((element, page), (content,))


class HopProcessor(StatefulProcessor):
    """Runs the containers of a hop in one partition, which is identified by its label (see `bucket_labels`)."""

    def __init__(self, reference: WiringReference, hop: int, labels: tuple[int, ...]) -> None:
        self._reference, self._hop, self._labels = reference, hop, labels

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called by Spark, once for each partition and batch."""
        self._handle = handle
        self._store = PagesInState(handle)
        self._timer = handle.getValueState("timer", "due bigint")
        self._expired = False
        """Whether Spark's timer has expired; Spark deletes it after this call."""

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: TimerValues) -> Iterator["pd.DataFrame"]:
        """Called by Spark with all rows of a partition."""
        wiring = self._reference.resolve()
        arrivals = ArrivedBlocks(wiring, _local_directory())
        now = 0.0
        for frame in rows:
            hop = frame["hop"]
            for moment in frame.loc[hop == CLOCK, "block"]:
                now = int.from_bytes(moment, "little") / 1e6
            for block in frame.loc[hop == self._hop, "block"]:
                arrivals.add(block)
            passing = (hop != self._hop) & ((hop != CLOCK) | (self._hop < wiring.hops))
            if passing.any():
                yield frame.loc[passing].drop(columns=["label"])
        yield from self._run(self._stage(wiring, key), arrivals, timerValues, now)

    def handleExpiredTimer(self, key: Any, timerValues: TimerValues, expiredTimerInfo: Any) -> Iterator["pd.DataFrame"]:
        """Called by Spark for a partition whose timer has expired."""
        wiring = self._reference.resolve()
        stage = self._stage(wiring, key, "-timer")
        if self._hop < wiring.hops:
            moment = timerValues.getCurrentProcessingTimeInMs() * 1000
            stage.outbox.tell_time(moment, wiring.partitions)
        self._expired = True
        yield from self._run(stage, ArrivedBlocks(wiring), timerValues, 0.0)

    def close(self) -> None:
        """Called by Spark at the end; there is nothing to release."""

    def _stage(self, wiring: Wiring, key: Any, call: str = "") -> Stage:
        """Make the stage of a partition. ``call`` distinguishes the files of several calls in one micro-batch."""
        listen(self._reference.log_level)
        partition = self._labels.index(int(key[0]))
        output = FileOutput(wiring.sinks, f"{self._hop}-{partition:05d}{call}")
        return Stage(wiring, self._hop, partition, output)

    def _run(self, stage: Stage, arrivals: ArrivedBlocks, timers: TimerValues, now: float) -> Iterator["pd.DataFrame"]:
        processing_ms, watermark_ms = timers.getCurrentProcessingTimeInMs(), timers.getCurrentWatermarkInMs()
        if processing_ms > 0:
            now = processing_ms / 1000
        watermark = watermark_ms / 1000 if watermark_ms > 0 else None
        hop = Hop(stage, arrivals, self._store, now, watermark)
        for rows in hop.run():
            yield rows.to_pandas()
        mode = time_mode_of(stage.wiring.topology, self._hop)
        if mode != "None":
            clock = processing_ms if mode == "ProcessingTime" else watermark_ms
            self._set_timer(None if hop.due is None else math.ceil(hop.due * 1000), clock)

    def _set_timer(self, due: int | None, clock: int = 0) -> None:
        """Register Spark's timer for a time in ms; where it has expired, for a time after ``clock``, as it is deleted then."""
        stored = self._timer.get()
        current = None if stored is None else stored[0]
        if self._expired:
            due = None if due is None else max(due, clock + 1)
        if due == current:
            return
        if current is not None and not self._expired:
            self._handle.deleteTimer(current)
        if due is None:
            self._timer.clear()
        else:
            self._handle.registerTimer(due)
            self._timer.update((due,))


def _local_directory() -> str | None:
    """Return a directory where Spark lets this worker keep files until the application ends; None if it names none."""
    return os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0] or None
