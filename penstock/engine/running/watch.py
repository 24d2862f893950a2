"""Watches a run's queries until the run is idle, its time is up, it is interrupted, or a query fails."""

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
"""Seconds between the calls that tell sources how far the run has read."""
IDLE_S = 1.0
"""Seconds for which all sources must have been drained before a run counts as idle."""


ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that ask a run to stop: from Ctrl-C, from the system, and from a closed terminal."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Within the block, signals to stop raise KeyboardInterrupt, so that started processes are ended."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _handled_by(interrupt):
        yield


@contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Within the block, a handler gets the signals of `ENDS`; a hang-up that is ignored (`nohup`) stays ignored."""
    signals = [number for number in ENDS if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN]
    previous = {number: signal.signal(number, handler) for number in signals}
    try:
        yield
    finally:
        for number, former in previous.items():
            signal.signal(number, former)


class Watch:
    """Waits for the end of a run, and keeps the failure that ended it.

    Args:
        duration: seconds after which to stop, or None.
        log: the name of the log with the details of a failure, for the error's text.
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
        """Within the block, the signals of `ENDS` set `interrupted`, so that the run stops between micro-batches."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def interrupt(number: int, frame: FrameType | None) -> None:
            self._interrupted.set()

        with _handled_by(interrupt):
            yield

    def fail(self, error: BaseException) -> None:
        """Note a failure that has stopped the run; only the first one is kept."""
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
        """Wait for the end of the run.

        Args:
            has_ended: called when all queries have been idle for `IDLE_S`; returns False if that caused more work.
            again: restarts a query that failed because a part of the cluster was lost; returns False if it gives up.
            show: called every `POLL_S`.
            note: called at the beginning, and every `NOTED_EVERY_S`.
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
"""Spark's error if a Python process that polls a source does not start within ten seconds, as on a busy machine."""


def lost_a_part(failure: str) -> bool:
    """Whether a query failed because a Python process was slow to start, or because executors were lost in a micro-batch.

    Spark repeats a stage whose output was on a lost executor. The repeated rows may differ, because elements may be random and
    tallies have times, so Spark aborts the job if a later stage has used the first rows. Repeating the whole micro-batch works.
    """
    lost = r"Job aborted due to stage failure: (A shuffle map stage with indeterminate|.*ExecutorLostFailure)"
    slow = SLOW_TO_START in failure and "Job aborted" not in failure  # if tasks fail with it, repeating does not help
    return slow or bool(re.search(lost, failure))


RESUMES = "Nothing is lost: what was not committed is still queued, and running again resumes"
"""The second sentence of a failure with a known cause: a passing one, the application, or a sink."""


def reason_in(text: str) -> tuple[str, bool]:
    """Return the line of a Spark failure that gives the reason: Penstock's own error, a Python error, Java's last cause, or
    what a call of Java said; and True if it is one of the first two.
    """
    ours = re.findall(r"penstock\.errors\.\w+: (.*)", text)
    python = re.findall(r"^((?!py4j)\w+(?:\.\w+)*(?:Error|Exception): .*)", text, re.MULTILINE)
    caused = re.findall(r"^Caused by: (.*)", text, re.MULTILINE)
    called = re.findall(r"^py4j\.protocol\.Py4JJavaError: .*\n: (.*)", text, re.MULTILINE)
    first = next((line for line in text.splitlines() if line.strip()), text)
    return (ours or python or caused or called or [first])[-1].strip().removesuffix("."), bool(ours or python)


def _explained(error: BaseException, log: str) -> RunFailedError:
    """Turn a Spark failure into an error with a short text: the reason, what became of events, and the log with the details."""
    text = str(error) or type(error).__name__
    reason, cause_known = reason_in(text)
    outcome = RESUMES if cause_known else "What was not committed is still queued: once that is mended, running again resumes"
    for cause in (_dead_worker, _other_python, _unread_file, _colon, _gone_messages):
        explanation = cause(text, reason)
        if explanation is not None:
            reason, outcome = explanation
            break
    return RunFailedError(f"The run stopped: {reason}. {outcome} ({log} has the details).")


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
    if not any(sign in text for sign in ("KAFKA_DATA_LOSS", "failOnDataLoss", "OffsetOutOfRangeException")):
        return None
    return (
        "messages that had not been read are no longer in the topic: its retention has deleted them, or somebody has",
        "They are lost. To go on with what the topic still holds, start afresh with --fresh, or under another --name; to lose "
        "none, raise the topic's retention.ms, or run more often",
    )
