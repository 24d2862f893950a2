"""The report of a run: ``report.json``, what was counted and measured, written when it stops."""

from contextlib import suppress
from pathlib import Path

import msgspec

from penstock.runs.files import REPORT
from penstock.runtime.places import Place
from penstock.storage import durable


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of source events. In real time only the first four are known, and the others are left out."""

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
    """What an element did; service times in microseconds, by ``mean`` and quantile."""

    events: int
    dead_letters: int
    late: int
    late_in_part: int
    instances: int | None
    service_time_us: dict[str, float | None]


class Report(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The report; every figure in it is measured. What a run in real time does not know is left out.

    Parameters
    ----------
    places: for each way that events go, how many left, and by how many fewer (``missing``), more (``extra``) or other ones
        (``differs``, in micro-batches) came. uncounted: elements within which Spark counts nothing.
    lag: what is queued, by source and partition. watermarks: by source, in ISO 8601.
    latency_ms: by quantile, of ``timed_results``: those that an event caused; results of timers and windows are not. units:
        what the figures are in, in words. delivery: of a run in real time, how its results come.
    """

    application: str
    engine: str
    master: str
    counts: Outcome
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
        """Put it into a file, wholly or not at all."""
        durable.write(path, msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n", mode)


def report_of_run(run: Path) -> Report | None:
    """The report of a run's last stop; None where there is none that is whole."""
    with suppress(FileNotFoundError, ValueError):
        return msgspec.json.decode(durable.read(run / REPORT), type=Report)
    return None
