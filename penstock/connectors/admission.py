"""Admission: how many of the waiting events a source lets into a micro-batch, and when."""

from dataclasses import dataclass

from penstock.connectors.declaration import COUNT, DURATION, Option, Options
from penstock.connectors.uri import Uri
from penstock.errors import ConfigurationError

DEFAULT_MAX_ROWS = 200_000
"""Bounds the memory of a micro-batch that starts with a long backlog."""

DEFAULT_MAX_DELAY = 900.0

ADMISSION = (
    Option("min_rows", "start no micro-batch with fewer waiting events (K)", COUNT),
    Option("max_delay", "unless so much time has passed since the last one", DURATION),
    Option("max_rows", "take no more than so many events into one", COUNT),
)


@dataclass
class Admission:
    """Minimum rows (the model's batch size K), maximum delay (1/tau), maximum rows.

    As in Spark's Kafka source, the delay counts from the last time that events were admitted (at
    first from the start), and a batch takes all that waits up to the maximum.
    """

    min_rows: int
    max_delay: float
    max_rows: int
    last: float = 0.0

    @classmethod
    def of(cls, uri: Uri, options: Options) -> "Admission":
        """What a URI's options set.

        Raises
        ------
        ConfigurationError: the minimum is above the maximum.
        """
        smallest, largest = options.get("min_rows", 1), options.get("max_rows", DEFAULT_MAX_ROWS)
        if smallest > largest:
            raise ConfigurationError(
                f"{uri}: min_rows={smallest} is above max_rows={largest}; lower the one or raise the other."
            )
        return cls(smallest, options.get("max_delay", DEFAULT_MAX_DELAY), largest)

    def admit(self, waiting: int, now: float) -> int:
        """How many of the waiting events are let in at a time (seconds)."""
        if not waiting or (waiting < self.min_rows and now - self.last < self.max_delay):
            return 0
        self.last = now
        return min(waiting, self.max_rows)
