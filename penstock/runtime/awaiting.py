"""Asynchronous calls: many under way at once, each within its time, on a loop that lasts as long as the process.

The loop runs in a thread of its own, so that it may be used where another loop runs, as in a notebook; and what an application
keeps on it, as a client with its connections, serves all micro-batches of the process.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import lru_cache
from inspect import isasyncgen
from threading import Thread
from typing import Any, NamedTuple, TypeVar

Result = TypeVar("Result")


class Outcome(NamedTuple):
    """What came of a call: what it has returned, or yielded; or else its error."""

    result: Any
    error: BaseException | None = None

    def get(self) -> Any:
        """The result; raises the error, where it has come to that."""
        if self.error is not None:
            raise self.error
        return self.result


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine on the process's loop, and wait for it."""
    future = asyncio.run_coroutine_threadsafe(work, _loop(os.getpid()))
    try:
        return future.result()
    finally:
        future.cancel()  # where the wait was interrupted


async def side_by_side(chains: Iterable[Callable[[], Awaitable[None]]], at_once: int) -> None:
    """Await chains of calls, begun in their order, so many at once; one that raises ends all."""
    waiting, done = list(chains), 0
    left = iter(waiting)

    async def take_the_next() -> None:
        nonlocal done
        for chain in left:
            await chain()
            done += 1

    async with asyncio.TaskGroup() as tasks:
        for _ in range(min(at_once, len(waiting))):
            tasks.create_task(take_the_next())
    if done < len(waiting):  # never to be taken for done
        raise RuntimeError("calls were cancelled from outside, before all were made")


async def outcome(call: Callable[[Any], Any], event: Any, timeout: float) -> Outcome:
    """Await an asynchronous call, for so many seconds at most; in a task of its own, whose cancellation is no other call's."""
    try:
        return await asyncio.create_task(_outcome(call, event, timeout))
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():  # all calls are to end, and not this one alone
            raise
        return Outcome(None, error)


async def _outcome(call: Callable[[Any], Any], event: Any, timeout: float) -> Outcome:
    try:
        async with asyncio.timeout(timeout) as limit:
            returned = call(event)
            return Outcome([emission async for emission in returned] if isasyncgen(returned) else await returned)
    except TimeoutError as error:
        late = TimeoutError(f"it took longer than {timeout:g} s, which is the timeout= of the element")
        return Outcome(None, late if limit.expired() else error)
    except (Exception, SystemExit) as error:
        return Outcome(None, error)


def _keep_running(loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop, also after a task has raised what asyncio hands on to the loop: whoever awaits the task has it already."""
    while not loop.is_closed():
        try:
            loop.run_forever()
            return
        except (SystemExit, KeyboardInterrupt):
            continue


@lru_cache(maxsize=1)
def _loop(process: int) -> asyncio.AbstractEventLoop:
    """The loop of a process; one that has been forked off has its own."""
    loop = asyncio.new_event_loop()
    Thread(target=_keep_running, args=(loop,), name="penstock-async", daemon=True).start()
    return loop
