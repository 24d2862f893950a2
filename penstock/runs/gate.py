"""The gate of a stream: the settings of the adapter's transfers. Decisions change them and plans contain them."""

import msgspec

from penstock.errors import ConfigurationError


class TransferGate(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"flush_timer": "flush_timer_s"}):
    """When a transfer starts, and how many events it takes. These are the settings K and tau of the model.

    A transfer starts as soon as the one before it is done and ``batch_size`` events wait, or the
    oldest event has waited for ``flush_timer`` seconds. It takes at most ``batch_size`` events, in whole
    requests (a larger request is a transfer by itself).

    Raises:
        ConfigurationError: a setting is out of range.
    """

    batch_size: int = 20_000
    flush_timer: float = 0.0

    def __post_init__(self) -> None:
        if not (1 <= self.batch_size <= 1_000_000 and 0 <= self.flush_timer <= 3600):
            raise ConfigurationError(
                f"A gate of batch_size={self.batch_size} and flush_timer={self.flush_timer} s: choose a batch_size from 1 to "
                "1000000 and a flush_timer from 0 to 3600 seconds."
            )


class GatePlan(msgspec.Struct, frozen=True):
    """A plan of the adapter's gates, by stream."""

    gates: dict[str, TransferGate]
