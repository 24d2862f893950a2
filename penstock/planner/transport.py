"""What loggers, containers and collectors put around the lines that a program printed: taken off again."""

import html
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

TEXTS = ("log", "message", "msg", "textPayload", "@message", "MESSAGE", "short_message", "line", "_raw", "text", "body")
"""Names of the fields in which logs and collectors keep a line of text."""
WITHIN = ("jsonPayload", "fields")
"""Names of the objects in which they keep such fields."""
MARKS = ("durationMs", "batchId")
"""One of these names is in each progress."""
DEEPEST = 8
"""Objects within objects that are looked into."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PREFIX = re.compile(
    r"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d) (?:(?:stdout|stderr) (?P<part>[FP]) ?)?"  # Kubernetes
    r"|[\w.-]+ +\| ?"  # Docker Compose
    r"|\[pod/[^\]]+\] ?"  # kubectl logs --prefix
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S+ [^\s:\[]+\[\d+\]: ?"  # journald
)


class Unwrapped:
    """The texts in lines: those that a program printed, and objects that are whole in a line and no text's wrapping."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        """A line that a container has cut into pieces, so far."""
        self._ends = False
        """Whether lines in the field ``log`` end with a newline, as Docker's do; then one without is cut."""

    def of(self, lines: Iterable[str]) -> Iterator[str | dict[str, Any]]:
        """Yield each line of text that is not blank, and each object, in order."""
        for line in lines:
            yield from self._line(line.strip(), 0)
        if self._parts:
            yield from self._line("".join(self._parts), 0)

    def _line(self, line: str, depth: int) -> Iterator[str | dict[str, Any]]:
        if not line:
            return
        if "\x1b" in line:
            line = _COLOUR.sub("", line)
        value = whole(line)
        if value is not None:
            yield from self._value(value, line, depth)
            return
        prefix = _PREFIX.match(line) if depth < DEEPEST else None
        if prefix is None:
            yield _plain(line)
            return
        self._parts.append(line[prefix.end() :])
        if prefix["part"] != "P":
            text, self._parts = "".join(self._parts), []
            yield from self._line(text.strip(), depth + 1)

    def _value(self, value: Any, line: str, depth: int) -> Iterator[str | dict[str, Any]]:
        """Yield what is in a value that is whole in a line."""
        if depth > DEEPEST:
            return
        if isinstance(value, list):
            for each in value:
                yield from self._value(each, "", depth + 1)
        elif isinstance(value, str):
            for part in value.splitlines():
                yield from self._line(part.strip(), depth + 1)
        elif isinstance(value, dict):
            if is_progress(value) or {"Event", "idle", "batchTime"} & value.keys():
                yield value
                return
            text, inner = _text(value), list(_inside(value))
            if text is None and not inner:
                # A line of a longer object may be an object, too; its text is then needed as it stands.
                yield line or value
                return
            for each in inner:
                if each is not text:
                    yield from self._value(each, "", depth + 1)
            if text is not None:
                yield from self._text(text, depth, cut="log" in value)

    def _text(self, text: str, depth: int, *, cut: bool) -> Iterator[str | dict[str, Any]]:
        if cut:
            ends = text.endswith("\n")
            if not ends and (self._ends or not self._parts):
                self._parts.append(text)
                return
            self._ends |= ends
            joins = "" if self._ends else "\n"
            text, self._parts = joins.join([*self._parts, text]), []
        for line in text.splitlines():
            yield from self._line(line.strip(), depth + 1)


def is_progress(entry: Any) -> bool:
    """Whether an object is query progress; that of Spark 2 need not number its micro-batches."""
    return isinstance(entry, dict) and "sources" in entry and ("batchId" in entry or "durationMs" in entry)


def whole(line: str) -> Any:
    """The object, array or string that is a whole line but for a comma behind it; None for other lines."""
    line = line.rstrip(",")
    if line[:1] not in ("{", "[", '"') or line[-1] not in '}]"':
        return None
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        try:
            value = json.loads(line)  # unlike msgspec it accepts NaN
        except (ValueError, RecursionError):
            return None
    # A string alone is a line that a notebook keeps, or holds progress; others are parts of a longer object.
    return value if isinstance(value, dict | list) or _has_marks(value) or str(value).endswith("\n") else None


def texts_in(value: Any, depth: int = 0) -> Iterator[str]:
    """The lines of text that the entries of lists within a value carry, in order."""
    if depth > DEEPEST:
        return
    if isinstance(value, dict) and (text := _text(value)) is not None:
        yield from text.splitlines()
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from texts_in(each, depth + 1)


def _text(value: dict[str, Any]) -> str | None:
    """The line of text that a log's object carries; None if it carries none."""
    for place in (value, *(value[name] for name in WITHIN if isinstance(value.get(name), dict))):
        for name in TEXTS:
            if isinstance(place.get(name), str):
                return str(place[name])
    return None


def _inside(value: Any, depth: int = 0) -> Iterator[Any]:
    """The progress, and the texts with progress, within an object."""
    if depth > DEEPEST:
        return
    for each in value.values() if isinstance(value, dict) else value:
        if isinstance(each, str):
            if _has_marks(each):
                yield each
        elif is_progress(each) or (isinstance(each, dict) and "idle" in each):
            yield each
        elif isinstance(each, dict | list):
            yield from _inside(each, depth + 1)


def _has_marks(text: Any) -> bool:
    return isinstance(text, str) and any(mark in text for mark in MARKS)


def _plain(line: str) -> str:
    """The line without the quoting of CSV, of HTML, or of a string in a string."""
    if "&quot;" in line:
        line = html.unescape(line)
    if _has_marks(line):
        if any(f'""{mark}""' in line for mark in MARKS):
            line = line.replace('""', '"')
        elif any(f'\\"{mark}\\"' in line for mark in MARKS):
            line = line.replace("\\n", " ").replace('\\"', '"')
    return line
