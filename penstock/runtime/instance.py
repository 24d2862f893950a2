"""Instances: the state and the timers of an element for one key."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

State = TypeVar("State")


class Instance(msgspec.Struct, Generic[State], array_like=True):
    """An instance as its page stores it. Times are in seconds since the epoch."""

    state: State
    touched: float
    """The processing time of the last micro-batch that brought it an event."""
    due: float | None = None
    """When the timer that it has set itself fires; None where it has set none."""
    interval: float | None = None
    """When ``on_interval`` is next due; None where the element has no ``every``."""
    form: int = 0
    """How many migrations its state has gone through."""

    @property
    def next_due(self) -> float | None:
        """When the earlier of its timers is due; None without a timer."""
        if self.due is None or self.interval is None:
            return self.interval if self.due is None else self.due
        return min(self.due, self.interval)


decode_shallow: Callable[[Any], Instance[Any]] = msgspec.msgpack.Decoder(Instance[msgspec.Raw]).decode
"""Decodes an instance, but leaves its state encoded."""
