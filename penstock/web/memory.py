"""How much memory this process has, beside how much it may have."""

import ctypes
import gc
import os
import time
from contextlib import suppress
from pathlib import Path
from resource import getpagesize

PAGE = getpagesize()
ASKED_EVERY_S = 0.02
"""How old a figure may be."""

GIVEN_BACK_EVERY_S = 1.0


class Memory:
    """A bound on the memory of the whole process, whatever part of it takes it.

    Parameters
    ----------
    most: bytes that may be resident. Where the system does not say how many are (it is no Linux), there is no bound.
    """

    def __init__(self, most: int, statm: Path = Path("/proc/self/statm")) -> None:
        self.most, self._asked, self._resident = most, 0.0, 0
        self._given_back = 0.0
        self._statm: int | None = None
        with suppress(OSError):
            self._statm = os.open(statm, os.O_RDONLY)

    @property
    def resident(self) -> int:
        """Bytes that are in memory; 0 where that cannot be known."""
        now = time.monotonic()
        if self._statm is not None and now - self._asked > ASKED_EVERY_S:
            self._asked, self._resident = now, int(os.pread(self._statm, 100, 0).split()[1]) * PAGE
        return self._resident

    def give_back(self) -> None:
        """Hand what is free back to the system, which the allocators keep; at most once a second."""
        now = time.monotonic()
        if now - self._given_back > GIVEN_BACK_EVERY_S:
            self._given_back, self._asked = now, 0.0
            gc.collect()
            with suppress(AttributeError, OSError):  # of another C library than glibc
                ctypes.CDLL(None).malloc_trim(0)

    @property
    def is_full(self) -> bool:
        """Whether there is more than there may be."""
        return self.resident > self.most
