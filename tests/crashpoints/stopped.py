"""Runs an application with the stand-in for Spark while a delivery fails just when the driver stops the query.

The arguments are a directory, and when: at the ``end`` of the input, or at a ``change`` of the sources. Prints the failure.
"""

import json
import sys
from pathlib import Path
from typing import Any

from crashpoints.standin import Query, Session, stand_in

from penstock.app.loader import load_app
from penstock.connectors.files.sink import DirectorySink
from penstock.engine import RunOptions, run
from penstock.engine.running import microbatches
from penstock.engine.running.steering import Change
from penstock.errors import RunFailedError, SinkError

APP = """
from datetime import datetime

from penstock import App, Event, Tumbling, reducers


class Word(Event):
    number: int
    at: datetime


class Count(Event):
    number: int
    seen: int


app = App("stopped")
words = app.source("Words", Word, event_time="at", lateness="10 s")
app.sink("Out", words)
counts = app.stream("Counts", Count)
app.aggregate(words, key="number", window=Tumbling("60 s"), into=counts, seen=reducers.count())
app.sink("Windows", counts)
"""


class Changing:
    """Steering that starts the queries anew, once."""

    def __init__(self, uri: str) -> None:
        self._change: Change | None = Change(0.0, "why", {"Words": uri})

    def progressed(self, progress: dict[str, Any]) -> None:
        pass

    def committed(self, group: str, record: Any) -> None:
        pass

    def wanted(self) -> Change | None:
        change, self._change = self._change, None
        return change

    def changed(self, change: Change, *, restarted: bool) -> None:
        pass


def main() -> None:
    place, moment = Path(sys.argv[1]), sys.argv[2]
    stand_in()
    (place / "in").mkdir()
    (place / "app.py").write_text(APP)
    app, reference = load_app(f"{place / 'app.py'}:app")
    stop, deliver, status = microbatches._stop_between, DirectorySink.deliver, Query.status.fget
    failing, stopping = [False], [False]

    def put(first: int) -> None:
        lines = [json.dumps({"number": number, "at": "2026-01-01T00:00:00Z"}) for number in range(first, first + 3)]
        (place / "in" / f"{first}.jsonl").write_text("\n".join(lines) + "\n")

    def stop_late(query: Any, *patience: float) -> None:
        """A micro-batch has just begun, as Spark's may have."""
        put(10)
        failing[0] = stopping[0] = True
        stop(query, *patience)
        stopping[0] = False

    def asked(query: Query) -> Any:
        if stopping[0]:
            query._step()
        return status(query)

    def deliver_once(sink: DirectorySink, *given: Any) -> None:
        if failing[0] and sink.files.role == "sink":
            failing[0] = False
            raise SinkError("the sink does not answer")
        deliver(sink, *given)

    microbatches._stop_between, DirectorySink.deliver = stop_late, deliver_once  # type: ignore[method-assign]
    Query.status = property(asked)  # type: ignore[assignment, method-assign]
    put(0)
    uri = f"jsonl:{place / 'in'}"
    options = RunOptions(
        name="run",
        runs=place,
        quiet=True,
        spark=Session(),
        sources={"Words": uri},
        partitions=2,
        until_idle=True if moment == "end" else "pause",
    )
    steering = Changing(uri) if moment == "change" else None
    try:
        run(app, options, application=reference, steering=steering)
    except RunFailedError as error:
        print(error)
    microbatches._stop_between = stop
    done = run(app, options, application=reference)
    print(json.dumps([sorted(event.number for event in done.output("Out")), done.report["counts"]["lost"]]))


if __name__ == "__main__":
    main()
