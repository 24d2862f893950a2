"""What registries put before a message: a zero, and the number of its schema in four bytes."""

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec

from penstock.schemas.schema import Schema

HEAD = struct.Struct(">bI")


class Frame(msgspec.Struct, frozen=True):
    """How the events of a stream become messages.

    Parameters
    ----------
    number: by which the registry knows the schema.
    """

    number: int
    schema: Schema

    def message(self, event: Any) -> bytes:
        """An event as a message; ``ValueError`` where the schema has no place for it."""
        return HEAD.pack(0, self.number) + _writer(self.schema)(event)


@lru_cache(maxsize=64)
def _writer(schema: Schema) -> Callable[[Any], bytes]:
    return schema.writer()


def divide(message: bytes) -> tuple[int, bytes] | None:
    """The number of a message's schema, and its payload; None where nothing of the kind stands before it."""
    if len(message) < HEAD.size or message[0]:
        return None
    return HEAD.unpack_from(message)[1], message[HEAD.size :]
