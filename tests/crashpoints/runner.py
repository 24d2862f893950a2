"""One try: a workload, something that befalls it at a point, the start after it, and what is there in the end."""

import faulthandler
import gc
import json
import os
import pickle
import platform
import re
import shutil
import signal
import sqlite3
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from crashpoints.points import KILL, PAUSE, Points, watch
from crashpoints.power import Power
from crashpoints.standin import Session, stand_in
from crashpoints.workloads import WORKLOADS, Workload, letters_of

from penstock.connectors.registry import schemes
from penstock.errors import ConfigurationError, PenstockError, RunLockedError

SPARKS = ("/checkpoint/", "/checkpoint-")
"""What a power failure spares: Spark's checkpoints, which on a disk Spark does not sync."""
PATIENCE_S = 60.0


class Start(NamedTuple):
    """What befalls a start: at which point, and how; nothing where ``at`` is None."""

    at: int | None = None
    how: str = KILL
    seed: int = 0


UNDISTURBED = Start()


class Ended(NamedTuple):
    """How a start has ended.

    Args:
        points: their names, of one that was not killed.
        error: what it has said; empty where it has come to its end.
    """

    killed: bool
    points: list[str]
    error: str


@dataclass(frozen=True)
class Verdict:
    """Of a try, what is wrong; nothing, where all is as it must be."""

    workload: str
    starts: tuple[Start, ...]
    wrong: str
    points: int = 0
    """How many the last start had."""
    befell: bool = True
    """Whether all points have come at which something was to befall a start."""

    @property
    def line(self) -> str:
        """What repeats it."""
        at = ",".join(f"{start.how}@{start.at}" + (f"#{start.seed}" if start.seed else "") for start in self.starts)
        return f"scripts/crashpoints --only {self.workload} --at {at}"


class Place:
    """Where tries are made, one after the other."""

    def __init__(self, base: Path) -> None:
        _warm_up()
        self.world, self.aside = base / "world", base / "aside"
        self._base, self._tries = base, 0

    def anew(self, workload: Workload) -> None:
        """The world as it is before the first start."""
        template = self._base / f"before-{workload.name}"
        if not template.exists():
            self._clear()
            self._name()
            if not workload.server:
                workload.prepare(self.world)
            if workload.before is not None:
                before = workload.before
                ended = self.apart(lambda: before(workload, self.world))
                assert not ended.error, ended.error
            self.world.rename(template)
        self._clear()
        shutil.rmtree(self.world)
        shutil.copytree(template, self.world)
        self._name()
        if workload.server:
            ended = self.apart(lambda: workload.prepare(self.world))
            assert not ended.error, ended.error

    def _name(self) -> None:
        self._tries += 1
        (self.world / "name").write_text(f"t{os.getpid()}x{self._tries}x{time.time_ns() % 10**9}")

    def _clear(self) -> None:
        for directory in (self.world, self.aside):
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(parents=True)

    def start(self, workload: Workload, start: Start, **options: Any) -> Ended:
        """A start in a process of its own."""
        return self.apart(lambda: workload.start(self.world, Session(), **options), start)

    def paused(self, workload: Workload, start: Start) -> Iterator[Ended]:
        """A start that is paused at a point; once this is asked again it goes on."""
        number, answer = self._fork(lambda: workload.start(self.world, Session()), start)
        _, status = os.waitpid(number, os.WUNTRACED)
        yield Ended(os.WIFSTOPPED(status), [], "")
        if os.WIFSTOPPED(status):
            os.kill(number, signal.SIGCONT)
            status = _waited(number)
        yield self._answer(status, answer)

    def to_the_end(self, workload: Workload, *, paused: bool = False, **options: Any) -> Ended:
        """A start that nothing befalls; its error is what is wrong with what is there then.

        Args:
            paused: whether a driver has been paused and woken before.
        """

        def do() -> str:
            try:
                workload.start(self.world, Session(), **options)
            except ConfigurationError as refused:
                if OVER not in str(refused):
                    raise
            return amiss(workload, self.world, paused=paused)

        return self.apart(do)

    def apart(self, do: Callable[[], str | None], start: Start = UNDISTURBED) -> Ended:
        """Do something in a process of its own; what it returns counts as an error."""
        number, answer = self._fork(do, start)
        return self._answer(_waited(number), answer)

    def _answer(self, status: int, answer: Path) -> Ended:
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            return Ended(True, [], "")
        try:
            return Ended(False, *pickle.loads(answer.read_bytes()))
        except (OSError, EOFError):
            return Ended(False, [], f"the process has ended with {status} and said nothing")

    def _fork(self, do: Callable[[], str | None], start: Start) -> tuple[int, Path]:
        answer = self._base / "answer"
        answer.unlink(missing_ok=True)
        answer = answer.with_name(f"answer-{time.monotonic_ns()}")
        sys.stdout.flush()
        number = os.fork()
        if number:
            return number, answer
        points = Points(self.world, Power(str(self.aside), SPARKS, start.seed), start.at, start.how)
        error = ""
        try:
            said = os.open(self._base / "said", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(said, 1)
            os.dup2(said, 2)
            faulthandler.enable()  # says where a process was that did not end
            stand_in()
            watch(points)
            error = do() or ""
        except PenstockError as refused:
            error = f"{type(refused).__name__}: {refused}"
        except BaseException:
            error = traceback.format_exc()
        finally:
            points.come("the end")
            answer.write_bytes(pickle.dumps((points.names, error)))
            os._exit(0)


@cache
def _warm_up() -> None:
    """Do once what each process would do: it takes as long as the rest. Nothing here begins a thread, which no fork would
    have.
    """
    platform.platform()
    for kind in ("sources", "sinks"):
        schemes(kind)
    for workload in WORKLOADS:
        workload.load()
    gc.freeze()


def _waited(number: int) -> int:
    """The status of a process, which is killed where it does not end."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        done, status = os.waitpid(number, os.WNOHANG)
        if done:
            return status
        time.sleep(0.002)
    os.kill(number, signal.SIGABRT)
    return os.waitpid(number, 0)[1]


OVER = "The input of run has ended"
"""What a start is told of a run that has nothing to do."""


WAITS = (f"{RunLockedError.__name__}:", "has it open in a transaction", "database is locked")
"""What one is told that would take over from who is paused with a lock in its hand: wait, or kill it."""


def tried(place: Place, workload: Workload, starts: tuple[Start, ...]) -> Verdict:
    """What becomes of a workload whose starts meet something one after the other, and which is then run to its end."""
    place.anew(workload)
    befell = True
    for number, start in enumerate(starts):
        if start.how == PAUSE:
            paused, wrong = _taken_over(place, workload, start)
            if wrong:
                return Verdict(workload.name, starts, wrong)
            befell &= paused
            continue
        ended = place.start(workload, start, **_options(workload, number))
        befell &= ended.killed
        if ended.error and OVER not in ended.error:
            return Verdict(workload.name, starts, f"start {number + 1} has failed: {ended.error}")
    paused = any(start.how == PAUSE for start in starts)
    ended = place.to_the_end(workload, paused=paused, **_options(workload, len(starts)))
    return Verdict(workload.name, starts, ended.error, len(ended.points), befell)


def _options(workload: Workload, number: int) -> dict[str, Any]:
    """Who discards an earlier run says so again only until a start has begun anew: then the run is to go on."""
    if not workload.options.get("fresh") or number == 0:
        return {}
    return {"fresh": False}


def _taken_over(place: Place, workload: Workload, start: Start) -> tuple[bool, str]:
    """Whether a driver was paused, and what is wrong once another has taken its run over and gone to its end, and the first
    goes on.
    """
    first = place.paused(workload, start)
    paused = next(first).killed
    if paused:
        drives = _driver(place.world)
        second = place.start(workload, UNDISTURBED, take_over=True)
        if second.error and not any(words in second.error for words in (OVER, *WAITS)):
            return True, f"the one that takes over has failed: {second.error}"
        there, following = _files(place.world), _driver(place.world)
        woken = next(first)
        if woken.error and "Error: " not in woken.error.partition("\n")[0]:
            return True, f"the one that wakes has failed: {woken.error}"
        begun = _driver(place.world) not in (drives, following)  # the one that wakes was paused before it had
        touched = [] if second.error or begun else _touched(there, _files(place.world))
        if touched:
            return True, f"the one that wakes has touched what the other has left: {', '.join(touched)}"
    return paused, ""


HARMLESS = re.compile(
    r"runs/run/(spark\.log|elements\.log|.*\.lock)|.*/\.staging(/.*)?|.*/\.[^/]*\.(tmp|draft)|.*-(shm|wal)|"
    r"lake/.*\.(parquet|avro|metadata\.json)|out/part-.*\.parquet|runs/run/checkpoint(-\w+)?/[\w@]+/commits/\d+|"
    r"runs/run/checkpoint(-\w+)?/[\w@]+/rows-of-files-\d+\.jsonl"
)
"""Files that a driver that wakes may write: its log, locks, its drafts, what it stages, which the next start removes, what no
version of a table names, Spark's commit of a micro-batch, which `agree` compares with the ledger, and how many rows a file
has, which any driver counts alike.
"""
DATABASE = b"SQLite format 3"


def _files(world: Path) -> dict[str, Any]:
    """What the files of a world hold, by name, without those of a run that was discarded."""
    with suppress(FileNotFoundError):
        manifest = json.loads((world / "runs/run/manifest.json").read_bytes())
        gone = "|".join(run[:8] for run in manifest["discarded"])
        others = re.compile(rf"runs/run/(checkpoint-({gone})/.*|.*/\.penstock-reached-({gone}).*)")
        files = {str(path.relative_to(world)): path for path in sorted(world.rglob("*")) if path.is_file()}
        names = [name for name in files if not HARMLESS.fullmatch(name) and not others.fullmatch(name)]
        return {name: _content(files[name]) for name in names}
    return {}


def _content(path: Path) -> Any:
    """What a file holds; of a database, its rows, for its bytes are others once it is closed."""
    content = path.read_bytes()
    if not content.startswith(DATABASE):
        return content
    with closing(sqlite3.connect(path)) as database:
        return list(database.iterdump())


def _touched(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """The names of files that were made, removed or changed."""
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def _driver(world: Path) -> str | None:
    """Who drives the run, or drove it last."""
    try:
        manifest = json.loads((world / "runs/run/manifest.json").read_bytes())
    except FileNotFoundError:
        return None
    return str((manifest["driver"] or {}).get("id"))


def amiss(workload: Workload, world: Path, *, paused: bool = False) -> str:
    """What is wrong with what a run has left."""
    rows, letters = workload.expected()
    found = workload.found(world, paused=paused)
    for sink, wanted in rows.items():
        if found[sink] != wanted:
            missing = [row for row in wanted if found[sink].count(row) < wanted.count(row)]
            extra = [row for row in found[sink] if found[sink].count(row) > wanted.count(row)]
            return f"sink {sink}: missing {missing[:3]} of {len(missing)}, too many {extra[:3]} of {len(extra)}"
    if letters_of(world) != letters:
        return f"{letters_of(world)} dead letters, not {letters}"
    report = json.loads((world / "runs/run/report.json").read_bytes())
    counts = report["counts"]
    if counts["lost"] or counts["duplicated"] or counts["queued"] or (report.get("uncounted") and not workload.by_spark):
        return f"the report says {counts}, {report.get('places')}"
    if counts["accepted"] != counts["processed"] + counts["dead_lettered"]:
        return f"the counts do not add up: {counts}"
    return ""


def points_of(place: Place, workload: Workload) -> list[str]:
    """The names of the points of a workload that nothing befalls.

    Raises:
        AssertionError: it is wrong all the same.
    """
    place.anew(workload)
    ended = place.to_the_end(workload)
    assert not ended.error, ended.error
    return ended.points
