"""Files that are there whole or not at all, and are on disk once the call returns."""

import os
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path

SPARE = 0.5
"""A file of lines is shortened once it has so many times more of them than it is to keep."""


def write(path: Path, content: str | bytes) -> None:
    """Put a file in the place of the one that is there, if there is one."""
    draft = path.with_name(f".{path.name}.draft")
    with draft.open("wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def shorten(path: Path, lines: int, keep: int, summed: Callable[[Iterable[bytes]], bytes]) -> int:
    """Put one line in the place of a file's oldest lines, if it has too many.

    Parameters
    ----------
    lines: how many it has; keep: how many of them are to stay.
    summed: makes the line for those that go.

    Returns how many lines it has then.
    """
    if lines <= 1 + keep * (1 + SPARE):  # one is the sum of what went before
        return lines
    with path.open("rb") as file:
        total = summed(islice(file, lines - keep))
        rest = file.read()
    write(path, total + b"\n" + rest)
    return keep + 1
