"""The WebSockets that are open: how many, how long each has said nothing, and which are closed where memory is short."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.web.memory import Memory

CLOSED_EVERY_S = 0.05
"""How often WebSockets are closed while there is too little memory."""


class Sockets:
    """What of a WebSocket's message has come cannot be counted: where the process has too much, sockets are closed."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._heard: dict[asyncio.Task[Any], float] = {}
        """By the task that serves a socket: when a message had last come whole; never, of a socket that has none to send."""

    def __len__(self) -> int:
        return len(self._heard)

    @contextmanager
    def open(self, *, sends: bool) -> Iterator[None]:
        """Within the block the present task serves one."""
        task = asyncio.current_task()
        assert task is not None
        self._heard[task] = time.monotonic() if sends else 0.0
        try:
            yield
        finally:
            del self._heard[task]

    def hear(self) -> None:
        """A message of the present task's socket has come."""
        task = asyncio.current_task()
        assert task is not None
        self._heard[task] = time.monotonic()

    async def make_room(self) -> None:
        """Close sockets as long as there is too little memory: those that say nothing, then the longest silent."""
        while True:
            await asyncio.sleep(CLOSED_EVERY_S)
            if self._memory.is_full:
                self._memory.give_back()
            if self._memory.is_full:
                silent = sorted(self._heard, key=self._heard.__getitem__)
                for task in silent[: 1 + len(silent) // 4]:
                    task.cancel()
