"""The gate of a micro-batch: how many of the waiting events a source admits, and when."""

from dataclasses import dataclass

from penstock.app.uri import Uri
from penstock.errors import ConfigurationError

DEFAULT_MAX_ROWS = 200_000
"""Bounds the memory of a micro-batch that starts with a long backlog."""


@dataclass
class Gate:
    """Minimum rows (the model's batch size K), maximum delay (1/tau), maximum rows.

    As in Spark's Kafka source, the delay counts from the last time that events were admitted (at
    first from the start), and a batch takes all that waits up to the maximum.
    """

    min_rows: int
    max_delay: float
    max_rows: int
    last: float

    def admit(self, waiting: int, now: float) -> int:
        """How many of the waiting events are let in at a time (seconds)."""
        if not waiting or (waiting < self.min_rows and now - self.last < self.max_delay):
            return 0
        self.last = now
        return min(waiting, self.max_rows)


def bounds_of(uri: Uri) -> tuple[int, int]:
    """The minimum and maximum of rows that a URI's options set.

    Raises
    ------
    ConfigurationError: one is not positive, or the minimum is above the maximum.
    """
    smallest = int(uri.positive("min_rows", int) or 1)
    largest = int(uri.positive("max_rows", int) or DEFAULT_MAX_ROWS)
    if smallest > largest:
        raise ConfigurationError(
            f"{uri}: min_rows={smallest} is above max_rows={largest}; lower the one or raise the other."
        )
    return smallest, largest
