"""Reading a file of JSON lines that may grow while it is read."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from penstock.storage.journal import lines_after
from penstock.storage.place import is_local

CHUNK = 4 << 20


class FileTail:
    """Reads each whole line of a file once. Begins again at the first line if the file was replaced."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._at = 0
        self._inode = 0

    def lines(self, anew: Callable[[], None] = lambda: None) -> Iterator[bytes]:
        """Yield the whole lines that were added since the last call; none if there is no file.

        Args:
            anew: called if the file was replaced, before its lines are yielded from the first one on.
        """
        if not is_local(self.path):
            complete, self._at, replaced = lines_after(self.path, self._at - 1)
            self._at += 1
            if replaced:
                anew()
            yield from complete
            return
        with suppress(FileNotFoundError), self.path.open("rb") as file:
            state = os.fstat(file.fileno())  # of this file, which another may have replaced by now
            if state.st_size < self._at or (self._inode and state.st_ino != self._inode):
                self._at = 0
                anew()
            self._inode = state.st_ino
            file.seek(self._at)
            rest = b""
            while chunk := file.read(CHUNK):
                *complete, rest = (rest + chunk).split(b"\n")
                self._at = file.tell() - len(rest)
                yield from complete
