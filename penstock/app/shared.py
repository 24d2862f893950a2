"""Resources that all asynchronous calls of a process share, such as a client of a service with its connections."""

import asyncio
import atexit
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import wraps
from inspect import isasyncgenfunction
from typing import TypeVar

from penstock.errors import TopologyError

Thing = TypeVar("Thing")

MAKING_S, ENDING_S = 60.0, 5.0
"""Seconds: how long making a resource may take, and how long the end of a process waits for each to close."""


def shared(make: Callable[[], AsyncIterator[Thing]]) -> Callable[[], Awaitable[Thing]]:
    """Decorate an async generator that makes a resource for all calls of a process, when it is first awaited. The code after
    the ``yield`` runs when the process exits normally, which Spark's workers do not. If making it fails, the call that awaits
    it fails, and the next call tries again.

    >>> @shared
    ... async def numbers():
    ...     yield [1, 2, 3]
    >>> asyncio.run(numbers())
    [1, 2, 3]

    Raises:
        TopologyError: the function is not an async generator.
    """
    if not isasyncgenfunction(make):
        raise TopologyError("shared decorates an async generator: write async def, and yield what is shared.")
    made: dict[asyncio.AbstractEventLoop, asyncio.Task[Thing]] = {}

    @wraps(make)
    async def get() -> Thing:
        loop = asyncio.get_running_loop()
        if loop not in made or _has_failed(made[loop]):
            made[loop] = loop.create_task(_begin(make()))
        return await asyncio.shield(made[loop])  # a timeout of one call must not cancel the task of all

    return get


async def _begin(things: AsyncIterator[Thing]) -> Thing:
    async with asyncio.timeout(MAKING_S):  # after a hang, the next call tries again
        thing = await anext(things)
    atexit.register(_end, things, asyncio.get_running_loop(), os.getpid())
    return thing


def _has_failed(task: "asyncio.Task[Thing]") -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


def _end(things: AsyncIterator[Thing], loop: asyncio.AbstractEventLoop, process: int) -> None:
    async def end() -> None:
        with suppress(StopAsyncIteration):
            await anext(things)

    if os.getpid() == process and loop.is_running():  # a forked process does not run the loop
        with suppress(Exception):  # the process exits in any case
            asyncio.run_coroutine_threadsafe(end(), loop).result(ENDING_S)
