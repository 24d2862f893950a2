"""The end of a stream, as its consumers wait for it to move."""

import asyncio
from collections.abc import Callable

from penstock.errors import PenstockError

POLL_S = (0.01, 0.25)
"""How often a stream is looked at: at first, and after nothing has come for a while."""


class Tail:
    """Looks for news once for all who wait, and not at all where nobody does.

    Parameters
    ----------
    end: tells where the stream ends; it is called in a thread.
    """

    def __init__(self, end: Callable[[], int]) -> None:
        self._look, self._moved = end, asyncio.Event()
        self._waiting, self._end = 0, 0

    async def passes(self, position: int) -> None:
        """Wait until the stream goes on beyond a position."""
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
            except PenstockError:  # the disk is full, or busy: it may be there again the next time
                end, pause = self._end, late
            if end > self._end:
                self._end, pause = end, soon
                self._moved.set()
                self._moved = asyncio.Event()
            await asyncio.sleep(pause)
            pause = min(late, pause * 1.5)
