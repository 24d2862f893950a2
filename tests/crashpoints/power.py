"""A power failure: what was written and not synced may be gone, and so may what has become of names in a directory that was not
synced.

The rules are POSIX's, and not those of one file system (Pillai et al., "All file systems are not created equal", OSDI 2014): a
file's bytes are kept once it is synced; that it is there under its name, is gone, or has another name, once its directory is.
Changes of one directory are kept in their order; those of different directories, and of files, in any.
"""

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Undo = Callable[[], object]

_link, _replace, _unlink, _rmdir, _truncate = os.link, os.replace, os.unlink, os.rmdir, os.truncate
"""As they are before anybody watches them."""


class Power:
    """What a power failure would take.

    Args:
        aside: a directory for what has lost its name, outside of the world and on its disk.
        spared: parts of paths below which all is kept: of what Spark writes, whose care that is.
        seed: of what is lost, if it fails.
    """

    def __init__(self, aside: str, spared: tuple[str, ...], seed: int) -> None:
        self._aside, self._spared, self._random = aside, spared, random.Random(seed)
        self._sizes: dict[str, int] = {}
        """Of files that were written and not synced, how much was there when they were."""
        self._changes: dict[str, list[Undo]] = {}
        """By directory, how what was not synced is undone, in the order in which it came."""
        self._limbo = 0

    def _spares(self, path: str) -> bool:
        return any(part in path + os.sep for part in self._spared)

    def written(self, path: str) -> None:
        """A file is about to be written to."""
        if path not in self._sizes and not self._spares(path):
            with suppress(FileNotFoundError):
                self._sizes[path] = os.stat(path).st_size

    def synced(self, path: str) -> None:
        """A file, or a directory, is kept as it is now."""
        self._sizes.pop(path, None)
        self._changes.pop(path, None)

    @contextmanager
    def changing(self, kind: str, path: str, source: str | None = None) -> Iterator[None]:
        """Within the block, a name is given, taken or changed."""
        if self._spares(path):
            yield
            return
        undo = self._undo(kind, path, source)
        yield
        if undo is not None:
            self._changes.setdefault(os.path.dirname(path), []).append(undo)
        if kind in ("rename", "replace") and source in self._sizes:
            self._sizes[path] = self._sizes.pop(source)

    def _undo(self, kind: str, path: str, source: str | None) -> Undo | None:
        if kind in ("create", "link", "mkdir"):
            return lambda: _gone(path)
        if kind in ("unlink", "remove"):
            aside = self._kept(path)
            return None if aside is None else lambda: _replace(aside, path)
        if kind in ("rename", "replace") and source is not None:
            aside = self._kept(path)

            def back() -> None:
                _replace(path, source)
                if aside is not None:
                    _replace(aside, path)

            return back
        return None  # an empty directory that comes back harms nobody, and a file that was emptied is as good as unsynced

    def _kept(self, path: str) -> str | None:
        """Another name for what is about to lose its own; None, where there is nothing, or a directory."""
        self._limbo += 1
        aside = f"{self._aside}/{os.getpid()}-{self._limbo}"
        try:
            _link(path, aside)
        except OSError:
            return None
        return aside

    def fail(self) -> None:
        """Take away what may be lost; a part of it by chance, and by one chance in four all of it."""
        all_of_it = self._random.random() < 0.25
        for changes in self._changes.values():
            lost = len(changes) if all_of_it else self._random.randint(0, len(changes))
            for undo in reversed(changes[len(changes) - lost :]):
                with suppress(FileNotFoundError):
                    undo()
        for path, size in self._sizes.items():
            with suppress(FileNotFoundError):
                there = os.stat(path).st_size
                if there > size:
                    _truncate(path, size if all_of_it else self._random.randint(size, there))


def _gone(path: str) -> None:
    if os.path.isdir(path):
        for name in os.listdir(path):
            _gone(os.path.join(path, name))
        _rmdir(path)
    else:
        _unlink(path)
