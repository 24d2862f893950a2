"""Journals: append-only files of lines with one writer at a time. A process that opens one fences the writer before it.

On a disk, a journal is one file. A process that opens it renames it and copies the lines to a new file of that name. The former
writer checks that its file still has the name before and after each append, so it notices that it was fenced. A lock is held
only during the copying, never during an append, because a paused process might hold it.

In a store, a journal is a directory of numbered files, and a number can be created only once. A process that opens it creates
the next number, as a note. The former writer then finds that number taken, however late it writes: notes are never removed.
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
from typing import Any

from penstock.errors import PenstockError, RunLockedError
from penstock.storage import durable
from penstock.storage.alone import alone, leads_to, lock_of
from penstock.storage.place import is_local

SPARE = 0.5
"""A journal is shortened once its lines exceed those to keep by this fraction, and by one more."""
FOLDED = 64
"""The files of a journal in a store are merged into one when there are more than this number."""
NOTE = b"#"
"""The first byte of a note, which says which process opened the journal. Readers skip notes."""

Summed = Callable[[Iterable[bytes]], bytes]
"""Makes one line that replaces several: their sum."""


class Journal(ABC):
    """A journal that this process has opened.

    Args:
        keep: how many of the newest lines are kept; older ones are replaced by one line, their sum.
        synced: whether a line must survive a failure of the machine once `append` returns; in a store it always does.
    """

    def __init__(self, path: Path, keep: int, summed: Summed, *, synced: bool = True) -> None:
        self.path, self._keep, self._summed, self._synced = path, max(1, keep), summed, synced

    @abstractmethod
    def append(self, line: bytes) -> None:
        """Append a line. Once this returns, the line is part of the journal.

        Raises:
            RunLockedError: another process has opened the journal since; the line may or may not be part of it.
        """

    def lines(self) -> Iterator[bytes]:
        """Yield all lines, in order."""
        return lines_of(self.path)

    @abstractmethod
    def close(self) -> None:
        """Close the journal; nothing may be appended any more."""

    def _shortened(self, lines: list[bytes]) -> list[bytes]:
        if len(lines) <= 1 + self._keep * (1 + SPARE):  # the 1 is for the sum of older lines
            return lines
        return [self._summed(islice(lines, len(lines) - self._keep)), *lines[-self._keep :]]

    def _lost(self) -> RunLockedError:
        return RunLockedError(
            f"Another driver has taken over {self.path.parent.name}, or its directory was moved ({self.path} is no longer "
            "what this one writes), so this one has stopped and commits nothing more. Nothing is lost: the other goes on, or "
            "start the run again where it is now."
        )


def opened(path: Path, keep: int, summed: Summed, *, synced: bool = True) -> Journal:
    """Open a journal for appending, and fence any process that has it open."""
    return (_DiskJournal if is_local(path) else _StoreJournal)(path, keep, summed, synced=synced)


def begin(path: Path, line: bytes) -> None:
    """Make a journal with one line. A journal that is there is replaced, so nothing may rely on it."""
    if is_local(path):
        durable.write(path, line + b"\n")
    else:
        clear(path)
        add(path, line)


def add(path: Path, line: bytes, *, synced: bool = False) -> None:
    """Append a line to a journal that no process has open, because it needs no single writer."""
    if is_local(path):
        with durable.naming(path), durable.private(path, "ab+") as file:
            if file.seek(0, os.SEEK_END) and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n":
                file.write(b"\n")  # a kill has torn the last line
            file.write(line + b"\n")
            if synced:
                durable.sync(file)
                durable.sync_names(path.parent)
        return
    number = max((number for number, _ in _entries(path)), default=-1) + 1
    while not durable.create(_entry(path, number), line + b"\n"):
        number += 1


def lines_of(path: Path) -> Iterator[bytes]:
    """Yield the whole lines of a journal, even while a process has it open; none if there is no such journal."""
    if is_local(path):
        for place in (path, _aside(path), path):  # during a takeover, it is at the second path
            with suppress(FileNotFoundError):
                yield from _whole_lines(place)
                return
        return
    while True:
        try:
            yield from list(_lines_in(_entries(path)))
            return
        except FileNotFoundError:  # its files were merged meanwhile
            continue


def extent(path: Path) -> int:
    """Return a number that grows with each line: the size in bytes or, in a store, the number of the last file."""
    return path.stat().st_size if is_local(path) else max((number for number, _ in _entries(path)), default=-1)


def lines_after(path: Path, number: int) -> tuple[list[bytes], int, bool]:
    """Return the lines of a journal in a store that come after the file of a number.

    The result is these lines, the last file's number, and True if they are all lines of the journal, because files up to a
    later number were merged meanwhile.
    """
    while True:
        entries = _entries(path)
        last_merged = max((entry_number for entry_number, entry in entries if entry.suffix == ".lines"), default=-1)
        merged = last_merged > number
        unread = entries if merged else [(entry_number, entry) for entry_number, entry in entries if entry_number > number]
        with suppress(FileNotFoundError):
            return list(_lines_in(unread)), max((entry_number for entry_number, _ in entries), default=number), merged


def clear(path: Path) -> None:
    """Remove all lines of a journal, if it exists, and fence any process that has it open.

    On a disk, this waits for a process that is opening it: that would later put its own file in the place of a new journal.
    """
    if is_local(path):
        with alone(path):
            remove(path)
            _draft(path).unlink(missing_ok=True)
            lock_of(path).unlink(missing_ok=True)
    elif entries := _entries(path):
        next_number = entries[-1][0] + 1
        if not durable.create(_entry(path, next_number), _note()):
            raise RunLockedError(f"Another driver writes {path} at this moment: stop it, or give this run another --name.")
        durable.write(_folded(path, next_number), b"")
        _drop(entries)


def remove(path: Path) -> None:
    """Remove a journal, if it is there."""
    if is_local(path):
        path.unlink(missing_ok=True)
        _aside(path).unlink(missing_ok=True)
    else:
        durable.remove(path)


class _DiskJournal(Journal):
    _file: Any
    """The buffered file, with the raw one below it."""

    def __init__(self, path: Path, keep: int, summed: Summed, *, synced: bool = True) -> None:
        super().__init__(path, keep, summed, synced=synced)
        durable.make(path.parent)
        with alone(path):
            with suppress(FileNotFoundError):
                path.rename(_aside(path))
            self._copy(_aside(path))
            _aside(path).unlink(missing_ok=True)

    def append(self, line: bytes) -> None:
        if not self._is_ours():
            raise self._lost()
        start = os.fstat(self._file.fileno()).st_size
        try:
            with durable.naming(self.path):
                self._file.write(line + b"\n")
                self._file.flush()
                if self._synced:
                    os.fsync(self._file.fileno())
        except OSError:
            self._forget(start)
            raise
        if not self._is_ours():
            raise self._lost()
        self._count += 1
        if self._count > 1 + self._keep * (1 + SPARE):
            try:
                self._shorten()
            except OSError as error:  # as on a full disk: the line is kept, and the next one tries again
                if isinstance(error, PenstockError):
                    raise

    def close(self) -> None:
        self._file.close()

    def _forget(self, start: int) -> None:
        """Leave nothing of a line that did not fit, neither on the disk nor in the buffer, which would be written later."""
        if self._is_ours():
            os.ftruncate(self._file.fileno(), start)
            broken, self._file = self._file, durable.private(self.path, "ab")
            with suppress(OSError, ValueError):
                broken.raw.close()  # without what is left in the buffer

    def _is_ours(self) -> bool:
        """Whether the open file still has the journal's name, so that no other process has taken over."""
        return leads_to(self.path, self._file.fileno())

    def _shorten(self) -> None:
        """Put a shorter file in the place of the journal's; if that fails, the journal goes on as it is."""
        with alone(self.path):
            if not self._is_ours():
                raise self._lost()
            before = self._file
            self._copy(self.path)
            before.close()

    def _copy(self, source: Path) -> None:
        """Make a new file of the journal's name, with the last lines of another, and open it."""
        draft = _draft(self.path)
        lines = self._shortened(list(_whole_lines(source))) if source.exists() else []
        file = durable.private(draft, "wb")
        try:
            with durable.naming(self.path):
                file.write(b"".join(line + b"\n" for line in lines))
                durable.sync(file)
                draft.rename(self.path)
        except FileNotFoundError:  # the run was discarded while this process was paused
            file.close()
            raise self._lost() from None
        except OSError:
            with suppress(OSError):
                file.close()
            draft.unlink(missing_ok=True)
            raise
        self._file, self._count = file, len(lines)
        durable.sync_names(self.path.parent)


class _StoreJournal(Journal):
    def __init__(self, path: Path, keep: int, summed: Summed, *, synced: bool = True) -> None:
        super().__init__(path, keep, summed, synced=synced)
        self._closed = False
        while True:
            entries = _entries(path)
            self._last = max((number for number, _ in entries), default=-1) + 1
            self._unfolded = len(entries) + 1
            if durable.create(_entry(path, self._last), _note()):
                return

    def append(self, line: bytes) -> None:
        if self._closed:
            raise ValueError("the journal is closed")
        entry, content = _entry(self.path, self._last + 1), line + b"\n"
        # An equal line is our own: the answer to the first request was lost, and the client repeated the request.
        if not durable.create(entry, content) and durable.read(entry) != content:
            raise self._lost()
        self._last += 1
        self._unfolded += 1
        if self._unfolded > FOLDED:
            self._fold()

    def close(self) -> None:
        self._closed = True

    def _fold(self) -> None:
        """Merge all files into one. Files that another process has written since have greater numbers, and stay."""
        entries = [(number, entry) for number, entry in _entries(self.path) if number <= self._last]
        try:
            lines = self._shortened(list(_lines_in(entries)))
        except FileNotFoundError:  # another process has merged them
            raise self._lost() from None
        durable.write(_folded(self.path, self._last), b"".join(line + b"\n" for line in lines))
        _drop(entries)
        self._unfolded = 1


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.taken")


def _draft(path: Path) -> Path:
    return path.with_name(f".{path.name}.draft")


def _whole_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file without a torn last one, which nothing relied on."""
    with path.open("rb") as file:
        yield from (line[:-1] for line in file if line.endswith(b"\n"))


def _entry(path: Path, number: int) -> Path:
    return path / f"{number:012d}.line"


def _folded(path: Path, number: int) -> Path:
    """Return the path of a merged file, which holds all lines up to a number."""
    return path / f"{number:012d}.lines"


def _entries(path: Path) -> list[tuple[int, Path]]:
    """Return the files of a journal in a store, in order. A merged file comes after the file of the same number."""
    matches = (re.fullmatch(r"(\d+)\.lines?", name) for name in durable.names(path))
    return [(int(match[1]), path / match[0]) for match in sorted(filter(None, matches), key=lambda match: match[0])]


def _note() -> bytes:
    """Return a unique note that names the process that opens a journal."""
    return f"{NOTE.decode()} {socket.gethostname()}, process {os.getpid()}, {uuid.uuid4().hex}\n".encode()


def _drop(entries: list[tuple[int, Path]]) -> None:
    """Remove files that were merged. Notes stay, so that a driver that was paused finds its next number taken."""
    for _, entry in entries:
        with suppress(FileNotFoundError):
            if entry.suffix == ".lines" or not durable.read(entry).startswith(NOTE):
                entry.unlink(missing_ok=True)


def _lines_in(entries: list[tuple[int, Path]]) -> Iterator[bytes]:
    """Yield the lines of the files, in order, from the last merged file on, which contains those before it."""
    base = max((place for place, (_, entry) in enumerate(entries) if entry.suffix == ".lines"), default=0)
    for _, entry in entries[base:]:
        yield from (line for line in durable.read(entry).splitlines() if not line.startswith(NOTE))
