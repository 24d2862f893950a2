"""What elements print and log, with who was at work: it travels to the driver with the tally, up to a bound for each task."""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, TextIO, get_args

import msgspec

from penstock.visible import visible

KEPT = 1 << 16
"""Characters of a task in one micro-batch, of which more are not kept, but counted."""
BESIDE, LONGEST_KEY, LONGEST_LEVEL = 32, 200, 20
"""What a line takes besides its text, about; and what is kept of a key and of the name of a level."""
PRINTED = "PRINT"
ELEMENT_LOG = "elements.log"
"""The file of a run in which it is kept."""
LogLevel = Literal["debug", "info", "warning", "error"]
LOG_LEVELS: tuple[LogLevel, ...] = get_args(LogLevel)


class Line(msgspec.Struct, array_like=True):
    """A line, or a record with all its lines."""

    time: float
    """Seconds since the epoch."""
    level: str
    element: str
    key: str | None
    text: str


class Lines(msgspec.Struct):
    """What a task has kept."""

    lines: list[Line] = []
    left_out: int = 0
    room: int = KEPT

    def add(self, line: Line) -> None:
        """Keep a line while there is room."""
        if self.room <= 0:
            self.left_out += 1
            return
        line.text = line.text[: self.room]
        self.room -= len(line.text) + len(line.key or "") + len(line.element) + BESIDE
        self.lines.append(line)


class AtWork:
    """The element whose hooks are called, and for which key.

    Parameters
    ----------
    decode: makes a key of its identity.
    """

    __slots__ = ("_begun", "_begun_by", "_decode", "_lines", "element", "identity", "muted")

    def __init__(self, lines: Lines, element: str, decode: Callable[[bytes], Any] | None = None) -> None:
        self._lines, self.element, self._decode, self._begun = lines, element, decode, ""
        self.identity: bytes | None = None
        self._begun_by: bytes | None = None
        self.muted = False
        """Whether what has happened before happens again."""

    def of(self, identity: bytes) -> "AtWork":
        """The element at work for one key alone, while others are at work beside it."""
        alone = AtWork(self._lines, self.element, self._decode)
        alone.identity = identity
        return alone

    def write(self, text: str) -> None:
        """Take what is printed; a line is kept once it has ended, or another key is at work."""
        if self.muted:
            return
        if self._begun_by != self.identity:
            self.end()
        *whole, self._begun = (self._begun + text).split("\n")
        self._begun_by = self.identity
        for line in whole:
            self.keep(PRINTED, line)
        if len(self._begun) > KEPT:
            self.end()

    def end(self) -> None:
        """Keep a line that has not ended."""
        if self._begun:
            now, self.identity = self.identity, self._begun_by
            self.keep(PRINTED, self._begun)
            self._begun, self.identity = "", now

    def keep(self, level: str, text: str) -> None:
        """Keep a line, or the lines of a record; whatever they hold, that is no fault of the event at hand."""
        if not self.muted:
            key = self._key() if self._lines.room > 0 else None
            self._lines.add(Line(time.time(), storable(level)[:LONGEST_LEVEL], self.element, key, storable(text)))

    def _key(self) -> str | None:
        if self._decode is None or self.identity is None:
            return None
        try:
            return storable(repr(self._decode(self.identity)))[:LONGEST_KEY]
        except Exception:  # of a class of the application's own
            return "a key that cannot be shown"


def storable(text: str) -> str:
    """A text that can be written as UTF-8: lone surrogates stand as escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


_at_work: ContextVar[AtWork | None] = ContextVar("at_work", default=None)


def element_at_work() -> str | None:
    """The element whose hooks are being called, if there is one."""
    work = _at_work.get()
    return None if work is None else work.element


@contextmanager
def working(work: AtWork) -> Iterator[AtWork]:
    """Within the block, hooks are those of an element."""
    before = _at_work.set(work)
    try:
        yield work
    finally:
        work.end()
        _at_work.reset(before)


def listen(level: LogLevel) -> None:
    """From now on, keep what this process prints and logs while an element is at work; all goes where it went before, too.

    Parameters
    ----------
    level: the least that records must have, as `logging` names it.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, _Heard):  # the application may have put another in its place
            setattr(sys, name, _Heard(stream))
    root, least = logging.getLogger(), logging.getLevelNamesMapping()[level.upper()]
    if _handler not in root.handlers:
        root.addHandler(_handler)
    _handler.setLevel(least)
    root.setLevel(min(root.level, least))


class _Heard:
    """A stream of the process, of which is kept what elements write."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        work = _at_work.get()
        if work is None:
            return self._stream.write(text)
        work.write(text)
        before = _at_work.set(None)  # whoever stands behind this stream is not to hear it again
        try:
            return self._stream.write(text)
        except UnicodeError:
            return self._stream.write(storable(text))
        except OSError:  # of a full disk the run itself has to say more
            return len(text)
        finally:
            _at_work.reset(before)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            if _at_work.get() is None:
                raise

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Handler(logging.Handler):
    """Keeps the records of elements; those, and warnings of others, are written where Python writes what nobody else
    handles.
    """

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text, work = self.format(record), _at_work.get()
            if work is not None:
                work.keep(str(record.levelname), text)
            if logging.getLogger().handlers == [self] and (work is not None or record.levelno >= logging.WARNING):
                print(record.levelname, visible(text), file=sys.__stderr__)
        except Exception:  # what is to be logged cannot be shown
            self.handleError(record)


_handler = _Handler()
_handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
