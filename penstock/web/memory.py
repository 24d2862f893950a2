"""The memory of this process, and its limit."""

import ctypes
import gc
import os
import time
from contextlib import suppress
from pathlib import Path
from resource import getpagesize

PAGE = getpagesize()
ASKED_EVERY_S = 0.02
"""The greatest age of a measurement, in seconds."""

GIVEN_BACK_EVERY_S = 1.0


class MemoryLimit:
    """A limit on the memory of the whole process, whichever part of it uses the memory.

    Args:
        most: the greatest number of resident bytes. On systems other than Linux, which do not report it, there is no limit.
    """

    def __init__(self, most: int, statm: Path = Path("/proc/self/statm")) -> None:
        self.most, self._asked, self._resident = most, 0.0, 0
        self._given_back = 0.0
        self._statm: int | None = None
        with suppress(OSError):
            self._statm = os.open(statm, os.O_RDONLY)

    @property
    def resident(self) -> int:
        """The number of resident bytes; 0 if the system does not report it."""
        now = time.monotonic()
        if self._statm is not None and now - self._asked > ASKED_EVERY_S:
            self._asked, self._resident = now, int(os.pread(self._statm, 100, 0).split()[1]) * PAGE
        return self._resident

    def give_back(self) -> None:
        """Return free memory that the allocators hold to the system; at most once a second."""
        now = time.monotonic()
        if now - self._given_back > GIVEN_BACK_EVERY_S:
            self._given_back, self._asked = now, 0.0
            gc.collect()
            with suppress(AttributeError, OSError):  # only glibc has malloc_trim
                ctypes.CDLL(None).malloc_trim(0)

    @property
    def is_full(self) -> bool:
        """Whether the memory exceeds the limit."""
        return self.resident > self.most
