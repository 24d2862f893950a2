"""Functions that users hand over, looked at before they are called."""

import inspect
from collections.abc import Callable
from typing import Any

from penstock.errors import TopologyError


def check_function(function: Any, given: int, what: str, mend: str) -> None:
    """See that something can be called with so many arguments, and that the call does what it says.

    Raises
    ------
    TopologyError: it cannot be called so, or is asynchronous, which nothing here awaits.
    """
    if not callable(function):
        raise TopologyError(f"{what} is {function!r}, which cannot be called: {mend}.")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise TopologyError(
            f"{what} is asynchronous, and nothing here awaits it: {mend}, with def in place of async def."
        )
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
