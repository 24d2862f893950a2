"""Functions that users hand over, looked at before they are called."""

import inspect
from collections.abc import Callable
from typing import Any

from penstock.errors import TopologyError


def is_asynchronous(function: Any) -> bool:
    """Whether what a call returns is to be awaited, or iterated with ``async for``."""
    calls = (function, getattr(function, "__call__", None))  # noqa: B004  # of an object, what calls it
    return any(inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call) for call in calls)


def check_function(function: Any, given: int, what: str, mend: str, *, awaited: bool = False) -> None:
    """See that something can be called with so many arguments, and that the call does what it says.

    Parameters
    ----------
    awaited: whether it may be asynchronous.

    Raises
    ------
    TopologyError: it cannot be called so, or is asynchronous, which nothing here awaits.
    """
    if not callable(function):
        raise TopologyError(f"{what} is {function!r}, which cannot be called: {mend}.")
    if is_asynchronous(function) and not awaited:
        raise TopologyError(f"{what} is asynchronous, and nothing here awaits it: {mend}, with def in place of async def.")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of what is not written in Python nothing is known
        return
    try:
        signature.bind(*[None] * given)
    except TypeError as error:
        raise TopologyError(f"{what} cannot be called with what it gets ({error}): {mend}.") from error


def check_plain_function(function: Callable[..., Any], given: int, what: str, mend: str) -> None:
    """As `check_function`, of what answers by what it returns.

    Raises
    ------
    TopologyError: or it yields, so that it answers nothing, and what it makes is always true.
    """
    check_function(function, given, what, mend)
    if inspect.isgeneratorfunction(function):
        raise TopologyError(f"{what} yields, and is to return what it finds: {mend}.")
