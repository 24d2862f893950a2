"""Walking through Spark's query plans, which are objects in the JVM."""

from collections.abc import Iterator
from typing import Any


def nodes(plan: Any) -> Iterator[Any]:
    """Yield all nodes of a plan, each before its children."""
    yield plan
    for child in _items(plan.children()):
        yield from nodes(child)


def leaves(plan: Any) -> list[Any]:
    """Return the leaves of a plan, which are its inputs, from left to right."""
    return _items(plan.collectLeaves())


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(place) for place in range(sequence.size())]
