"""Checks of the functions that users pass, before these are called."""

import inspect
from collections.abc import Callable
from typing import Any

from penstock.errors import TopologyError


def is_asynchronous(function: Any) -> bool:
    """Whether a call returns an awaitable, or an iterator for ``async for``."""
    calls = (function, getattr(function, "__call__", None))  # noqa: B004  # for callable objects
    return any(inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call) for call in calls)


def check_function(function: Any, given: int, what: str, mend: str, *, awaited: bool = False) -> None:
    """Check that a function can be called with a number of arguments, and is not asynchronous by mistake.

    Args:
        given: the number of arguments.
        what, mend: the message's subject and advice.
        awaited: whether it may be asynchronous.

    Raises:
        TopologyError: the function cannot be called so, or is asynchronous where nothing awaits it.
    """
    if not callable(function):
        raise TopologyError(f"{what} is {function!r}, which cannot be called: {mend}.")
    if is_asynchronous(function) and not awaited:
        raise TopologyError(f"{what} is asynchronous, and nothing here awaits it: {mend}, with def in place of async def.")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # functions not written in Python may have no signature
        return
    try:
        signature.bind(*[None] * given)
    except TypeError as error:
        raise TopologyError(f"{what} cannot be called with what it gets ({error}): {mend}.") from error


def check_plain_function(function: Callable[..., Any], given: int, what: str, mend: str) -> None:
    """Check a function as `check_function` does, and that it returns a value.

    Raises:
        TopologyError: as `check_function`; or the function yields: the generator that it returns would always count as true.
    """
    check_function(function, given, what, mend)
    if inspect.isgeneratorfunction(function):
        raise TopologyError(f"{what} yields, but must return its result: {mend}.")
