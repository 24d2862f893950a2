"""Payloads that came together: kept as they came, and divided when one of them is asked for."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import msgspec

DEEPEST = 300
"""Arrays within objects, and so on, of an array that may be kept undivided."""

_raws = msgspec.json.Decoder(list[msgspec.Raw]).decode


class JsonArray(Sequence[bytes]):
    """The elements of a JSON array.

    >>> list(JsonArray(b'[{"n": 1}, {"n": 2}]', 2))
    [b'{"n": 1}', b'{"n": 2}']

    Parameters
    ----------
    text: the array.
    count: how many elements it has; it is not checked.
    """

    def __init__(self, text: bytes, count: int) -> None:
        self.text, self._count = text, count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._divided)

    def __getitem__(self, row: Any) -> Any:
        return self._divided[row]

    @cached_property
    def _divided(self) -> list[bytes]:
        return divide(self.text)


def divide(array: bytes) -> list[bytes]:
    """The elements of a JSON array.

    Raises
    ------
    msgspec.DecodeError, RecursionError: it is none.
    """
    return list(map(bytes, _raws(array)))


def divides_anywhere(array: bytes, count: int) -> bool:
    """Whether an array of objects surely nests no deeper than `DEEPEST`.

    On Python 3.11 msgspec's limit is 1,000 less the frames on the caller's stack: without this an array
    could be read where it is accepted, and not where it is divided.
    """
    return array.count(b"[") + array.count(b"{") - count <= DEEPEST


def size_of(payloads: Sequence[bytes]) -> int:
    """Bytes that some payloads take."""
    return len(payloads.text) if isinstance(payloads, JsonArray) else sum(map(len, payloads))
