"""The recording of a run: one directory that serves as report, as test fixture and as bug report."""

import fcntl
import os
import platform
import socket
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import pyspark

import penstock
from penstock.app.state import Schema
from penstock.connectors.source import BoundSource
from penstock.engine.running.discarding import discard
from penstock.engine.running.options import RETAIN
from penstock.engine.running.resuming import is_at, refuse_copied, refuse_no_run, refuse_other
from penstock.engine.session.versions import installed
from penstock.errors import IncompatibleStateError, PenstockError, RunLockedError, SinkError
from penstock.runs.files import CHECKPOINT, HOPS, LOG, MANIFEST, OUTPUT, PROGRESS, REPORT, ledger_of
from penstock.runs.layout import Layout
from penstock.runs.manifest import Driver, Head, Manifest, SinkPlace, head_of, stored_manifest
from penstock.runs.progress import ProgressFile, ProgressSums
from penstock.runs.report import Report
from penstock.runs.starts import Environment, Start, note_start
from penstock.storage import durable
from penstock.storage.alone import alone
from penstock.storage.place import absolute, here_of, is_local
from penstock.storage.reach import check, is_of_store

LOCK_PATIENCE = 30.0
KEPT = ("run", "discarded", "orders", "spark", "ended", "places", "beginnings", "handed", "state", "checkpoints")
"""The fields of the manifest that a run which is resumed has from its earlier starts."""

Inspect = Callable[[str, list[str], Collection[str]], None]
"""Called with the run's identifier, those of discarded runs, and names of sinks claimed before; raises to forbid a start."""


class Recording:
    """The directory ``runs/NAME``; the how-to on recordings describes each file.

    Args:
        retain: how many progress reports are kept one by one.
        take_over: whether to fence off a process on this machine that is running the run, instead of giving up.

    Raises:
        SinkError: the directory cannot be made.
        ConfigurationError: the directory holds other files than those of a run.
        RunLockedError: another process, or a child that it has left, is running this run.
    """

    def __init__(self, directory: Path, retain: int = RETAIN, *, take_over: bool = False) -> None:
        self.directory = absolute(directory)
        self.here = here_of(self.directory)
        """The directory for files that only this machine needs: Spark's log, and the application as it is sent to executors."""
        if not is_local(self.directory):
            check(self.directory, by_spark=True)
        refuse_no_run(self.directory)
        try:
            durable.make_here(self.directory)
            self.log: BinaryIO = durable.private(self.here / LOG, "ab")
        except OSError as error:
            raise SinkError(
                f"The run's directory {self.here} cannot be written ({error.strerror}): choose another place by --runs."
            ) from error
        if take_over:  # the fenced process holds the lock until it ends, and then nobody else is to have it
            threading.Thread(target=self._lock_when_free, daemon=True).start()
        else:
            try:
                self._lock()
            except BaseException:
                self.log.close()
                raise
        self._manifest: Manifest | None = None
        self._state: dict[str, Schema] | None = None
        """The state schemas of today's code while they are not in the manifest yet; None for a new run."""
        self._laid_out: Layout | None = None
        """The layout of the stored run as it was first read, which this start is bound to."""
        self._turn = threading.Lock()
        self._retain = retain
        self._driver = Driver(uuid.uuid4().hex, socket.gethostname(), os.getpid(), time.time())

    @property
    def manifest(self) -> Manifest:
        """The manifest, which is kept from one start to the next. Available after `prepare`."""
        assert self._manifest is not None
        return self._manifest

    @property
    def checkpoints(self) -> Path:
        """The directory of Spark's checkpoints, one for each query; before `prepare`, that of the stored run."""
        manifest = self._manifest or self.stored()
        return self.directory / (CHECKPOINT if manifest is None else manifest.checkpoints)

    def checkpoint(self, group: str) -> Path:
        """Return the path of a group's Spark checkpoint."""
        return self.checkpoints / group

    def ledger(self, group: str) -> Path:
        """Return the path of a group's ledger."""
        return ledger_of(self.directory, group)

    @property
    def hops(self) -> Path:
        """The directory of the streams between groups, with a subdirectory for each."""
        return self.directory / HOPS

    @property
    def output(self) -> Path:
        """The directory to which sinks without a URI write."""
        return self.directory / OUTPUT

    def stored(self) -> Manifest | None:
        """Return the manifest of the run that can be resumed; None if there is none."""
        stored = stored_manifest(self.directory)
        if stored is None or stored.discarding:
            return None
        self._laid_out = self._laid_out or stored.layout
        return stored

    def prepare(self, manifest: Manifest, *, fresh: bool, inspect: Inspect) -> bool:
        """Begin a run, or resume it; returns whether it is resumed.

        Args:
            manifest: the properties of this start that must not change: topology, state, sources, parameters, groups.
            fresh: discard the earlier run.
            inspect: may refuse the start by raising, before anything is changed.

        Raises:
            IncompatibleStateError, ConfigurationError: the earlier run does not fit; nothing was changed.
            RunLockedError: another driver has begun the run at the same time.
        """
        manifest_before = self._manifest_now()
        earlier, stored = head_of(self.directory), None if fresh else self.stored()
        if stored is not None and stored.layout != self._laid_out:
            raise self._begun_by_another()
        if earlier is not None:
            refuse_copied(self.directory, earlier)
        if stored is not None:
            refuse_other(self.directory, stored, manifest)
            manifest.place = stored.place if is_at(self.directory, stored.place) else str(self.directory)
            self._state = manifest.state
            for name in KEPT:
                setattr(manifest, name, getattr(stored, name))
            inspect(manifest.run, manifest.discarded, manifest.places)
        else:
            manifest.place = str(self.directory)
            manifest.run, manifest.discarded = _identity(earlier)
            if earlier is not None:
                manifest.checkpoints = f"{CHECKPOINT}-{manifest.run[:8]}"
            inspect(manifest.run, manifest.discarded, ())
        manifest.driver, manifest.discarding = self._driver, stored is None and earlier is not None
        with alone(self.directory / MANIFEST):
            if self._manifest_now() != manifest_before:
                raise self._begun_by_another()
            manifest.write(self.directory)
            if manifest.discarding:  # written to the manifest first, so that the next start goes on after a kill
                discard(self.directory, self.here, manifest.discarded)
                manifest.discarding = False
                manifest.write(self.directory)
            self._progress = ProgressFile(self.directory / PROGRESS, self._retain)
        self._manifest = manifest
        return stored is not None

    def _begun_by_another(self) -> RunLockedError:
        return RunLockedError(
            f"Another driver has begun {self.directory.name}, or moved it, at this moment: go on with that one, or start this "
            "again."
        )

    def _manifest_now(self) -> bytes | None:
        with suppress(FileNotFoundError):
            return durable.read(self.directory / MANIFEST)
        return None

    def keep(self, **changes: Any) -> None:
        """Change fields of the manifest: on disk, and only then for who asks this process."""
        self._change(lambda manifest: changes)

    def _change(self, changes: Callable[[Manifest], dict[str, Any]]) -> None:
        """Change fields of the manifest to what follows from the present ones, which no other thread changes meanwhile."""
        with self.held():
            changed = msgspec.structs.replace(self.manifest, **changes(self.manifest))
            changed.write(self.directory)
            self._manifest = changed

    def fix_state(self) -> None:
        """Record the state schemas of today's code. Called just before it commits state: until then, old code could go on."""
        if self._state is not None and self._state != self.manifest.state:
            self.keep(state=self._state)

    def fix_order(self, group: str, sources: list[str]) -> None:
        """Record the order in which a group's query reads its sources, by which Spark's checkpoint identifies them.

        Raises:
            IncompatibleStateError: an earlier start has read them in another order.
        """
        known = self.manifest.orders.get(group, sources)
        if known != sources:
            raise IncompatibleStateError(
                f"The query of {group} has read {', '.join(known)} in this order when this run began, and now reads "
                f"{', '.join(sources)}; Spark knows them by their order: join them as before, or start afresh with --fresh, "
                f"or under another --name than {self.directory.name}."
            )
        spark = installed().version
        self._change(lambda manifest: {"orders": {**manifest.orders, group: sources}, "spark": spark})

    def places_of(self, sinks: Mapping[str, str], committed: Mapping[str, int]) -> dict[str, dict[str, int]]:
        """Record the places of sinks. Returns, by sink and group, the last batch that went to the sink's former place.

        Args:
            sinks: the present place of each sink, by name.
            committed: the last committed batch of each group, in the sinks' numbering.
        """
        before = self.manifest.places
        places = dict(before)
        for name, place in sinks.items():
            if name not in before or before[name].place != place:
                places[name] = SinkPlace(place, dict(committed) if name in before else {})
        if places != before:
            self.keep(places=places)
        return {name: places[name].since for name in sinks}

    def beginning(self, bound: BoundSource, started_us: int) -> Any:
        """Return the recorded position at which the run began to read a source, which the source tells at the first start."""
        name = bound.source.name
        beginning = self.manifest.beginnings.get(name)
        if beginning is None:
            beginning = bound.beginning(started_us)
            if beginning is not None:
                self._change(lambda manifest: {"beginnings": {**manifest.beginnings, name: beginning}})
        return beginning

    @property
    def ended(self) -> bool:
        """Whether the input has ended. If so at a start, an earlier one was killed before it had written its report."""
        return self.manifest.ended

    def note_end(self) -> None:
        """Record that the input has ended, after which no event can be read."""
        self.keep(ended=True)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Within the block, no other driver of this machine takes the run over: it waits, even for one that is paused there.

        Raises:
            RunLockedError: another driver has taken the run over.
        """
        if is_local(self.directory) and not self.directory.exists():
            raise RunLockedError(
                f"{self.directory} is gone: it was moved or removed, so this driver has stopped and commits nothing more. "
                "Where it was moved, nothing is lost: move it back, and start the run again."
            )
        with self._turn, alone(self.directory / MANIFEST):  # the former, as its threads wait for each other, however long
            self.refuse_taken_over()
            yield

    def refuse_taken_over(self) -> None:
        """Check that no other driver has taken the run over. This fences the files besides the ledger, which fences itself.

        Raises:
            RunLockedError: another driver has taken the run over.
        """
        stored = stored_manifest(self.directory)
        now = None if stored is None else stored.driver
        if now is not None and now.id != self._driver.id:
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now.since))
            raise RunLockedError(
                f"Another driver has taken over {self.directory.name} (process {now.process} on {now.host}, {since}), so this "
                "one has stopped and commits nothing more. Nothing is lost: the other goes on."
            )

    def note_start(self, start: Callable[[float, Environment], Start]) -> None:
        """Record a start, or a change of settings during one, with its time and environment."""
        environment = Environment(
            penstock.__version__, pyspark.__version__, platform.python_version(), platform.platform(), os.cpu_count()
        )
        with self.held():
            note_start(self.directory, start(time.time(), environment))

    def note_progress(self, progress: dict[str, Any]) -> None:
        """Record a progress report of Spark."""
        self._progress.note(progress)

    def progress(self) -> ProgressSums:
        """Return the sums over all progress reports of the run."""
        return self._progress.sums()

    def write_report(self, report: Report, copy: Path | None) -> None:
        """Write ``report.json``, and a copy to another file if one is requested.

        Raises:
            RunLockedError: another driver has taken the run over.
            SinkError: the copy cannot be written.
        """
        report.ended = self.ended
        with self.held():
            report.write(self.directory / REPORT)
            if copy is not None:
                try:
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    report.write(copy, mode=0o666)
                except OSError as error:
                    raise SinkError(f"The report cannot be written to {copy} ({error.strerror}).") from error

    def release(self) -> None:
        """Release the run for other processes. Called when all work of this one has ended."""
        if self._manifest is not None and not is_local(self.directory):  # the lock works on this machine only
            try:
                self._driver.released = time.time()
                self.keep()
            except Exception as error:  # the failure that stopped the run must be reported, not this one
                if not (isinstance(error, PenstockError) or is_of_store(error)):
                    raise
        fcntl.flock(self.log, fcntl.LOCK_UN)
        self.log.close()

    def _lock_when_free(self) -> None:
        with suppress(OSError, ValueError):  # the log is closed meanwhile
            fcntl.flock(self.log, fcntl.LOCK_EX)

    def _lock(self) -> None:
        """Lock the log file. Spark's JVM and workers inherit it, so a driver that was killed holds
        the lock until the last of them is gone, and no two write to one checkpoint."""
        deadline = time.monotonic() + LOCK_PATIENCE
        while True:
            try:
                fcntl.flock(self.log, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise RunLockedError(
                        f"Another process is running {self.directory.name} (it holds {self.log.name}); stop it, give "
                        "this run another --name, or fence that process off with --take-over."
                    ) from None
                time.sleep(0.2)


def _identity(earlier: Head | None) -> tuple[str, list[str]]:
    """Return the identifier of a run that begins anew, and the identifiers of the runs that it discards."""
    if earlier is None:
        return uuid.uuid4().hex, []
    if earlier.discarding:
        return earlier.run, earlier.discarded
    return uuid.uuid4().hex, [earlier.run, *earlier.discarded]
