"""Spark's plans, as they are in the JVM."""

from collections.abc import Iterator
from typing import Any


def nodes(plan: Any) -> Iterator[Any]:
    """A plan, node by node."""
    yield plan
    for child in _items(plan.children()):
        yield from nodes(child)


def leaves(plan: Any) -> list[Any]:
    """What a plan reads, from left to right."""
    return _items(plan.collectLeaves())


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(place) for place in range(sequence.size())]
