"""Watching a run's queries until it is idle, its time is up, it is interrupted, or one fails."""

import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from urllib.parse import unquote

from pyspark.sql.streaming.query import StreamingQuery

from penstock.errors import RunFailedError

POLL_S = 0.2
NOTED_EVERY_S = 10.0
"""How often sources are told how far the run is."""
IDLE_S = 1.0
"""How long everything must have been drained before a run is taken to be idle."""


ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""How a person, the system, or a terminal that is closed ask a run to stop."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Within the block, whatever asks a run to stop is a KeyboardInterrupt, so that what was started is ended."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _handled_by(interrupt):
        yield


@contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Within the block, the signals of `ENDS` go to a handler; a hang-up that is ignored (`nohup`) stays ignored."""
    wanted = [number for number in ENDS if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN]
    previous = {number: signal.signal(number, handler) for number in wanted}
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)


class Watch:
    """What may end a run.

    Parameters
    ----------
    duration: seconds, or None.
    log: where the details of a failure are, for its sentence.
    """

    def __init__(self, *, duration: float | None, until_idle: bool, log: str) -> None:
        self._duration, self._until_idle, self._log = duration, until_idle, log
        self._interrupted = threading.Event()
        self.failure: BaseException | None = None

    @property
    def interrupted(self) -> bool:
        """Whether a person, or the system, has asked the run to stop."""
        return self._interrupted.is_set()

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Within the block, Ctrl-C and a request to terminate stop the run after what is committed."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def interrupt(number: int, frame: FrameType | None) -> None:
            self._interrupted.set()

        with _handled_by(interrupt):
            yield

    def fail(self, error: BaseException) -> None:
        """Note what has stopped the run; the first failure counts."""
        self.failure = self.failure or _explained(error, self._log)

    def until_over(
        self,
        queries: Sequence[StreamingQuery],
        is_idle: Callable[[], bool],
        has_ended: Callable[[], bool],
        show: Callable[[], None],
        note: Callable[[], None],
        again: Callable[[StreamingQuery], bool],
    ) -> None:
        """Wait for the end.

        Parameters
        ----------
        has_ended: called when all has been idle for a while; False where that made more to do.
        again: starts a query anew that has failed because the cluster has lost a part; whether it may.
        show: called at each look; note: called every `NOTED_EVERY_S`, and at the beginning.
        """
        began = noted = time.monotonic()
        note()
        idle_since: float | None = None
        while not self._interrupted.wait(POLL_S):
            for query in queries:
                failed = query.exception()
                if failed is not None and not (lost_a_part(str(failed)) and again(query)):
                    self.fail(failed)
                    return
            now = time.monotonic()
            show()
            if now - noted >= NOTED_EVERY_S:
                note()
                noted = now
            if self._duration is not None and now - began >= self._duration:
                return
            if self._until_idle:
                idle_since = (idle_since or now) if is_idle() else None
                if idle_since is not None and now - idle_since >= IDLE_S:
                    if has_ended():
                        return
                    idle_since = None


SLOW_TO_START = "Python worker failed to connect back"
"""Spark waits ten seconds for a process that asks a source in Python, whatever else the machine has to do."""


def lost_a_part(failure: str) -> bool:
    """Whether a query has failed that way, or since executors were lost in a micro-batch whose stages Spark may not mix.

    A stage is repeated where its output was on a lost executor. Its rows may differ then, for elements may be random and
    tallies hold times; once the last stage has begun to use the first ones, Spark gives the job up. The micro-batch
    as a whole can be repeated.
    """
    lost = r"Job aborted due to stage failure: (A shuffle map stage with indeterminate|.*ExecutorLostFailure)"
    slow = SLOW_TO_START in failure and "Job aborted" not in failure  # of tasks, workers that do not come are no accident
    return slow or bool(re.search(lost, failure))


RESUMES = "Nothing is lost: what was not committed is still queued, and running again resumes"
"""Of a failure whose cause is known to pass, or to be the application's or a sink's."""


def reason_in(text: str) -> tuple[str, bool]:
    """The line of a failure of Spark's that says why: our own words, those of Python, or what Java names last; and whether it
    is one of the first two.
    """
    ours = re.findall(r"penstock\.errors\.\w+: (.*)", text)
    python = re.findall(r"^((?!py4j)\w+(?:\.\w+)*(?:Error|Exception): .*)", text, re.MULTILINE)
    caused = re.findall(r"^Caused by: (.*)", text, re.MULTILINE)
    first = next((line for line in text.splitlines() if line.strip()), text)
    return (ours or python or caused or [first])[-1].strip().removesuffix("."), bool(ours or python)


def _explained(error: BaseException, log: str) -> RunFailedError:
    """A failure of Spark's in one sentence: our own words if they caused it, else Spark's first line; and what has become of
    events.
    """
    text = str(error) or type(error).__name__
    reason, known = reason_in(text)
    then = RESUMES if known else "What was not committed is still queued: once that is mended, running again resumes"
    for cause in (_dead_worker, _other_python, _unread_file, _colon, _gone_messages):
        found = cause(text, reason)
        if found is not None:
            reason, then = found
            break
    return RunFailedError(f"The run stopped: {reason}. {then} ({log} has the details).")


def _dead_worker(text: str, reason: str) -> tuple[str, str] | None:
    if "Python worker exited unexpectedly" in text or "Python worker exited prematurely" in text:
        return "a Python worker died (killed from outside, or for want of memory)", RESUMES
    return None


def _other_python(text: str, reason: str) -> tuple[str, str] | None:
    versions = re.search(r"Python in worker has different version: (\S+) than that in driver: (\d+\.\d+)", text)
    if versions is None:
        return None
    return (
        f"the workers have Python {versions[1]}, and the driver {versions[2]}: start it with the workers' version, name one "
        "of the driver's by PYSPARK_PYTHON, or send an environment with --archives",
        RESUMES,
    )


def _unread_file(text: str, reason: str) -> tuple[str, str] | None:
    unread = re.search(r"Encountered error while reading file (\S+)\. (.*?)\.? *SQLSTATE", text)
    if unread is None:
        return None
    place = unquote(unread[1]).removeprefix("file://")
    mend = "put a whole file in its place, with the columns of the others, or move it away"
    return (
        f"Spark cannot read {place} ({unread[2] or reason}): {mend}",
        "What was not committed is still queued, and running again resumes then",
    )


def _colon(text: str, reason: str) -> tuple[str, str] | None:
    colon = re.search(r"Relative path in absolute URI: (\S+)", text)
    return (
        None if colon is None else (f"the file {colon[1]} has a colon in its name, which Spark cannot read; rename it", RESUMES)
    )


def _gone_messages(text: str, reason: str) -> tuple[str, str] | None:
    if "KAFKA_DATA_LOSS" not in text and "failOnDataLoss" not in text:
        return None
    return (
        "messages that had not been read are no longer in the topic: its retention has deleted them, or somebody has",
        "They are lost. To go on with what the topic still holds, start afresh with --fresh, or under another --name; to lose "
        "none, raise the topic's retention.ms, or run more often",
    )
