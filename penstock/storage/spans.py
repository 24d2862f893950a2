"""Spans of files: the lines that begin in one part of a file, so that several workers read a file between them."""

import re
from collections.abc import Iterator
from typing import IO

AT_ONCE = 1 << 18
"""Bytes that are read at a time; more within a line that is longer. For a megabyte the allocator gets memory from the system
anew each time, and reading takes three times as long.
"""
_END = re.compile(rb"\r\n?|\n")
"""Matches what ends a line."""


def lines_in(file: IO[bytes], begin: int = 0, end: int | None = None) -> Iterator[list[bytes]]:
    """Yield the lines whose first byte lies in a span of a file, without their ends, some at a time.

    A line ends with ``\\n``, ``\\r`` or both, as Spark reads text; of the last line the end may be missing. Spans that follow
    each other yield each line of a file once.

    Args:
        begin: the first byte of the span.
        end: the byte behind the span; None for the rest of the file.
    """
    at = max(0, begin - 1)  # of the byte before the span, which tells whether a line begins with it
    file.seek(at)
    held, inside, more = b"", begin == 0, True
    while more and (end is None or at < end):
        chunk = file.read(max(AT_ONCE, len(held)))
        more, held = bool(chunk), held + chunk
        whole = _whole(held) if more else len(held)
        if not inside:
            first = _END.search(held, 0, whole)
            if first is None:  # a line that began before goes on
                at, held = at + whole, held[whole:]
                continue
            at, held, whole, inside = at + first.end(), held[first.end() :], whole - first.end(), True
            if end is not None and at >= end:
                return
        if end is not None and at + whole > end:
            last = _END.search(held, end - at - 1, whole)
            if last is not None:
                whole, more = last.end(), False
        if whole:
            yield held[:whole].splitlines()
        at, held = at + whole, held[whole:]


def _whole(held: bytes) -> int:
    """Return how many of some bytes belong to lines of which the end is there: a ``\\r`` may be half of one."""
    return max(held.rfind(b"\n"), held.rfind(b"\r", 0, len(held) - 1)) + 1
