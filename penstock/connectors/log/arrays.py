"""JSON arrays of payloads, which are kept undivided until an element is needed."""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

DEEPEST = 300
"""The deepest nesting of arrays and objects in an array that may be kept undivided."""

_raws = msgspec.json.Decoder(list[msgspec.Raw]).decode


class JsonArray(Sequence[bytes]):
    """The elements of a JSON array, as a sequence that divides the array on first access to them.

    >>> list(JsonArray(b'[{"n": 1}, {"n": 2}]', 2))
    [b'{"n": 1}', b'{"n": 2}']

    Args:
        text: the array as JSON.
        count: the number of its elements, which is not checked.
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


def divide(array: bytes, most: int = sys.maxsize) -> list[bytes]:
    r"""Return the elements of a JSON array. They may contain half of a surrogate pair, which JSON allows and msgspec refuses.

    >>> divide(rb'[{"n": 1}, {"n": "\ud800"}]')
    [b'{"n": 1}', b'{"n": "\\ud800"}']

    Raises:
        msgspec.DecodeError, RecursionError: it is no JSON array.
        OverflowError: it has more elements than ``most``.
    """
    elements = None
    if _count(array, b",") >= most:  # there may be too many: count them before they take memory
        elements = _elements(array, most)
    try:
        return list(map(bytes, _raws(array)))
    except msgspec.DecodeError:
        if b"\\ud" not in array.lower():
            raise
        elements = elements or _elements(array, most)
        if any(not _is_json(element) for element in elements):
            raise
        return elements


TOKENS = 10
"""The most matches of `_TOKEN` per element, on average, before an array is refused; deep nesting makes many."""
NESTED = 3
"""Levels of nesting that one match of `_TOKEN` spans; in deeper values, each bracket is a match."""


def _token() -> re.Pattern[bytes]:
    """Return a pattern of a string, of an array or object with at most `NESTED` levels, or of one bracket or comma.

    Groups are atomic, so that no byte is read more than a few times.
    """
    text, others = rb'"(?>(?:[^"\\]++|\\.)*)(?:"|\\?\Z)', rb'[^{}"\[\]]*+'
    value = text
    for _ in range(NESTED):
        value = text + rb"|[\[{]" + others + rb"(?>(?:(?:" + value + rb")" + others + rb")*)[\]}]"
    return re.compile(rb"(?s:" + value + rb"|[\[\]{},])")


_TOKEN = _token()


def _elements(array: bytes, most: int) -> list[bytes]:
    """Return the elements of what may be a JSON array. Only brackets, commas and strings are examined, so they may be no JSON.

    Raises:
        OverflowError: there are more than ``most`` elements, or `TOKENS` times as many tokens.
        RecursionError: it nests deeper than any reader could follow.
    """
    divided, depth, start = [], 1, array.find(b"[") + 1
    for number, token in enumerate(_TOKEN.finditer(array, start)):
        if number > TOKENS * most:
            raise OverflowError
        if token.end() - token.start() > 1:  # a string or a whole value, which divides nothing
            continue
        mark = token[0]
        if depth == 1 and mark in b",]":
            divided.append(array[start : token.start()].strip())
            start = token.end()
            if len(divided) > most:
                raise OverflowError
        depth += (mark in b"[{") - (mark in b"]}")
        if depth > sys.getrecursionlimit():
            raise RecursionError
    # If the array is not closed, or more follows it, an empty element makes the caller refuse it.
    return [*divided, b""] if depth or array[start:].strip() else divided


def _is_json(element: bytes) -> bool:
    """Whether Python's own reader accepts it, which allows half of a surrogate pair."""
    try:
        json.loads(element, parse_constant=_refused)
    except (ValueError, RecursionError):
        return False
    return True


def _refused(constant: str) -> None:
    raise ValueError(constant)


def divides_anywhere(array: bytes, count: int) -> bool:
    """Whether an array of ``count`` objects certainly nests no deeper than `DEEPEST`.

    On Python 3.11 msgspec's limit is 1,000 less the frames on the caller's stack. Without this check, an array
    might be readable where it is accepted, but not where it is divided later.
    """
    return _count(array, b"[") + _count(array, b"{") - count <= DEEPEST


def _count(array: bytes, mark: bytes) -> int:
    """Return the number of occurrences of a byte, ten times as fast as `bytes.count`."""
    return int(np.count_nonzero(np.frombuffer(array, np.uint8) == ord(mark)))


def size_of(payloads: Sequence[bytes]) -> int:
    """Return the size of payloads in bytes."""
    return len(payloads.text) if isinstance(payloads, JsonArray) else sum(map(len, payloads))
