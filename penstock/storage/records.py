"""Text in files: its encoding, its packing, and, of CSV, its lines divided into fields."""

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
"""Lines of a quoted field: beyond, it is a quote that nothing closes, and not the rest of the file."""

STRANGE = "\udcff"
"""Stands for bytes that are not of a file's encoding: no text holds it."""

_FIELD = re.compile(r'(?:\A|,)("(?:[^"]|"")*"[^,]*|[^,]*)')
"""A field of a line of CSV, with its quotes."""
_MARKS = {
    "utf-16": b"",  # which reads its own, for the mark says the order of bytes
    "utf-32": b"",
    "utf-16-le": codecs.BOM_UTF16_LE,
    "utf-16-be": codecs.BOM_UTF16_BE,
    "utf-32-le": codecs.BOM_UTF32_LE,
    "utf-32-be": codecs.BOM_UTF32_BE,
}
"""The bytes that mark an encoding at a file's beginning; UTF-8's for the others, for some programs write it before any."""
_UNPACKED = {".gz": gzip.open, ".bz2": bz2.open}


def _strange(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return STRANGE, error.end


codecs.register_error("penstock.strange", _strange)
csv.field_size_limit(2**31 - 1)  # the module's own is below what people have


def text_in(path: Path, encoding: str | None, newline: str | None = "") -> io.TextIOWrapper:
    """A file's text; a mark at its beginning is none, and what is not of the encoding is `STRANGE`."""
    coding = codecs.lookup(encoding or "utf-8").name
    content, mark = unpacked(path), _MARKS.get(coding, codecs.BOM_UTF8)
    if content.read(len(mark)) != mark:
        content.seek(0)
    return io.TextIOWrapper(content, encoding=coding, errors="penstock.strange", newline=newline)


def unpacked(path: Path) -> IO[bytes]:
    """A file's bytes, unpacked as its suffix says."""
    file: IO[bytes] = path.open("rb")
    unpack: Any = _UNPACKED.get(path.suffix)
    return file if unpack is None else unpack(file)


class Records:
    """The lines of CSV that are not blank, divided into fields, and each as it stands.

    A line whose quotes are not in order has no fields, and a ``fault``; after a quote that nothing closes, the next line is
    looked at by itself.
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
                reader = csv.reader(self._noted(), strict=True)  # the other has seen the end
            if fields or self.fault is not None:
                yield fields

    def header(self) -> list[str]:
        """The first of them; none of an empty file."""
        return next(iter(self), [])

    @property
    def raw(self) -> str:
        """The line that was divided last; a quoted field may hold several."""
        return "".join(self._read).rstrip("\r\n")

    def missing(self, fields: list[str]) -> set[int]:
        """Which of its fields are empty, and have no quotes."""
        empty = {place for place, field in enumerate(fields) if field == ""}
        if empty and '""' in self.raw:
            spelled = _FIELD.findall(self.raw)
            if len(spelled) == len(fields):
                empty = {place for place in empty if not spelled[place].startswith('"')}
        return empty

    def _noted(self) -> Iterator[str]:
        while (line := self._again.popleft() if self._again else next(self._lines, None)) is not None:
            self._read.append(line)
            if len(self._read) > LONGEST:
                raise csv.Error(f"a quote is open for more than {LONGEST:,} lines")
            yield line


def misnamed(header: Sequence[str], needed: Iterable[str], fields: Iterable[str]) -> str | None:
    """Why a file's columns are not those of an event; None where they may be.

    Parameters
    ----------
    needed: the fields without which there is none. fields: all of them.
    """
    known = list(fields)
    shown = ", ".join(map(repr, header[:20])) or "none"
    if any(STRANGE in name for name in header):
        return "its first line is not in the encoding that is read; name it, as ?encoding=latin-1"
    twice = next((name for name in known if header.count(name) > 1), None)
    if twice is not None:
        return f"it names {twice!r} twice; name each field once"
    near = {name.strip().casefold(): name for name in header if name not in known}
    for name in known:
        if name not in header and name.casefold() in near:
            return f"it names {near[name.casefold()]!r}, which is not {name!r}; write it just so"
    lacking = next((name for name in needed if name not in header), None)
    if lacking is not None:
        return f"it has no column {lacking!r}; it names {shown}"
    if known and not any(name in header for name in known):
        return f"it has none of the columns {', '.join(known[:20])}; it names {shown}"
    return None
