"""What a micro-batch delivers to the keyed elements of a hop in one partition: kept as it came, and read in order, a part at a
time.

So the memory that a partition takes does not grow with the micro-batch: blocks beyond some bytes lie in a file, and of an
element's events no more are decoded at once than their order asks for.
"""

import tempfile
from collections import deque
from collections.abc import Iterator
from typing import IO, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from penstock.app.element import Element
from penstock.runtime.delivery import Delivery, Part
from penstock.runtime.lineage import LineageColumns
from penstock.runtime.wire import Block
from penstock.runtime.wiring import Wiring

KEPT_IN_MEMORY = 16 << 20
"""Bytes of blocks; those that come after lie in a file until they are read."""

AT_ONCE = 20_000
"""Events that are decoded at once, as nearly as blocks allow."""

_decode = msgspec.msgpack.Decoder(Block).decode
Moment = tuple[int, int]
"""A place in the sources' order of delivery: ``major`` and ``minor`` of a lineage."""


class _Kept(NamedTuple):
    """A block in the order in which blocks came."""

    least: Moment
    """The first of its events' places in the order of delivery."""
    number: int
    """How many blocks came before it, which orders those that begin at one place."""
    content: bytes | tuple[int, int]
    """The block's bytes; or, where it was put aside, its place in the file and its length."""


class Arrivals:
    """Blocks of events on their way to the elements of a hop.

    Parameters
    ----------
    directory: where the file is made, if there is to be one; the system's own for temporary files unless given.
    """

    def __init__(self, wiring: Wiring, directory: str | None = None) -> None:
        self._wiring, self._directory = wiring, directory
        self._kept: dict[Element, list[_Kept]] = {}
        self._bytes = self._written = self._number = 0
        self._file: IO[bytes] | None = None

    def add(self, content: bytes) -> None:
        """Keep a block."""
        block = _decode(content)
        element, _ = self._wiring.deliveries[block.target]
        self._number += 1
        kept = _Kept(_least(block.lineage_columns), self._number, self._put(content))
        self._kept.setdefault(element, []).append(kept)

    def take(self, element: Element) -> Iterator[Block]:
        """The blocks for an element, in the order of their first events; each is kept no longer."""
        waiting = self._waiting(element)
        while waiting:
            yield self._read(waiting.popleft())

    def deliveries(self, element: Element) -> Iterator[Delivery]:
        """An element's events in the order in which their sources delivered them, some at a time; one delivery at the least."""
        waiting: deque[_Kept] = self._waiting(element)
        opened: list[Part] = []
        while True:
            while waiting and (sum(map(len, opened)) < AT_ONCE or not _any_before(opened, waiting[0].least)):
                block = self._read(waiting.popleft())
                opened.append(Part.of(block, self._wiring))
            if not waiting:
                yield Delivery(self._wiring, opened)
                return
            divided = [part.divided(_before(part.lineage, waiting[0].least)) for part in opened]
            opened = [after for _, after in divided if len(after)]
            yield Delivery(self._wiring, [before for before, _ in divided if len(before)])

    def _waiting(self, element: Element) -> deque[_Kept]:
        return deque(sorted(self._kept.pop(element, []), key=lambda kept: (kept.least, kept.number)))

    def _put(self, content: bytes) -> bytes | tuple[int, int]:
        if self._bytes + len(content) <= KEPT_IN_MEMORY:
            self._bytes += len(content)
            return content
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=self._directory)  # noqa: SIM115 - goes with this
        at = self._written
        self._file.write(content)
        self._written += len(content)
        return at, len(content)

    def _read(self, kept: _Kept) -> Block:
        if isinstance(kept.content, bytes):
            return _decode(kept.content)
        assert self._file is not None
        at, length = kept.content
        self._file.seek(at)
        return _decode(self._file.read(length))


def _least(lineage: LineageColumns) -> Moment:
    major = lineage.major.min()
    return int(major), int(lineage.minor[lineage.major == major].min())


def _before(lineage: LineageColumns, moment: Moment) -> NDArray[np.bool_]:
    major, minor = moment
    before: NDArray[np.bool_] = (lineage.major < major) | ((lineage.major == major) & (lineage.minor < minor))
    return before


def _any_before(parts: list[Part], moment: Moment) -> bool:
    return any(_before(part.lineage, moment).any() for part in parts)
