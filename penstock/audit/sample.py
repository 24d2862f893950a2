"""The sample of rows that an audit compares."""

from hashlib import blake2b
from typing import Any

from penstock.errors import ConfigurationError
from penstock.kinds.coding import json_encoder
from penstock.kinds.identity import identity
from penstock.runtime.letters import shown

_HASHES = 1 << 32
_encode = json_encoder().encode


def same(value: Any) -> bytes:
    """Return bytes that are equal for equal rows or keys: their `identity`, or for values that have none, as a time of the year
    10000 in UTC, their JSON, or what Python shows of them.
    """
    try:
        return identity(value)
    except (OverflowError, ValueError):
        try:
            return b"json " + _encode(value)
        except (OverflowError, ValueError):
            return b"shown " + shown(value).encode()


class RowSample:
    """Chooses rows by a hash: of their key fields, where rows are compared by key, or of all their fields.

    A row that a sink should hold and an equal one that it does hold are both chosen, or neither is.

    Args:
        share: of the rows, or keys, to compare; above 0, at most 1.

    Raises:
        ConfigurationError: the share is out of its range.
    """

    def __init__(self, share: float = 1.0) -> None:
        if not 0 < share <= 1:
            raise ConfigurationError(f"--sample {share:g}: a share of the rows is above 0, and at most 1 (100%).")
        self.share = share

    def has(self, event: Any, key: tuple[str, ...]) -> bool:
        """Whether an event is in the sample. With an empty key, all its fields count."""
        named = [getattr(event, name) for name in key] if key else event
        return self.share == 1 or int.from_bytes(blake2b(same(named), digest_size=4).digest()) < self.share * _HASHES
