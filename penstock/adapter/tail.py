"""Waits for the end of a stream to move, for all of its consumers."""

import asyncio
from collections.abc import Callable

from penstock.errors import PenstockError

POLL_S = (0.01, 0.25)
"""Pauses between looks at a stream: the shortest, after news, and the longest, after a while without."""


class StreamTail:
    """Polls the end of a stream once for all waiting consumers, and not at all where none waits.

    Args:
        end: returns the offset of the stream's end; called in a thread.
    """

    def __init__(self, end: Callable[[], int]) -> None:
        self._look, self._moved = end, asyncio.Event()
        self._waiting, self._end = 0, 0

    async def passes(self, position: int) -> None:
        """Wait until the stream's end is beyond a position."""
        self._waiting += 1
        if self._waiting == 1:
            self._looking = asyncio.create_task(self._watch())
        try:
            while self._end <= position:
                await self._moved.wait()
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._looking.cancel()

    async def _watch(self) -> None:
        soon, late = POLL_S
        pause = soon
        while True:
            try:
                end = await asyncio.to_thread(self._look)
            except PenstockError:  # the disk is full or busy, say: try again later
                end, pause = self._end, late
            if end > self._end:
                self._end, pause = end, soon
                self._moved.set()
                self._moved = asyncio.Event()
            await asyncio.sleep(pause)
            pause = min(late, pause * 1.5)
