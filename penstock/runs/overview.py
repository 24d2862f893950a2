"""A summary of a run from its directory, without Spark: its state, its progress, and the latency of its results."""

import fcntl
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from socket import gethostname
from typing import Any, Literal

from penstock.connectors.checkpoint import last_commit
from penstock.errors import SourceError
from penstock.runs.batches import BatchRecord, records_in
from penstock.runs.files import LOG, REPORT
from penstock.runs.manifest import Manifest, is_run, manifest_of
from penstock.runs.report import EventCounts, report_of_run
from penstock.runs.starts import last_start
from penstock.runtime.histogram import Histogram
from penstock.storage import durable
from penstock.storage.place import here_of, is_local
from penstock.storage.reach import check, reaching

RECENT_S = 60.0
"""Rate and latency cover the micro-batches that were committed within this many seconds before the last one."""


@dataclass(frozen=True)
class Overview:
    """A run at a glance; everything is measured.

    Args:
        state: ``running``; ``stopped``, and may be resumed; ``ended``, as its input has ended.
        last_commit: seconds since the epoch.
        batches: number of committed micro-batches of all groups.
        accepted, dead_lettered: source events in committed micro-batches. For a run in real time: the counts of its last stop,
            or None if it has gone on since.
        rate: source events per second, and p50_s, p95_s: latency of results in seconds, over the last `RECENT_S`; None where
            too few micro-batches were committed, and in real time.
    """

    name: str
    application: str
    state: Literal["running", "stopped", "ended"]
    last_commit: float | None
    batches: int
    accepted: int | None
    dead_lettered: int | None
    rate: float | None
    p50_s: float | None
    p95_s: float | None
    trigger_s: float | None

    def to_json(self) -> dict[str, Any]:
        """Return the fields as `penstock status --json` prints them."""
        return {"kind": "measured", **asdict(self)}


def runs_in(directory: Path) -> list[Path]:
    """Return the paths of the runs in a directory, sorted by name.

    Raises:
        SourceError: the directory has no run.
    """
    if not is_local(directory):
        check(directory)
    with reaching(directory):
        runs = sorted(directory / name for name in durable.names(directory) if is_run(directory / name))
    if is_local(directory) and directory.exists() and not directory.is_dir():
        raise SourceError(f"{directory} is no directory: name the one where runs lie.")
    if not runs:
        raise SourceError(f"There is no run in {directory}: start one with `penstock run`, or name another with --runs.")
    return runs


def overview(run: Path) -> Overview:
    """Summarize a run.

    Raises:
        SourceError: the directory is not that of a run, or cannot be read.
    """
    manifest = manifest_of(run)
    try:
        if manifest.is_real_time:
            return _in_real_time(run, manifest)
        ledgers = [list(records_in(path)) for path in durable.matching(run, "batches-*.jsonl")]
        start = last_start(run)
    except OSError as error:
        raise SourceError(f"{run} cannot be read ({error}).") from error
    committed = (record for ledger in ledgers for record in ledger if not record.moved)
    records = sorted(committed, key=lambda record: record.committed_us)
    last = max((record.committed_us for record in records), default=None)
    # Summed records are left out, as they cover too long a time. The rate leaves out the first batch, whose start is unknown.
    single = [record for record in records if not record.summed]
    recent = [record for record in single if last is not None and record.committed_us > last - RECENT_S * 1e6]
    span = (recent[-1].committed_us - recent[0].committed_us) / 1e6 if recent else 0.0
    names = set(manifest.sources)
    latency = Histogram()
    for record in recent:
        latency.merge(record.latency_ms)
    p50, p95 = (None if (value := latency.quantile(p)) is None else value / 1e3 for p in (0.5, 0.95))
    return Overview(
        name=run.name,
        application=manifest.application,
        state=state_of(run, manifest),
        last_commit=None if last is None else last / 1e6,
        batches=sum(record.batches for record in records),
        accepted=_accepted(records, names),
        dead_lettered=sum(record.dead_lettered for record in records),
        rate=_accepted(recent[1:], names) / span if span else None,
        p50_s=p50,
        p95_s=p95,
        trigger_s=None if start is None else start.trigger,
    )


def counted_in_real_time(run: Path, manifest: Manifest) -> EventCounts | None:
    """Return the counts of the last stop of a run in real time; None if a query has committed since."""
    report = report_of_run(run)
    if report is None:
        return None
    counted = (run / REPORT).stat().st_mtime
    return report.counts if all(moment <= counted for _, moment in _commits(run, manifest)) else None


def _commits(run: Path, manifest: Manifest) -> list[tuple[int, float]]:
    """Return the last micro-batch of each query in real time, with the time of its commit in seconds since the epoch."""
    checkpoints = run / manifest.checkpoints
    last_commits = (last_commit(checkpoints / query) for query in durable.names(checkpoints))
    return [last for last in last_commits if last is not None]


def _in_real_time(run: Path, manifest: Manifest) -> Overview:
    commits, state, counts = _commits(run, manifest), state_of(run, manifest), counted_in_real_time(run, manifest)
    valid_counts = None if state == "running" else counts
    return Overview(
        name=run.name,
        application=manifest.application,
        state=state,
        last_commit=max((moment for _, moment in commits), default=None),
        batches=sum(batch + 1 for batch, _ in commits),
        accepted=None if valid_counts is None else valid_counts.accepted,
        dead_lettered=None if valid_counts is None else valid_counts.dead_lettered,
        rate=None,
        p50_s=None,
        p95_s=None,
        trigger_s=None,
    )


def _accepted(records: list[BatchRecord], sources: set[str]) -> int:
    return sum(tally.accepted for record in records for name, tally in record.sources.items() if name in sources)


def state_of(run: Path, manifest: Manifest) -> Literal["running", "stopped", "ended"]:
    """Tell whether a run is running by the lock on its log, which its processes hold until they end; for a run in a store
    whose driver is on another machine, by whether the driver has released the run."""
    with suppress(FileNotFoundError), (here_of(run) / LOG).open("rb") as log:
        try:
            fcntl.flock(log, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared, so that two observers do not take each other for the run
        except OSError:  # it is held, or the file system cannot tell
            return "running"
    driver = manifest.driver
    if not is_local(run) and driver is not None and driver.host != gethostname() and not driver.released:
        return "running"
    return "ended" if manifest.ended else "stopped"
