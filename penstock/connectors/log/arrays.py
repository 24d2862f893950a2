"""Payloads that came together: kept as they came, and divided when one of them is asked for."""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

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


def divide(array: bytes, most: int = sys.maxsize) -> list[bytes]:
    r"""The elements of a JSON array, also where one has half of a surrogate pair, which is JSON and no text.

    >>> divide(rb'[{"n": 1}, {"n": "\ud800"}]')
    [b'{"n": 1}', b'{"n": "\\ud800"}']

    Raises
    ------
    msgspec.DecodeError, RecursionError: it is none. OverflowError: it has more elements than ``most``.
    """
    elements = None
    if _count(array, b",") >= most:  # they are counted before they take memory
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
"""What divides deeper values, of one element in the mean."""
NESTED = 3
"""Levels that are read in one step; of deeper values each bracket is a step."""


def _token() -> re.Pattern[bytes]:
    """A text, a value with few others in it, or what divides; groups are atomic, so that a byte is read a few times at most."""
    text, others = rb'"(?>(?:[^"\\]++|\\.)*)(?:"|\\?\Z)', rb'[^{}"\[\]]*+'
    value = text
    for _ in range(NESTED):
        value = text + rb"|[\[{]" + others + rb"(?>(?:(?:" + value + rb")" + others + rb")*)[\]}]"
    return re.compile(rb"(?s:" + value + rb"|[\[\]{},])")


_TOKEN = _token()


def _elements(array: bytes, most: int) -> list[bytes]:
    """The elements of what may be a JSON array, by what divides them; nothing else of it is looked at.

    Raises
    ------
    OverflowError: there are more than ``most``, or what divides them is more than `TOKENS` times that. RecursionError: it
        nests deeper than anything could read.
    """
    found, depth, start = [], 1, array.find(b"[") + 1
    for number, token in enumerate(_TOKEN.finditer(array, start)):
        if number > TOKENS * most:
            raise OverflowError
        if token.end() - token.start() > 1:
            continue
        mark = token[0]
        if depth == 1 and mark in b",]":
            found.append(array[start : token.start()].strip())
            start = token.end()
            if len(found) > most:
                raise OverflowError
        depth += (mark in b"[{") - (mark in b"]}")
        if depth > sys.getrecursionlimit():
            raise RecursionError
    return [*found, b""] if depth or array[start:].strip() else found


def _is_json(element: bytes) -> bool:
    """By Python's own reader, to which half of a surrogate pair is no fault."""
    try:
        json.loads(element, parse_constant=_refused)
    except (ValueError, RecursionError):
        return False
    return True


def _refused(constant: str) -> None:
    raise ValueError(constant)


def divides_anywhere(array: bytes, count: int) -> bool:
    """Whether an array of objects surely nests no deeper than `DEEPEST`.

    On Python 3.11 msgspec's limit is 1,000 less the frames on the caller's stack: without this an array
    could be read where it is accepted, and not where it is divided.
    """
    return _count(array, b"[") + _count(array, b"{") - count <= DEEPEST


def _count(array: bytes, mark: bytes) -> int:
    """As `bytes.count`, ten times as fast."""
    return int(np.count_nonzero(np.frombuffer(array, np.uint8) == ord(mark)))


def size_of(payloads: Sequence[bytes]) -> int:
    """Bytes that some payloads take."""
    return len(payloads.text) if isinstance(payloads, JsonArray) else sum(map(len, payloads))
