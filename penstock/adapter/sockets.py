"""Keeps track of open WebSockets, and closes the longest silent ones while memory is short."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.web.memory import MemoryLimit

CLOSED_EVERY_S = 0.05
"""How often memory is checked, and WebSockets are closed if it is short."""


class Sockets:
    """The open WebSockets. Incomplete messages cannot be counted, so sockets are closed if the process's memory is full."""

    def __init__(self, memory: MemoryLimit) -> None:
        self._memory = memory
        self._heard: dict[asyncio.Task[Any], float] = {}
        """By the task that serves a socket, when its last complete message came, by `time.monotonic`; 0 for a consumer's."""

    def __len__(self) -> int:
        return len(self._heard)

    @contextmanager
    def open(self, *, sends: bool) -> Iterator[None]:
        """Within the block, the current task serves a socket; ``sends`` tells whether its client sends events."""
        task = asyncio.current_task()
        assert task is not None
        self._heard[task] = time.monotonic() if sends else 0.0
        try:
            yield
        finally:
            del self._heard[task]

    def hear(self) -> None:
        """Record that a complete message of the current task's socket has come."""
        task = asyncio.current_task()
        assert task is not None
        self._heard[task] = time.monotonic()

    async def make_room(self) -> None:
        """Close sockets while there is too little memory: first those of consumers, then those silent for longest."""
        while True:
            await asyncio.sleep(CLOSED_EVERY_S)
            if self._memory.is_full:
                self._memory.give_back()
            if self._memory.is_full:
                silent = sorted(self._heard, key=self._heard.__getitem__)
                for task in silent[: 1 + len(silent) // 4]:
                    task.cancel()
