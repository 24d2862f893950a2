"""The header of messages that use a schema registry: a zero byte, and the number (id) of the schema in four bytes."""

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec

from penstock.schemas.exact import exact_writer
from penstock.schemas.schema import Schema

HEAD = struct.Struct(">bI")


class Frame(msgspec.Struct, frozen=True):
    """Encodes the events of a stream as messages with a header.

    Args:
        number: the id of the schema in the registry.
        others: whether others have made the schema, so that it may have no place for a value as it is.
    """

    number: int
    schema: Schema
    others: bool = False

    def message(self, event: Any) -> bytes:
        """Return an event as a message; raise ``ValueError`` if it does not fit the schema."""
        return HEAD.pack(0, self.number) + _writer(self.schema, self.others)(event)


@lru_cache(maxsize=64)
def _writer(schema: Schema, others: bool) -> Callable[[Any], bytes]:
    return exact_writer(schema) if others else schema.writer()


def divide(message: bytes) -> tuple[int, bytes] | None:
    """Split a message into the number of its schema and its payload; return None if the message has no such header."""
    if len(message) < HEAD.size or message[0]:
        return None
    return HEAD.unpack_from(message)[1], message[HEAD.size :]
