"""Admission: how many of the waiting events a source admits to a micro-batch, and when."""

from dataclasses import dataclass

from penstock.connectors.declaration import COUNT, DURATION, Option, Options
from penstock.connectors.uri import Uri
from penstock.errors import ConfigurationError

DEFAULT_MAX_ROWS = 200_000
"""Limits the memory that a micro-batch needs if a long backlog waits."""

DEFAULT_MAX_DELAY = 900.0
"""Seconds."""

ADMISSION = (
    Option("min_rows", "start no micro-batch with fewer waiting events (K)", COUNT),
    Option("max_delay", "unless so much time has passed since the last one", DURATION),
    Option("max_rows", "take no more than so many events into one", COUNT),
)


@dataclass
class Admission:
    """Admits events when ``min_rows`` wait (the model's batch size K) or after ``max_delay`` seconds (1/tau).

    As in Spark's Kafka source, the delay counts from ``last``, when events were last admitted (at first from the start), and
    a batch takes all events that wait, up to ``max_rows``.
    """

    min_rows: int
    max_delay: float
    max_rows: int
    last: float = 0.0

    @classmethod
    def of(cls, uri: Uri, options: Options) -> "Admission":
        """Return the admission that a URI's options set, with defaults for the others.

        Raises:
            ConfigurationError: the minimum is above the maximum.
        """
        smallest, largest = options.get("min_rows", 1), options.get("max_rows", DEFAULT_MAX_ROWS)
        if smallest > largest:
            raise ConfigurationError(
                f"{uri}: min_rows={smallest} is above max_rows={largest}; lower the one or raise the other."
            )
        return cls(smallest, options.get("max_delay", DEFAULT_MAX_DELAY), largest)

    def admit(self, waiting: int, now: float) -> int:
        """Return how many of the waiting events are admitted now; ``now`` is in seconds, by the clock of ``last``."""
        if not waiting or (waiting < self.min_rows and now - self.last < self.max_delay):
            return 0
        self.last = now
        return min(waiting, self.max_rows)
