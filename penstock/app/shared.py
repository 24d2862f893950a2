"""What all asynchronous calls of a process share, as a client of a service with its connections."""

import asyncio
import atexit
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import wraps
from inspect import isasyncgenfunction
from typing import TypeVar

from penstock.errors import TopologyError

Thing = TypeVar("Thing")

ENDING_S = 5.0
"""How long the end of a process waits for each."""


def shared(make: Callable[[], AsyncIterator[Thing]]) -> Callable[[], Awaitable[Thing]]:
    """Decorate an async generator that makes something for all calls of a process: it is made when it is first awaited, and what
    follows the ``yield`` is run when the process ends. If making it fails, so does the call that awaits it, and the next tries again.

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
            thing = make()
            made[loop] = loop.create_task(_begin(thing))
            atexit.register(_end, thing, loop)
        return await asyncio.shield(made[loop])  # one call's timeout is no other's

    return get


async def _begin(thing: AsyncIterator[Thing]) -> Thing:
    return await anext(thing)


def _has_failed(task: "asyncio.Task[Thing]") -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


def _end(thing: AsyncIterator[Thing], loop: asyncio.AbstractEventLoop) -> None:
    async def end() -> None:
        with suppress(StopAsyncIteration):
            await anext(thing)

    if loop.is_running():
        with suppress(Exception):  # the process ends all the same
            asyncio.run_coroutine_threadsafe(end(), loop).result(ENDING_S)
