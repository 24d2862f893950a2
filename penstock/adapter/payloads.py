"""Payloads that came together: kept as they came, and divided when one of them is asked for."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import msgspec

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
    try:
        return list(map(bytes, _raws(array)))
    except RecursionError:
        # How deep it may nest depends on how deep the caller's stack is. Where it has been divided before,
        # say at the door, it must not fail now; a thread's stack begins anew.
        with ThreadPoolExecutor(1) as thread:
            return list(map(bytes, thread.submit(_raws, array).result()))


def size_of(payloads: Sequence[bytes]) -> int:
    """Bytes that some payloads take."""
    return len(payloads.text) if isinstance(payloads, JsonArray) else sum(map(len, payloads))
