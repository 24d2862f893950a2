"""The recording of a run: one directory that is report, fixture and bug report at once."""

import fcntl
import json
import os
import platform
import socket
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import pyspark

import penstock
from penstock.app.state import check_state_fits
from penstock.engine.options import RETAIN
from penstock.engine.overview import mode_of
from penstock.engine.progress import ProgressFile, Sums
from penstock.errors import ConfigurationError, IncompatibleStateError, PenstockError, RunLockedError, SinkError
from penstock.storage import durable, journal
from penstock.storage.place import absolute, here_of, is_local, make_here
from penstock.storage.reach import check, is_of_store

LOCK_PATIENCE = 30.0


class Recording:
    """The directory ``runs/NAME``; see the how-to on recordings for what each file holds.

    Parameters
    ----------
    retain: how many micro-batches are kept one by one.
    take_over: whether to fence off a process on this machine that is running the run, instead of giving up.

    Raises
    ------
    SinkError: the directory cannot be made.
    RunLockedError: another process, or what is left of one, is running this run.
    """

    def __init__(self, directory: Path, retain: int = RETAIN, *, take_over: bool = False) -> None:
        self.directory = absolute(directory)
        self.here = here_of(self.directory)
        """What only this machine needs of the run: Spark's log, and the application as it is sent to executors."""
        try:
            make_here(self.directory)
            self.log: BinaryIO = (self.here / "spark.log").open("ab")
        except OSError as error:
            raise SinkError(f"The run's directory {self.here} cannot be written ({error.strerror}).") from error
        if not is_local(self.directory):
            check(self.directory, by_spark=True)
        if not take_over:
            self._lock()
        self.manifest: dict[str, Any] = {}
        self._retain = retain
        self._driver = {
            "id": uuid.uuid4().hex,
            "host": socket.gethostname(),
            "process": os.getpid(),
            "since": time.time(),
        }

    def checkpoint(self, group: str) -> Path:
        """Spark's checkpoint of a group."""
        return self.directory / "checkpoint" / group

    def ledger(self, group: str) -> Path:
        """The committed batches of a group."""
        return self.directory / f"batches-{group}.jsonl"

    @property
    def hops(self) -> Path:
        """Where groups leave streams for other groups, in a directory each."""
        return self.directory / "hops"

    @property
    def output(self) -> Path:
        """Where sinks without a URI write."""
        return self.directory / "output"

    def stored(self) -> dict[str, Any] | None:
        """The manifest of an earlier start that is to be resumed, if there is one."""
        path = self.directory / "manifest.json"
        stored = _read(path)
        return None if stored is None or stored.get("discarding") else stored

    def prepare(self, manifest: dict[str, Any], *, fresh: bool) -> bool:
        """Begin a run, or resume it; returns whether it is resumed.

        Parameters
        ----------
        manifest: what must not change from one start to the next: topology, state, sources,
            parameters, groups. An earlier one's ``run`` is kept.
        fresh: discard what there is.

        Raises
        ------
        IncompatibleStateError, ConfigurationError: what there is does not fit; nothing was changed.
        """
        path = self.directory / "manifest.json"
        stored = _read(path)
        if stored is not None and not fresh and not stored.get("discarding"):
            self._check(stored, manifest)
            manifest |= {"run": stored["run"], "orders": stored.get("orders", {}), "ended": stored.get("ended", False)}
            manifest |= {"discarded": _discarded(stored), "place": stored.get("place", str(self.directory))}
        else:
            self._begin_anew(path, manifest, stored)
        self.manifest = manifest | {"driver": self._driver}
        _write_atomically(path, self.manifest)
        self._progress = ProgressFile(self.directory / "progress.jsonl", self._retain)
        return not fresh and stored is not None and not stored.get("discarding")

    def _begin_anew(self, path: Path, manifest: dict[str, Any], stored: dict[str, Any] | None) -> None:
        """Discard what there is. Which runs are discarded is written down first, so that a kill in between is resumed."""
        manifest["place"] = str(self.directory)
        if stored is None:
            manifest |= {"run": uuid.uuid4().hex, "discarded": []}
        elif stored.get("discarding"):
            manifest |= {"run": stored["run"], "discarded": _discarded(stored)}
        else:
            manifest |= {"run": uuid.uuid4().hex, "discarded": [stored["run"], *_discarded(stored)]}
        _write_atomically(path, {**manifest, "discarding": True})
        self._discard()

    def keep_layout(self, layout: dict[str, Any]) -> None:
        """Keep how the run is divided, which its checkpoints fix."""
        self.manifest |= layout
        self._keep_manifest()

    def fix_order(self, group: str, sources: list[str]) -> None:
        """Keep the order in which a group's query reads its sources, by which Spark's checkpoint knows them.

        Raises
        ------
        IncompatibleStateError: an earlier start has read them in another.
        """
        orders = self.manifest.setdefault("orders", {})
        if orders.setdefault(group, sources) != sources:
            raise IncompatibleStateError(
                f"The query of {group} has read {', '.join(orders[group])} in this order when this run began, and now reads "
                f"{', '.join(sources)}; Spark knows them by their order: join them as before, or start afresh with --fresh, or under "
                f"another --name than {self.directory.name}."
            )
        self._keep_manifest()

    @property
    def ended(self) -> bool:
        """Whether the input has ended; at a start, that an earlier one was killed before it had written its report."""
        return bool(self.manifest.get("ended"))

    def note_end(self) -> None:
        """Keep that the input has ended, after which no event can come."""
        self.manifest["ended"] = True
        self._keep_manifest()

    def _keep_manifest(self) -> None:
        self._refuse_taken_over()
        _write_atomically(self.directory / "manifest.json", self.manifest)

    def _refuse_taken_over(self) -> None:
        """What is no micro-batch is not fenced; a driver that another has followed had better not write it."""
        path = self.directory / "manifest.json"
        now = (_read(path) or {}).get("driver")
        if now is not None and now["id"] != self._driver["id"]:
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now["since"]))
            raise RunLockedError(
                f"Another driver has taken over {self.directory.name} (process {now['process']} on {now['host']}, {since}), so this "
                "one has stopped and commits nothing more. Nothing is lost: the other goes on."
            )

    def note_configuration(self, configuration: dict[str, Any]) -> None:
        """Keep the options and the environment of this start, after those of earlier ones."""
        environment = {
            "penstock": penstock.__version__,
            "pyspark": pyspark.__version__,
            "python": platform.python_version(),
            "system": platform.platform(),
            "cores": os.cpu_count(),
        }
        self._append("starts.jsonl", {"time": time.time(), **configuration, "environment": environment})

    def note_progress(self, progress: dict[str, Any]) -> None:
        """Keep a progress of Spark's."""
        self._progress.note(progress)

    def progress(self) -> Sums:
        """The sums of all progresses that were kept."""
        return self._progress.sums()

    def write_report(self, report: dict[str, Any], copy: Path | None) -> None:
        """Write ``report.json``, and a copy where one is wanted.

        Raises
        ------
        RunLockedError: another driver has taken the run over.
        """
        self._refuse_taken_over()
        report |= {"ended": self.ended}
        _write_atomically(self.directory / "report.json", report)
        if copy is not None:
            try:
                copy.parent.mkdir(parents=True, exist_ok=True)
                _write_atomically(copy, report)
            except OSError as error:
                raise SinkError(f"The report cannot be written to {copy} ({error.strerror}).") from error

    def release(self) -> None:
        """Let another process run this run; called once nothing of this one is left."""
        if self.manifest and not is_local(self.directory):  # the lock is of this machine
            try:
                self._driver["released"] = time.time()
                self._keep_manifest()
            except Exception as error:  # what has stopped the run is said, and not what stops this
                if not (isinstance(error, PenstockError) or is_of_store(error)):
                    raise
        fcntl.flock(self.log, fcntl.LOCK_UN)
        self.log.close()

    def _append(self, name: str, record: dict[str, Any]) -> None:
        journal.add(self.directory / name, json.dumps(record, default=str).encode())

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
                        f"Another process is running {self.directory.name} (it holds {self.log.name}); stop it, or give "
                        "this run another --name; with --take-over it is fenced off."
                    ) from None
                time.sleep(0.2)

    def _discard(self) -> None:
        """Remove all that earlier starts left, but for the manifest, which says that this is under way."""
        log, manifest = Path(self.log.name), self.directory / "manifest.json"
        for path in [self.directory / name for name in durable.names(self.directory)]:
            if path.suffix == ".jsonl":
                journal.clear(path)
            elif path.is_dir():
                durable.remove(path)
            elif path not in (log, manifest):
                path.unlink()
        os.truncate(log, 0)

    def _check(self, stored: dict[str, Any], present: dict[str, Any]) -> None:
        if stored.get("ended") and (_read(self.directory / "report.json") or {}).get("ended"):
            raise ConfigurationError(
                f"The input of {self.directory.name} has ended: its windows have closed, and no event can come after that. Start "
                "afresh with --fresh, or under another --name; where more input is to come, run with --until-idle=pause."
            )
        self._refuse_moved(stored)
        check_state_fits(stored["state"], present["state"])
        mend = f"use the same, or start afresh with --fresh, or under another --name than {self.directory.name}"
        before = mode_of(self.directory, stored)
        if before != present["mode"]:
            raise ConfigurationError(
                f"{self.directory.name} was begun in {before}, and would now run in {present['mode']} and read all of its input again: {mend}."
            )
        if list(stored["sources"]) != list(present["sources"]):
            raise ConfigurationError(
                f"The sources were {', '.join(stored['sources'])} when this run began, and are now "
                f"{', '.join(present['sources'])}; Spark knows them by their order: {mend}."
            )
        for name, place in stored["sources"].items():
            now = present["sources"].get(name)
            if now != place:
                raise ConfigurationError(
                    f"Source {name} was read from {place} when this run began, and now from {now}: {mend}."
                )
        for name, identity in stored.get("identities", {}).items():
            now = present["identities"].get(name)
            if identity is not None and now != identity:
                raise ConfigurationError(
                    f"Source {name} is another {present['sources'][name].partition(':')[0]} than the one that this run began "
                    f"with, though in the same place: what has been read of the old one says nothing of it: put that back, "
                    f"or start afresh with --fresh, or under another --name than {self.directory.name}."
                )
        for name, value in stored["parameters"].items():
            if present["parameters"].get(name) != value:
                raise ConfigurationError(
                    f"Parameter --{name} was {value} when this run began, and is now {present['parameters'].get(name)}: {mend}."
                )
        for name, group in stored["groups"].items():
            if present["groups"].get(name, group) != group:
                raise IncompatibleStateError(
                    f"Element {name} was in group {group} when this run began, and is now in {present['groups'][name]}, "
                    f"which has another checkpoint: {mend}."
                )
        if stored["hops"] != present["hops"]:
            raise IncompatibleStateError(
                f"The groups had {stored['hops']} keyed hops when this run began, and now have {present['hops']}; Spark's "
                f"checkpoint fixes them: {mend}."
            )

    def _refuse_moved(self, stored: dict[str, Any]) -> None:
        """Refuse a directory that lay elsewhere: Spark's checkpoint says of the files of state where they lay."""
        place = stored.get("place", str(self.directory))
        here = is_local(self.directory) and Path(place).exists() and self.directory.samefile(place)
        if here or place == str(self.directory) or not stored["state"]:
            return
        raise IncompatibleStateError(
            f"{self.directory} was {place} when this run began, and Spark's checkpoint names the files of its state by that: move it "
            "back, or start afresh with --fresh."
        )


def _read(path: Path) -> dict[str, Any] | None:
    with suppress(FileNotFoundError):
        content: dict[str, Any] = json.loads(durable.read(path))
        return content
    return None


def _discarded(stored: dict[str, Any]) -> list[str]:
    """The runs that a stored manifest says were discarded."""
    older = [stored["previous"]] if stored.get("previous") else []
    return [*stored.get("discarded", older)]


def _write_atomically(path: Path, content: dict[str, Any]) -> None:
    durable.write(path, json.dumps(content, indent=2, default=str) + "\n")
