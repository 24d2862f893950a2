"""The report of a run: ``report.json``, with all counts and measurements. It is written when the run stops."""

from contextlib import suppress
from pathlib import Path

import msgspec

from penstock.runs.files import REPORT
from penstock.runtime.places import Place
from penstock.storage import durable


class EventCounts(msgspec.Struct, frozen=True, omit_defaults=True):
    """How many source events were processed, failed or wait. In real time, only the first four counts are known."""

    accepted: int
    processed: int
    dead_lettered: int
    queued: int
    uncounted_sources: list[str] | None = None
    lost: int | None = None
    duplicated: int | None = None
    late: int | None = None
    late_in_part: int | None = None
    dead_letters: int | None = None
    refused: int | None = None


class ElementReport(msgspec.Struct, frozen=True):
    """The figures of one element. Service times are in microseconds, by ``mean`` and quantile."""

    events: int
    dead_letters: int
    late: int
    late_in_part: int
    instances: int | None
    service_time_us: dict[str, float | None]


class Report(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The report of a run. Every figure is measured; a run in real time leaves out those that it cannot know.

    Args:
        places: for each path of events, how many left, how many fewer (``missing``) or more (``extra``) arrived, and in how
            many micro-batches other ones arrived (``differs``).
        uncounted: elements within which Spark counts nothing.
        lag: queued rows, by source and partition.
        watermarks: by source, in ISO 8601.
        latency_ms: by quantile, over the ``timed_results``: results that an event caused, not those of timers and windows.
        units: the unit of each figure, in words.
        delivery: in real time, how results are delivered (such as at least once).
    """

    application: str
    engine: str
    master: str
    counts: EventCounts
    places: dict[str, Place] | None = None
    uncounted: list[str] | None = None
    units: dict[str, str]
    lag: dict[str, dict[str, int]] | None = None
    streams: dict[str, int] | None = None
    sinks: dict[str, int] | None = None
    elements: dict[str, ElementReport] | None = None
    watermarks: dict[str, str] | None = None
    throughput_events_per_s: float | msgspec.UnsetType | None = msgspec.UNSET
    latency_ms: dict[str, float | None] | None = None
    timed_results: int | None = None
    batches: int | None = None
    delivery: str | None = None
    dead_letter_topics: list[str] | None = None
    ended: bool | None = None

    def write(self, path: Path, mode: int = durable.PRIVATE) -> None:
        """Write the report to a file, atomically."""
        durable.write(path, msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n", mode)


def report_of_run(run: Path) -> Report | None:
    """Return the report of a run's last stop; None if there is none, or it cannot be parsed."""
    with suppress(FileNotFoundError, ValueError):
        return msgspec.json.decode(durable.read(run / REPORT), type=Report)
    return None
