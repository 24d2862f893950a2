"""An instance, as a page keeps it."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

State = TypeVar("State")


class Instance(msgspec.Struct, Generic[State], array_like=True):
    """An instance as its page keeps it. Times are in seconds since the epoch."""

    state: State
    touched: float
    """When it last got an event, in processing time."""
    due: float | None = None
    """When its own timer fires."""
    interval: float | None = None
    """When its prototype's interval ends."""
    form: int = 0
    """How many migrations of its prototype's state it has behind it."""

    @property
    def next_due(self) -> float | None:
        """Its earliest timer."""
        return min((time for time in (self.due, self.interval) if time is not None), default=None)


decode_shallow: Callable[[Any], Instance[Any]] = msgspec.msgpack.Decoder(Instance[msgspec.Raw]).decode
"""An instance whose state stays encoded."""
