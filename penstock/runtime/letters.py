"""Dead letters: events that could not be decoded or handled, kept with their error."""

import sysconfig
from asyncio import CancelledError
from pathlib import Path
from typing import Any, Literal, NamedTuple

import penstock
from penstock.app.stream import Source, Stream
from penstock.errors import RunFailedError
from penstock.kinds.coding import json_encoder
from penstock.runtime.lineage import Lineage
from penstock.runtime.log import storable
from penstock.runtime.output import LETTERS, Output
from penstock.runtime.places import Seen, staged_in
from penstock.runtime.tally import Tally

FAULTS = (Exception, SystemExit, CancelledError)
"""What user code may raise that concerns the event at hand, and not the process."""

NOT_THE_USERS = (
    str(Path(penstock.__file__).parent),
    *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")),
    "<",
)
"""Where code lies that is not the application's: ours, Python's, and that of installed packages."""

_encode = json_encoder().encode


def described(error: BaseException) -> str:
    """An error as text, whatever its class makes of itself."""
    try:
        text = str(error)
    except FAULTS:
        text = "(an error whose text cannot be had)"
    return f"{type(error).__name__}: {storable(text)}"


class Failure(NamedTuple):
    """What is kept of an error."""

    message: str
    line: str | None
    """The user's line at which it was raised, as file and number."""

    @classmethod
    def of(cls, error: BaseException) -> "Failure":
        """Read off an error."""
        return cls(described(error), _last_line(error))


class DeadLetters:
    """Where the failures of one stage go.

    Parameters
    ----------
    on_error: ``"stop"`` raises instead of keeping.
    """

    def __init__(self, output: Output, tally: Tally, on_error: Literal["dead-letter", "stop"]) -> None:
        self._output, self._tally, self._on_error = output, tally, on_error

    def reject(self, source: Source[Any], payload: bytes, error: BaseException, lineage: Lineage) -> None:
        """Keep what a source handed over and could not be decoded."""
        text = payload.decode("utf-8", "backslashreplace")
        self._write({"element": None, "stream": source.name, "raw": text}, Failure.of(error), lineage)

    def write(self, element: str, stream: Stream[Any], event: Any, error: BaseException | Failure, lineage: Lineage) -> None:
        """Keep an event that an element, or a sink, could not handle; None where no single event was at fault.

        Raises
        ------
        RunFailedError: the application says that errors stop the run.
        """
        self._tally.element(element).dead_letters += 1
        failure = error if isinstance(error, Failure) else Failure.of(error)
        self._write({"element": element, "stream": stream.name, "event": event}, failure, lineage)

    def _write(self, letter: dict[str, Any], failure: Failure, lineage: Lineage) -> None:
        if self._on_error == "stop":
            place = letter["element"] or f"decoding {letter['stream']}"
            where = "" if failure.line is None else f" ({failure.line})"
            raise RunFailedError(f"{place}: {failure.message}{where}")
        if lineage.origin is not None:
            self._tally.failed.append(lineage.origin)
        letter["error"] = failure.message
        if letter["element"] is not None:
            letter["line"] = failure.line
        try:
            line = _encode(letter)
        except Exception:  # the event itself cannot be written as JSON
            line = _encode({**letter, "event": shown(letter["event"])})
        self._output.write_lines(LETTERS, [line])
        if self._output.keeps(LETTERS):
            self._tally.left.setdefault(staged_in(LETTERS), Seen()).events += 1


def _last_line(error: BaseException) -> str | None:
    """The innermost line of the user's own at which an error was raised; without reading sources, as `traceback` does."""
    trace, line = error.__traceback__, None
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith(NOT_THE_USERS):
            line = f"{Path(file).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return line


def shown(event: Any) -> str:
    """An event that JSON cannot hold, as text."""
    try:
        return storable(repr(event))
    except FAULTS:
        return f"(a {type(event).__name__} that cannot be shown)"
