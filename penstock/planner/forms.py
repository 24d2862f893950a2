"""The forms in which people have progresses: lines out of files that may be compressed, and the objects within the lines.

A progress is found wherever it stands: a line of JSON, an array or objects one after another over many lines, what Python
prints of ``lastProgress``, in the text of a driver's log, or as a text within a structured log or a platform's event.
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
"""By how a file begins."""
OF_SPARK_ALONE = {b"LZ4Block": "lz4", b"\x82SNAPPY": "snappy", b"ZV": "lzf"}
"""What Spark writes event logs with, in a way of its own."""
LONGEST = 200_000
"""Lines that one object may have."""
WITHIN = ("log", "message", "msg", "details", "progress", "event", "stream_progress", "jsonPayload", "textPayload")
"""Under which names logs and platforms hold what a program said."""


def files_of(path: Path) -> list[Path]:
    """The files of a recording, the oldest first: one, those of a rolling event log, or those of a directory of logs.

    Raises
    ------
    SourceError: there are none.
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
    """The lines of a file, or of standard input where it is called ``-``; unpacked, whatever it is called.

    Raises
    ------
    SourceError: it is packed as only Spark can unpack it, or is no text. OSError: it cannot be read.
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
    """The objects in lines of whatever is around them.

    ``torn`` counts what began as one and did not end.
    """

    def __init__(self) -> None:
        self.torn = 0

    def of(self, lines: Iterable[str]) -> Iterator[Any]:
        """Each object, in order."""
        begun: list[str] = []
        depth = 0
        for raw in lines:
            line = raw.strip()
            if not line:
                continue
            whole = _whole(line)
            if isinstance(whole, dict) and isinstance(said := whole.get("log"), str):  # as containers keep each line
                line = said.strip()
                whole = _whole(line)
            if not line:
                continue
            if whole is not None:
                if begun and not _is_said(whole):  # a line of a longer object may be one, too
                    begun.append(line)
                    continue
                self.torn += bool(begun)
                begun, depth = [], 0
                yield from self._within(whole)
                continue
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
        """What is in an array, or in a text within an object."""
        if isinstance(found, list):
            for each in found:
                yield from self._within(each, depth)
        elif isinstance(found, str):
            yield from self.of(found.splitlines())
        elif isinstance(found, dict):
            inner = [found[name] for name in WITHIN if isinstance(found.get(name), str | dict)]
            inner = [one for one in inner if isinstance(one, dict) or "batchId" in one or "durationMs" in one]
            if is_progress(found) or "Event" in found or not inner or depth > 4:
                yield found
            for one in () if is_progress(found) or "Event" in found else inner:
                yield from self._within(one, depth + 1)


def is_progress(entry: Any) -> bool:
    """Whether an object is a progress, be it of Spark 2, which numbers no micro-batches."""
    return isinstance(entry, dict) and "sources" in entry and ("batchId" in entry or "durationMs" in entry)


def _is_said(whole: Any) -> bool:
    """Whether an object in one line is one of its own, and not a part of a longer one."""
    if isinstance(whole, list):
        return any(map(_is_said, whole))
    return isinstance(whole, dict) and (is_progress(whole) or bool({"Event", *WITHIN} & whole.keys()))


def _whole(line: str) -> Any:
    """What a line holds, if that is an object, an array, or a text with one."""
    if line[:1] not in ("{", "[", '"') or line[-1] not in '}]"':
        return None
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        try:
            found = json.loads(line)  # which knows NaN
        except (ValueError, RecursionError):
            return None
    return found if isinstance(found, dict | list) or "batchId" in str(found) else None


_SAID = re.compile(r"""progress: *(?=[{\[])|^(?=[{\[])|(?=\{ ?['"](?:id|runId|batchId)['"])""")


def _opening(line: str) -> int | None:
    """Where in a line an object begins that may be a progress, or several."""
    found = _SAID.search(line)
    return None if found is None else found.end()


_QUOTED = re.compile(r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'""")


def _deeper(line: str) -> int:
    bare = _QUOTED.sub("", line)
    return bare.count("{") + bare.count("[") - bare.count("}") - bare.count("]")


def _parsed(text: str) -> Any:
    """An object as JSON has it, or as Python prints it; None where it is neither."""
    end = max(text.rfind("}"), text.rfind("]")) + 1
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text[:end])
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return _several(text)


def _several(text: str) -> list[Any] | None:
    """Objects one after another."""
    decode, found, at = json.JSONDecoder().raw_decode, list[Any](), 0
    while at < len(text):
        try:
            made, at = decode(text, at)
        except (ValueError, RecursionError):
            return found or None
        found.append(made)
        while at < len(text) and text[at] in ", \n\r\t":
            at += 1
    return found
