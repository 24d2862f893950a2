"""The files of a recording and their lines, which may be packed."""

import re
import sys
from collections.abc import Iterator
from io import BufferedReader, TextIOWrapper
from pathlib import Path
from typing import IO, Any, cast

from penstock.errors import SourceError
from penstock.runs.files import MANIFEST, PROGRESS

STANDARD_INPUT = ("-", "/dev/stdin")
COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2", b"\x04\x22\x4d\x18": "lz4"}
"""Compressions by the first bytes of a file."""
OF_SPARK_ALONE = {b"LZ4Block": "lz4", b"\x82SNAPPY": "snappy", b"ZV": "lzf"}
"""Compressions of event logs in formats of Spark's own, which are not read here, by the first bytes of a file."""
WIDE = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
"""Encodings of two bytes a character, as PowerShell's ``>`` writes, by the first bytes of a file."""
NO_TEXT = {b"PK\x03\x04": "a zip archive: unpack it", b"PAR1": "Parquet: write its column of progress as JSON lines"}
"""What cannot be read, by the first bytes of a file, and what to do."""

_ROLLING = re.compile(r"events_(\d+)_")
_ROTATED = re.compile(r"\.(\d{1,3})(?:\.[a-z]\w{0,3})?$")


def files_of(path: Path) -> list[Path]:
    """The files of a recording, the oldest first: a single file, a rolling event log, or a directory of logs with those in it.

    Files whose names begin with a dot or an underscore are left out, as by Spark.

    Raises:
        SourceError: the directory has no files, or is one of several runs.
    """
    if not path.is_dir():
        return [path]
    if (path / PROGRESS).exists():
        return [path / PROGRESS]
    runs = sorted(part.name for part in path.iterdir() if (part / MANIFEST).exists() and (part / PROGRESS).exists())
    if len(runs) == 1:
        return [path / runs[0] / PROGRESS]
    if runs:
        raise SourceError(f"{path} holds {len(runs)} runs ({', '.join(runs[:5])}): name one of them, as {path / runs[0]}.")
    parts = [part for part in path.rglob("*") if part.is_file() and not _is_hidden(part.relative_to(path))]
    if not parts:
        raise SourceError(f"{path} is a directory without a file.")
    rotated = {part.with_name(part.name[: match.start()]) for part in parts if (match := _ROTATED.search(part.name))}
    return sorted(parts, key=lambda part: _age(part, part in rotated))


def _is_hidden(path: Path) -> bool:
    return any(name.startswith((".", "_")) for name in path.parts)


def _age(path: Path, newest: bool) -> tuple[str, float, int, str]:
    """What orders files by age: rolling event logs by their number, rotated logs by theirs, downwards, and others by time.

    Args:
        newest: whether it is the log that others were rotated from.
    """
    rolling, rotated = _ROLLING.match(path.name), _ROTATED.search(path.name)
    if rolling is not None:
        return str(path.parent), 0.0, int(rolling[1]), path.name
    if rotated is not None or newest:
        return str(path.parent), 0.0, -int(rotated[1]) if rotated is not None else 0, path.name
    return str(path.parent), path.stat().st_mtime, 0, path.name


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a file, or of standard input for ``-``; decompressed, whatever the name of the file.

    Raises:
        SourceError: it is compressed in a format of Spark's own, or is no text.
        OSError: it cannot be read.
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
        for mark, name in NO_TEXT.items():
            if begins.startswith(mark):
                raise SourceError(f"{path} is {name}.")
        packed = next((name for mark, name in COMPRESSED.items() if begins.startswith(mark)), None)
        wide = next((name for mark, name in WIDE.items() if begins.startswith(mark)), "utf-8-sig")
        yield from _text(buffered, packed, wide, path)


def _text(opened: IO[bytes], packed: str | None, encoding: str, path: Path) -> Iterator[str]:
    import pyarrow as pa

    content = opened if packed is None else BufferedReader(cast(Any, pa.CompressedInputStream(opened, packed)))
    try:
        for number, line in enumerate(TextIOWrapper(cast(Any, content), encoding, errors="replace")):
            if not number and "\0" in line:
                raise SourceError(f"{path} is no text: a recording is text, as it is or packed by gzip, bzip2, zstd or lz4.")
            yield line
    except (OSError, EOFError) as error:
        if packed is None or isinstance(error, SourceError):
            raise
        raise SourceError(f"{path} begins as {packed} does, and cannot be unpacked ({error}).") from error
