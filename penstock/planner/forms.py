"""The forms in which users keep query progress: reads lines from files that may be compressed, and the objects in the lines.

Progress is found as a line of JSON; as an array, or as objects one after another, over many lines; as Python prints
``lastProgress``; in the text of a driver's log; or as a string within a structured log or a platform's event.
"""

import ast
import json
import re
import sys
from collections.abc import Iterable, Iterator
from io import BufferedReader, TextIOWrapper
from pathlib import Path
from typing import IO, Any, cast

import msgspec

from penstock.errors import SourceError
from penstock.runs.files import PROGRESS

STANDARD_INPUT = ("-", "/dev/stdin")
COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2", b"\x04\x22\x4d\x18": "lz4"}
"""Compressions by the first bytes of a file."""
OF_SPARK_ALONE = {b"LZ4Block": "lz4", b"\x82SNAPPY": "snappy", b"ZV": "lzf"}
"""Compressions of event logs in formats of Spark's own, which are not read here, by the first bytes of a file."""
LONGEST = 200_000
"""The most lines of one object."""
WITHIN = ("log", "message", "msg", "details", "progress", "event", "stream_progress", "jsonPayload", "textPayload")
"""Names of the fields in which logs and platforms keep the text that a program wrote."""


def files_of(path: Path) -> list[Path]:
    """The files of a recording, the oldest first: a single file, a rolling event log, or a directory of logs.

    Raises
    ------
    SourceError: the directory has no files.
    """
    if not path.is_dir():
        return [path]
    if (path / PROGRESS).exists():
        return [path / PROGRESS]
    rolling = [part for part in path.glob("events_*") if re.match(r"events_\d+", part.name)]
    parts = sorted(rolling, key=lambda part: int(part.name.split("_")[1]))
    parts = parts or sorted((part for part in path.iterdir() if part.is_file()), key=lambda part: part.stat().st_mtime)
    if not parts:
        raise SourceError(f"{path} is a directory without a file.")
    return parts


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a file, or of standard input for ``-``; decompressed, whatever the name of the file.

    Raises
    ------
    SourceError: it is compressed in a format of Spark's own, or is no text. OSError: it cannot be read.
    """
    standard = str(path) in STANDARD_INPUT
    if standard and sys.stdin.buffer.closed:
        raise SourceError(f"{path} is standard input, which has been read already: name it once.")
    opened: IO[bytes] = sys.stdin.buffer if standard else path.open("rb")
    with opened:
        buffered = opened if isinstance(opened, BufferedReader) else BufferedReader(cast(Any, opened))
        begins = buffered.peek(8)[:8]
        for mark, name in OF_SPARK_ALONE.items():
            if begins.startswith(mark):
                raise SourceError(
                    f"{path} is compressed with Spark's {name}, which only Spark unpacks: set "
                    "spark.eventLog.compression.codec to zstd for the next recording, or give the progress as JSON lines."
                )
        packed = next((name for mark, name in COMPRESSED.items() if begins.startswith(mark)), None)
        yield from _text(buffered, packed, path)


def _text(opened: IO[bytes], packed: str | None, path: Path) -> Iterator[str]:
    import pyarrow as pa

    content = opened if packed is None else BufferedReader(cast(Any, pa.CompressedInputStream(opened, packed)))
    try:
        for number, line in enumerate(TextIOWrapper(cast(Any, content), "utf-8-sig", errors="replace")):
            if not number and "\0" in line:
                raise SourceError(f"{path} is no text: a recording is text, as it is or packed by gzip, bzip2, zstd or lz4.")
            yield line
    except (OSError, EOFError) as error:
        if packed is None:
            raise
        raise SourceError(f"{path} begins as {packed} does, and cannot be unpacked ({error}).") from error


class Objects:
    """Finds JSON objects in lines that may contain anything else, too.

    ``torn`` counts the objects that began and did not end.
    """

    def __init__(self) -> None:
        self.torn = 0

    def of(self, lines: Iterable[str]) -> Iterator[Any]:
        """Yield each object, in order."""
        begun: list[str] = []
        depth = 0
        for raw in lines:
            line = raw.strip()
            if not line:
                continue
            whole = _whole(line)
            if isinstance(whole, dict) and isinstance(text := whole.get("log"), str):  # the log of a container
                line = text.strip()
                whole = _whole(line)
            if not line:
                continue
            if whole is not None:
                if begun and not _is_said(whole):  # a line of a longer object may be an object, too
                    begun.append(line)
                    continue
                self.torn += bool(begun)
                begun, depth = [], 0
                yield from self._within(whole)
                continue
            # The object has several lines: collect them until its brackets are balanced.
            if not begun:
                opening = _opening(line)
                if opening is None:
                    continue
                line = line[opening:]
            depth += _deeper(line)
            begun.append(line)
            if depth <= 0 or len(begun) > LONGEST:
                made = _parsed("\n".join(begun))
                self.torn += made is None
                begun, depth = [], 0
                if made is not None:
                    yield from self._within(made)
        self.torn += bool(begun)

    def _within(self, found: Any, depth: int = 0) -> Iterator[Any]:
        """Yield the objects in a value: the items of an array, and those in the texts within an object."""
        if isinstance(found, list):
            for each in found:
                yield from self._within(each, depth)
        elif isinstance(found, str):
            yield from self.of(found.splitlines())
        elif isinstance(found, dict):
            inner = [found[name] for name in WITHIN if isinstance(found.get(name), str | dict)]
            inner = [part for part in inner if isinstance(part, dict) or "batchId" in part or "durationMs" in part]
            if is_progress(found) or "Event" in found or not inner or depth > 4:
                yield found
            for part in () if is_progress(found) or "Event" in found else inner:
                yield from self._within(part, depth + 1)


def is_progress(entry: Any) -> bool:
    """Whether an object is query progress; that of Spark 2 need not number its micro-batches."""
    return isinstance(entry, dict) and "sources" in entry and ("batchId" in entry or "durationMs" in entry)


def _is_said(whole: Any) -> bool:
    """Whether an object in one line stands for itself, and is not a part of a longer object."""
    if isinstance(whole, list):
        return any(map(_is_said, whole))
    return isinstance(whole, dict) and (is_progress(whole) or bool({"Event", *WITHIN} & whole.keys()))


def _whole(line: str) -> Any:
    """The object or array in a line, or a string that holds progress; None for other lines."""
    if line[:1] not in ("{", "[", '"') or line[-1] not in '}]"':
        return None
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        try:
            value = json.loads(line)  # unlike msgspec it accepts NaN
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict | list) or "batchId" in str(value) else None


_SAID = re.compile(r"""progress: *(?=[{\[])|^(?=[{\[])|(?=\{ ?['"](?:id|runId|batchId)['"])""")


def _opening(line: str) -> int | None:
    """The place in a line where an object or array begins that may be progress; None if none does."""
    match = _SAID.search(line)
    return None if match is None else match.end()


_QUOTED = re.compile(r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'""")


def _deeper(line: str) -> int:
    """The number of brackets that a line opens, less those that it closes; brackets in strings do not count."""
    bare = _QUOTED.sub("", line)
    return bare.count("{") + bare.count("[") - bare.count("}") - bare.count("]")


def _parsed(text: str) -> Any:
    """Parse text that is JSON, several JSON objects, or printed by Python; None if it is none of these."""
    end = max(text.rfind("}"), text.rfind("]")) + 1
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text[:end])
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return _several(text)


def _several(text: str) -> list[Any] | None:
    """The JSON objects that follow one another in a text; None if it begins with none."""
    decode, objects, at = json.JSONDecoder().raw_decode, list[Any](), 0
    while at < len(text):
        try:
            made, at = decode(text, at)
        except (ValueError, RecursionError):
            return objects or None
        objects.append(made)
        while at < len(text) and text[at] in ", \n\r\t":
            at += 1
    return objects
