"""Text files: their encoding and compression, and the division of CSV lines into fields."""

import bz2
import codecs
import csv
import gzip
import io
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

LONGEST = 10_000
"""The most lines in a quoted CSV field. A longer one has an unclosed quote, which must not swallow the rest of the file."""

STRANGE = "\udcff"
"""Replaces bytes that are invalid in a file's encoding. A lone surrogate, so no valid text contains it."""

_FIELD = re.compile(r'(?:\A|,)("(?:[^"]|"")*"[^,]*|[^,]*)')
"""Matches a field of a line of CSV, with its quotes."""
_MARKS = {
    "utf-16": b"",  # its decoder reads the mark, which tells the byte order
    "utf-32": b"",
    "utf-16-le": codecs.BOM_UTF16_LE,
    "utf-16-be": codecs.BOM_UTF16_BE,
    "utf-32-le": codecs.BOM_UTF32_LE,
    "utf-32-be": codecs.BOM_UTF32_BE,
}
"""Byte order marks by encoding. For all others it is UTF-8's, which some programs write before text of any encoding."""
_UNPACKED = {".gz": gzip.open, ".bz2": bz2.open}


def _strange(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return STRANGE, error.end


codecs.register_error("penstock.strange", _strange)
csv.field_size_limit(2**31 - 1)  # the default limit is too small for real files


def text_in(path: Path, encoding: str | None, newline: str | None = "") -> io.TextIOWrapper:
    """Open a file as text. A byte order mark is skipped, and bytes that are invalid in the encoding become `STRANGE`."""
    codec_name = codecs.lookup(encoding or "utf-8").name
    content, mark = unpacked(path), _MARKS.get(codec_name, codecs.BOM_UTF8)
    if content.read(len(mark)) != mark:
        content.seek(0)
    return io.TextIOWrapper(content, encoding=codec_name, errors="penstock.strange", newline=newline)


def unpacked(path: Path) -> IO[bytes]:
    """Open a file as bytes, decompressed if its suffix is ``.gz`` or ``.bz2``."""
    file: IO[bytes] = path.open("rb")
    unpack: Any = _UNPACKED.get(path.suffix)
    return file if unpack is None else unpack(file)


def is_packed(path: Path) -> bool:
    """Whether a file is compressed, so that it can only be read from its beginning."""
    return path.suffix in _UNPACKED


class Records:
    """Divides CSV into records, each a list of fields, and skips blank lines. The record's text is in ``raw``.

    A record with misplaced quotes is an empty list and sets ``fault``. After an unclosed quote, reading goes on at the line
    below the quote's.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self._read: list[str] = []
        self._again: deque[str] = deque()
        self.fault: str | None = None

    def __iter__(self) -> Iterator[list[str]]:
        reader = csv.reader(self._noted(), strict=True)
        while True:
            self._read.clear()
            self.fault = None
            try:
                fields = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                fields = []
                self.fault = f"its quotes are not in order ({error}); a quote within a quoted field is written twice"
                self._again.extendleft(reversed(self._read[1:]))
                del self._read[1:]
                reader = csv.reader(self._noted(), strict=True)  # the former reader is exhausted
            if fields or self.fault is not None:
                yield fields

    def header(self) -> list[str]:
        """Return the fields of the first record; an empty list for an empty file."""
        return next(iter(self), [])

    @property
    def raw(self) -> str:
        """The text of the last record; several lines, if a quoted field contains line breaks."""
        return "".join(self._read).rstrip("\r\n")

    def missing(self, fields: list[str]) -> set[int]:
        """Return the indices of the last record's fields that are empty and not quoted."""
        empty = {place for place, field in enumerate(fields) if field == ""}
        if empty and '""' in self.raw:
            spellings = _FIELD.findall(self.raw)
            if len(spellings) == len(fields):
                empty = {place for place in empty if not spellings[place].startswith('"')}
        return empty

    def _noted(self) -> Iterator[str]:
        while (line := self._again.popleft() if self._again else next(self._lines, None)) is not None:
            self._read.append(line)
            if len(self._read) > LONGEST:
                raise csv.Error(f"a quote is open for more than {LONGEST:,} lines")
            yield line


def misnamed(header: Sequence[str], needed: Iterable[str], fields: Iterable[str]) -> str | None:
    """Explain why the columns in a CSV file's header do not match an event type; None if they may.

    Args:
        needed: the event's fields that have no default.
        fields: all of its fields.
    """
    field_names = list(fields)
    shown = ", ".join(map(repr, header[:20])) or "none"
    if any(STRANGE in name for name in header):
        return "its first line is not in the encoding that is read; name it, as ?encoding=latin-1"
    doubled = next((name for name in field_names if header.count(name) > 1), None)
    if doubled is not None:
        return f"it names {doubled!r} twice; name each field once"
    similar = {name.strip().casefold(): name for name in header if name not in field_names}
    for name in field_names:
        if name not in header and name.casefold() in similar:
            return f"it names {similar[name.casefold()]!r}, which is not {name!r}; write it just so"
    lacking = next((name for name in needed if name not in header), None)
    if lacking is not None:
        return f"it has no column {lacking!r}; it names {shown}"
    if field_names and not any(name in header for name in field_names):
        return f"it has none of the columns {', '.join(field_names[:20])}; it names {shown}"
    return None
