"""Runs asynchronous calls concurrently, each with a timeout, on one event loop per process.

The loop runs in a thread of its own, so that it also works where another loop runs, as in a notebook. It lasts as long as the
process, so that an application's clients keep their connections across micro-batches.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable
from contextlib import aclosing
from functools import lru_cache
from inspect import isasyncgen
from threading import Thread
from typing import Any, NamedTuple, TypeVar

from penstock.app.stream import Emission

Result = TypeVar("Result")


class CallOutcome(NamedTuple):
    """The outcome of a call: the value it returned, the list of values it yielded, or the error it raised."""

    result: Any
    error: BaseException | None = None

    def get(self) -> Any:
        """Return the result, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.result


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine on the process's loop, and wait for it."""
    future = asyncio.run_coroutine_threadsafe(work, _loop(os.getpid()))
    try:
        return future.result()
    finally:
        future.cancel()  # has an effect only where the wait was interrupted


async def side_by_side(chains: Iterable[Callable[[], Awaitable[None]]], at_once: int) -> None:
    """Await chains of calls, at most ``at_once`` concurrently, begun in their order; if one raises, all are cancelled."""
    waiting, done = list(chains), 0
    remaining = iter(waiting)

    async def take_the_next() -> None:
        nonlocal done
        for chain in remaining:
            await chain()
            done += 1

    async with asyncio.TaskGroup() as tasks:
        for _ in range(min(at_once, len(waiting))):
            tasks.create_task(take_the_next())
    if done < len(waiting):  # cancelled calls raise nothing, so check that all were made
        raise RuntimeError("calls were cancelled from outside, before all were made")


async def outcome(call: Callable[[Any], Any], event: Any, timeout: float, checked: Callable[[Any], Emission]) -> CallOutcome:
    """Await a call for at most ``timeout`` seconds, in a task of its own, so that its cancellation affects no other call.

    Args:
        checked: takes each emission as it comes, and returns it as it is to be kept.
    """
    try:
        return await asyncio.create_task(_outcome(call, event, timeout, checked))
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():  # all calls are being cancelled, not this one alone
            raise
        return CallOutcome(None, error)


async def _outcome(call: Callable[[Any], Any], event: Any, timeout: float, checked: Callable[[Any], Emission]) -> CallOutcome:
    """Await a call within a timeout; errors of the call, and the timeout, become the outcome."""
    try:
        async with asyncio.timeout(timeout) as limit:
            returned = call(event)
            return CallOutcome(await _all_of(returned, checked) if isasyncgen(returned) else await returned)
    except TimeoutError as error:
        late = TimeoutError(f"it took longer than {timeout:g} s, which is the timeout= of the element")
        return CallOutcome(None, late if limit.expired() else error)
    except (Exception, SystemExit) as error:
        return CallOutcome(None, error)


async def _all_of(emitted: AsyncGenerator[Any, Any], checked: Callable[[Any], Emission]) -> list[Emission]:
    """Check all that a generator yields. One that yields what is refused is closed at once, as it may hold a lock."""
    async with aclosing(emitted):
        return [checked(emission) async for emission in emitted]


def _keep_running(loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop until it is closed. A task's SystemExit, which asyncio raises here as well as in its awaiter, is ignored."""
    while not loop.is_closed():
        try:
            loop.run_forever()
            return
        except (SystemExit, KeyboardInterrupt):
            continue


@lru_cache(maxsize=1)
def _loop(process: int) -> asyncio.AbstractEventLoop:
    """Return the event loop of a process, by its id, as a forked process needs a loop of its own."""
    loop = asyncio.new_event_loop()
    Thread(target=_keep_running, args=(loop,), name="penstock-async", daemon=True).start()
    return loop
