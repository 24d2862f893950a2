"""Captures what elements print and log, by element and key. The tally takes it to the driver, up to a limit per task."""

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
"""The most characters kept per task and micro-batch; further lines are only counted."""
BESIDE, LONGEST_KEY, LONGEST_LEVEL = 32, 200, 20
"""Characters: a line's overhead besides its text, and the most that are kept of a key and of a level's name."""
PRINTED = "PRINT"
ELEMENT_LOG = "elements.log"
"""The file of the captured lines, in the directory of a run."""
LogLevel = Literal["debug", "info", "warning", "error"]
LOG_LEVELS: tuple[LogLevel, ...] = get_args(LogLevel)


class Line(msgspec.Struct, array_like=True):
    """A printed line, or a log record with all its lines."""

    time: float
    """Seconds since the epoch."""
    level: str
    element: str
    key: str | None
    text: str


class Lines(msgspec.Struct):
    """The lines that a task has kept, the number of lines left out, and the characters that still fit."""

    lines: list[Line] = []
    left_out: int = 0
    room: int = KEPT

    def add(self, line: Line) -> None:
        """Keep a line while there is room; count it otherwise."""
        if self.room <= 0:
            self.left_out += 1
            return
        line.text = line.text[: self.room]
        self.room -= len(line.text) + len(line.key or "") + len(line.element) + BESIDE
        self.lines.append(line)


class AtWork:
    """The element whose hooks are being called, and the key for which; captures what they print and log.

    Args:
        decode: returns the key of an identity.
    """

    __slots__ = ("_begun", "_begun_by", "_decode", "_lines", "element", "identity", "muted")

    def __init__(self, lines: Lines, element: str, decode: Callable[[bytes], Any] | None = None) -> None:
        self._lines, self.element, self._decode, self._begun = lines, element, decode, ""
        self.identity: bytes | None = None
        self._begun_by: bytes | None = None
        self.muted = False
        """Whether to drop all text: set while events are replayed, which have printed already."""

    def of(self, identity: bytes) -> "AtWork":
        """Return a copy for one key alone; asynchronous hooks run for several keys at the same time."""
        alone = AtWork(self._lines, self.element, self._decode)
        alone.identity = identity
        return alone

    def write(self, text: str) -> None:
        """Capture printed text. A line is kept once it ends, or once another key prints."""
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
        """Keep the last line although it has not ended."""
        if self._begun:
            now, self.identity = self.identity, self._begun_by
            self.keep(PRINTED, self._begun)
            self._begun, self.identity = "", now

    def keep(self, level: str, text: str) -> None:
        """Keep a printed line or a log record. Never raises over its content, so that no event fails for it."""
        if not self.muted:
            key = self._key() if self._lines.room > 0 else None
            self._lines.add(Line(time.time(), storable(level)[:LONGEST_LEVEL], self.element, key, storable(text)))

    def _key(self) -> str | None:
        if self._decode is None or self.identity is None:
            return None
        try:
            return storable(repr(self._decode(self.identity)))[:LONGEST_KEY]
        except Exception:  # raised by a key class of the application
            return "a key that cannot be shown"


def storable(text: str) -> str:
    """Make a text writable as UTF-8: lone surrogates become escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


_at_work: ContextVar[AtWork | None] = ContextVar("at_work", default=None)


def element_at_work() -> str | None:
    """Return the name of the element whose hooks are being called; None where there is none."""
    work = _at_work.get()
    return None if work is None else work.element


@contextmanager
def working(work: AtWork) -> Iterator[AtWork]:
    """Within the block, attribute all printed and logged text to an element."""
    before = _at_work.set(work)
    try:
        yield work
    finally:
        work.end()
        _at_work.reset(before)


def listen(level: LogLevel) -> None:
    """From now on, capture what this process prints and logs while an element is at work. It also goes where it went before.

    Args:
        level: the lowest level of records to keep, as `logging` names it.
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
    """Wraps stdout or stderr, to capture what elements write."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        work = _at_work.get()
        if work is None:
            return self._stream.write(text)
        work.write(text)
        before = _at_work.set(None)  # a wrapper below this stream must not capture it twice
        try:
            return self._stream.write(text)
        except UnicodeError:
            return self._stream.write(storable(text))
        except OSError:  # a full disk, say, which the run itself reports
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
    """Captures log records of elements. If no other handler is set, prints these and all warnings to stderr, as Python does by
    default.
    """

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text, work = self.format(record), _at_work.get()
            if work is not None:
                work.keep(str(record.levelname), text)
            if logging.getLogger().handlers == [self] and (work is not None or record.levelno >= logging.WARNING):
                print(record.levelname, visible(text), file=sys.__stderr__)
        except Exception:  # the record cannot be formatted
            self.handleError(record)


_handler = _Handler()
_handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
