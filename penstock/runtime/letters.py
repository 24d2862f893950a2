"""Dead letters: events that could not be decoded or handled, stored with their error."""

import sysconfig
from asyncio import CancelledError
from pathlib import Path
from typing import Any, Literal, NamedTuple

import penstock
from penstock.app.element import Element
from penstock.app.stream import Source, Stream
from penstock.errors import RunFailedError
from penstock.kinds.coding import json_encoder
from penstock.runtime.lineage import Lineage
from penstock.runtime.log import storable
from penstock.runtime.output import LETTERS, Output
from penstock.runtime.places import Seen, staged_in
from penstock.runtime.tally import Tally

FAULTS = (Exception, SystemExit, CancelledError)
"""Exceptions of user code that count against the current event, not the process."""

NOT_THE_USERS = (
    str(Path(penstock.__file__).parent),
    *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")),
    "<",
)
"""Prefixes of the paths of code that is not the application's: Penstock's, Python's, and that of installed packages."""

_encode = json_encoder().encode


def described(error: BaseException) -> str:
    """Return an error's class and text, even if its ``__str__`` raises."""
    try:
        text = str(error)
    except FAULTS:
        text = "(an error whose text cannot be had)"
    return f"{type(error).__name__}: {storable(text)}"


class Failure(NamedTuple):
    """An error's text, and where it was raised."""

    message: str
    line: str | None
    """The line of the application's code at which it was raised, as file:number; None where it is not known."""

    @classmethod
    def of(cls, error: BaseException) -> "Failure":
        """Describe an error."""
        return cls(described(error), _last_line(error))


class DeadLetters:
    """Writes the dead letters of one stage.

    Args:
        on_error: ``"stop"`` raises an error instead of writing a dead letter.
    """

    def __init__(self, output: Output, tally: Tally, on_error: Literal["dead-letter", "stop"]) -> None:
        self._output, self._tally, self._on_error = output, tally, on_error

    def reject(self, source: Source[Any], payload: bytes, error: BaseException, lineage: Lineage) -> None:
        """Write a payload of a source that could not be decoded."""
        text = payload.decode("utf-8", "backslashreplace")
        self._write({"element": None, "stream": source.name, "raw": text}, Failure.of(error), lineage)

    def write(self, element: str, stream: Stream[Any], event: Any, error: BaseException | Failure, lineage: Lineage) -> None:
        """Write an event that an element or a sink could not handle; ``event`` is None where no single event was at fault.

        Raises:
            RunFailedError: ``on_error`` is ``"stop"``.
        """
        self._tally.element(element).dead_letters += 1
        failure = error if isinstance(error, Failure) else Failure.of(error)
        self._write({"element": element, "stream": stream.name, "event": event}, failure, lineage)

    def write_uncaused(self, element: Element, error: BaseException | Failure, born: int, event: Any = None) -> None:
        """Write a dead letter for a hook that no single event called, with the event that had waited for it, if any."""
        came_by = (stream for stream in element.inputs if stream.event_type is type(event))
        stream = next(came_by, element.inputs[0])
        self.write(element.name, stream, event, error, Lineage.uncaused(born, self._tally.partition))

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
    """Find the innermost line of the application's code in an error's traceback; unlike `traceback`, reads no sources."""
    trace, line = error.__traceback__, None
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith(NOT_THE_USERS):
            line = f"{Path(file).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return line


def shown(event: Any) -> str:
    """Return the repr of an event that cannot be encoded as JSON."""
    try:
        return storable(repr(event))
    except FAULTS:
        return f"(a {type(event).__name__} that cannot be shown)"
