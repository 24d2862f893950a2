"""What all asynchronous calls of a process share, as a client of a service with its connections."""

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
"""How long a thing may take to be made, and how long the end of a process waits for each."""


def shared(make: Callable[[], AsyncIterator[Thing]]) -> Callable[[], Awaitable[Thing]]:
    """Decorate an async generator that makes something for all calls of a process: it is made when it is first awaited, and
    what follows the ``yield`` is run when the process ends by itself; Spark ends its workers without that. If making it fails,
    so does the call that awaits it, and the next tries again.

    >>> @shared
    ... async def numbers():
    ...     yield [1, 2, 3]
    >>> asyncio.run(numbers())
    [1, 2, 3]

    Raises
    ------
    TopologyError: it is no async generator.
    """
    if not isasyncgenfunction(make):
        raise TopologyError("shared decorates an async generator: write async def, and yield what is shared.")
    made: dict[asyncio.AbstractEventLoop, asyncio.Task[Thing]] = {}

    @wraps(make)
    async def get() -> Thing:
        loop = asyncio.get_running_loop()
        if loop not in made or _has_failed(made[loop]):
            made[loop] = loop.create_task(_begin(make()))
        return await asyncio.shield(made[loop])  # one call's timeout is no other's

    return get


async def _begin(things: AsyncIterator[Thing]) -> Thing:
    async with asyncio.timeout(MAKING_S):  # what hangs is tried again by the next call
        thing = await anext(things)
    atexit.register(_end, things, asyncio.get_running_loop(), os.getpid())
    return thing


def _has_failed(task: "asyncio.Task[Thing]") -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


def _end(things: AsyncIterator[Thing], loop: asyncio.AbstractEventLoop, process: int) -> None:
    async def end() -> None:
        with suppress(StopAsyncIteration):
            await anext(things)

    if os.getpid() == process and loop.is_running():  # a process that was forked off has no such loop
        with suppress(Exception):  # the process ends all the same
            asyncio.run_coroutine_threadsafe(end(), loop).result(ENDING_S)
