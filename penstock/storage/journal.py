"""Files of lines that one driver appends to, and that another takes over from it.

On a disk a journal is one file. Whoever opens it renames it, which fences off the one that had it open: what that one writes
from then on is in no file of this name, and it looks before it relies on a line. Then the lines are copied to a new file of the
name. A lock is held only meanwhile, never while a line is appended, for a paused process might hold it.

In a store it is a directory of numbered files, each created where there is none of its number. Whoever opens it creates the
next one, a note, and the one that had it finds that number taken, however late it looks: notes are never removed.
"""

import os
import re
import socket
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from penstock.errors import RunLockedError
from penstock.storage import durable
from penstock.storage.alone import alone
from penstock.storage.place import is_local

SPARE = 0.5
"""A journal is shortened once it has so many times more lines than it is to keep."""
FOLDED = 64
"""So many numbered files are then put together into one."""
NOTE = b"#"
"""Begins a line that says who has opened the journal; it is none of its lines."""

Summed = Callable[[Iterable[bytes]], bytes]
"""Makes one line for several that are to go."""


class Journal(ABC):
    """A journal that this process has opened.

    Parameters
    ----------
    keep: how many lines stay as they are; those before become one, their sum.
    synced: whether a line must outlive the machine's failure once `append` returns; in a store it does in any case.
    """

    def __init__(self, path: Path, keep: int, summed: Summed, *, synced: bool = True) -> None:
        self.path, self._keep, self._summed, self._synced = path, max(1, keep), summed, synced

    @abstractmethod
    def append(self, line: bytes) -> None:
        """Add a line, and rely on it once this returns.

        Raises
        ------
        RunLockedError: another process has opened the journal since; what becomes of the line is that one's to say.
        """

    def lines(self) -> Iterator[bytes]:
        """All lines, in order."""
        return lines_of(self.path)

    @abstractmethod
    def close(self) -> None:
        """Append no more."""

    def _shortened(self, lines: list[bytes]) -> list[bytes]:
        if len(lines) <= 1 + self._keep * (1 + SPARE):  # one is the sum of what went before
            return lines
        return [self._summed(islice(lines, len(lines) - self._keep)), *lines[-self._keep :]]

    def _lost(self) -> RunLockedError:
        return RunLockedError(
            f"Another driver has taken over {self.path.parent.name}, or its directory was moved ({self.path} is no longer "
            "what this one writes), so this one has stopped and commits nothing more. Nothing is lost: the other goes on, or "
            "start the run again where it is now."
        )


def opened(path: Path, keep: int, summed: Summed, *, synced: bool = True) -> Journal:
    """Open a journal to append to it, and fence off whoever has it open."""
    return (_DiskJournal if is_local(path) else _StoreJournal)(path, keep, summed, synced=synced)


def begin(path: Path, line: bytes) -> None:
    """Make a journal of one line, where there is none yet, or one that nothing relies on."""
    if is_local(path):
        durable.write(path, line + b"\n")
    else:
        clear(path)
        add(path, line)


def add(path: Path, line: bytes, *, synced: bool = False) -> None:
    """Append a line to a journal that nobody needs to own."""
    if is_local(path):
        with durable.private(path, "ab+") as file:
            if file.seek(0, os.SEEK_END) and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n":
                file.write(b"\n")  # a kill has torn the last one
            file.write(line + b"\n")
            if synced:
                durable.sync(file)
                durable.sync_names(path.parent)
        return
    number = max((number for number, _ in _entries(path)), default=-1) + 1
    while not durable.create(_entry(path, number), line + b"\n"):
        number += 1


def lines_of(path: Path) -> Iterator[bytes]:
    """The whole lines of a journal, whoever has it open; none where there is no such journal."""
    if is_local(path):
        for place in (path, _aside(path), path):  # while it is taken over, it is aside
            with suppress(FileNotFoundError):
                yield from _whole_lines(place)
                return
        return
    while True:
        try:
            yield from list(_lines_in(_entries(path)))
            return
        except FileNotFoundError:  # its files were put together meanwhile
            continue


def extent(path: Path) -> int:
    """What grows as lines come: a size, or the number of the last file."""
    return path.stat().st_size if is_local(path) else max((number for number, _ in _entries(path)), default=-1)


def lines_after(path: Path, number: int) -> tuple[list[bytes], int, bool]:
    """The lines of a journal in a store that come after one of its files.

    Returns them, the last file's number, and whether they are all lines, since those before were put together meanwhile.
    """
    while True:
        there = _entries(path)
        folded = max((one for one, entry in there if entry.suffix == ".lines"), default=-1)
        anew = folded > number
        wanted = there if anew else [(one, entry) for one, entry in there if one > number]
        with suppress(FileNotFoundError):
            return list(_lines_in(wanted)), max((one for one, _ in there), default=number), anew


def clear(path: Path) -> None:
    """Remove the lines of a journal, if it is there, and fence off whoever has it open."""
    if is_local(path):
        remove(path)
    elif there := _entries(path):
        last = there[-1][0] + 1
        if not durable.create(_entry(path, last), _note()):
            raise RunLockedError(f"Another driver writes {path} at this moment: stop it, or give this run another --name.")
        durable.write(_folded(path, last), b"")
        _drop(there)


def remove(path: Path) -> None:
    """Remove a journal, if it is there."""
    if is_local(path):
        path.unlink(missing_ok=True)
        _aside(path).unlink(missing_ok=True)
    else:
        durable.remove(path)


class _DiskJournal(Journal):
    def __init__(self, path: Path, keep: int, summed: Summed, *, synced: bool = True) -> None:
        super().__init__(path, keep, summed, synced=synced)
        durable.make(path.parent)
        with alone(path):
            with suppress(FileNotFoundError):
                path.rename(_aside(path))
            self._copy()

    def append(self, line: bytes) -> None:
        if not self._is_ours():
            raise self._lost()
        self._file.write(line + b"\n")
        self._file.flush()
        if self._synced:
            os.fsync(self._file.fileno())
        if not self._is_ours():
            raise self._lost()
        self._count += 1
        if self._count > 1 + self._keep * (1 + SPARE):
            self._shorten()

    def close(self) -> None:
        self._file.close()

    def _is_ours(self) -> bool:
        """Whether the file of this name is the one that is written to."""
        return _is(self._file.fileno(), self.path)

    def _shorten(self) -> None:
        """Take the journal over from oneself."""
        with alone(self.path):
            if not self._is_ours():
                raise self._lost()
            self.path.rename(_aside(self.path))
            self._file.close()
            self._copy()

    def _copy(self) -> None:
        """Make the file of this name one of our own, with the lines that were set aside."""
        aside, draft = _aside(self.path), self.path.with_name(f".{self.path.name}.draft")
        lines = self._shortened(list(_whole_lines(aside))) if aside.exists() else []
        self._file, self._count = durable.private(draft, "wb"), len(lines)
        self._file.write(b"".join(line + b"\n" for line in lines))
        durable.sync(self._file)
        try:
            draft.rename(self.path)
        except FileNotFoundError:  # who discards the run has not waited for who is paused here
            raise self._lost() from None
        durable.sync_names(self.path.parent)
        aside.unlink(missing_ok=True)


class _StoreJournal(Journal):
    def __init__(self, path: Path, keep: int, summed: Summed, *, synced: bool = True) -> None:
        super().__init__(path, keep, summed, synced=synced)
        self._closed = False
        while True:
            there = _entries(path)
            self._last = max((number for number, _ in there), default=-1) + 1
            self._unfolded = len(there) + 1
            if durable.create(_entry(path, self._last), _note()):
                return

    def append(self, line: bytes) -> None:
        if self._closed:
            raise ValueError("the journal is closed")
        entry, content = _entry(self.path, self._last + 1), line + b"\n"
        if (
            not durable.create(entry, content) and durable.read(entry) != content
        ):  # an answer may be lost, and the request repeated
            raise self._lost()
        self._last += 1
        self._unfolded += 1
        if self._unfolded > FOLDED:
            self._fold()

    def close(self) -> None:
        self._closed = True

    def _fold(self) -> None:
        """Put all files together into one. What another has written since has greater numbers, and stays."""
        there = [(number, entry) for number, entry in _entries(self.path) if number <= self._last]
        try:
            lines = self._shortened(list(_lines_in(there)))
        except FileNotFoundError:  # another has put them together
            raise self._lost() from None
        durable.write(_folded(self.path, self._last), b"".join(line + b"\n" for line in lines))
        _drop(there)
        self._unfolded = 1


def _is(file: int, path: Path) -> bool:
    """Whether a file that is open has a name."""
    here = os.fstat(file)
    with suppress(OSError):
        there = path.stat()
        return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)
    return False


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.taken")


def _whole_lines(path: Path) -> Iterator[bytes]:
    """Without a torn last one, which nothing relied on."""
    with path.open("rb") as file:
        yield from (line[:-1] for line in file if line.endswith(b"\n"))


def _entry(path: Path, number: int) -> Path:
    return path / f"{number:012d}.line"


def _folded(path: Path, number: int) -> Path:
    """What holds all lines up to a number."""
    return path / f"{number:012d}.lines"


def _entries(path: Path) -> list[tuple[int, Path]]:
    """The files of a journal in a store, in order; one that holds others comes after the one of its number."""
    found = (re.fullmatch(r"(\d+)\.lines?", name) for name in durable.names(path))
    return [(int(match[1]), path / match[0]) for match in sorted(filter(None, found), key=lambda match: match[0])]


def _note() -> bytes:
    """Says who has opened a journal; no two are the same."""
    return f"{NOTE.decode()} {socket.gethostname()}, process {os.getpid()}, {uuid.uuid4().hex}\n".encode()


def _drop(entries: list[tuple[int, Path]]) -> None:
    """Remove files whose lines are in another, but for the notes: a driver that wakes is to find its number taken."""
    for _, entry in entries:
        with suppress(FileNotFoundError):
            if entry.suffix == ".lines" or not durable.read(entry).startswith(NOTE):
                entry.unlink(missing_ok=True)


def _lines_in(entries: list[tuple[int, Path]]) -> Iterator[bytes]:
    """The lines of those files that are not put together in another, in order."""
    base = max((place for place, (_, entry) in enumerate(entries) if entry.suffix == ".lines"), default=0)
    for _, entry in entries[base:]:
        yield from (line for line in durable.read(entry).splitlines() if not line.startswith(NOTE))
