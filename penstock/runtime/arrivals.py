"""Arrivals: holds a micro-batch's blocks for the keyed elements of a hop in one partition, and returns their events in order.

The memory of a partition does not grow with the micro-batch: blocks beyond some bytes are spilled to a file, and only as many
events of an element are decoded at once as their order requires.
"""

import tempfile
from collections import deque
from collections.abc import Iterator
from typing import IO, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from penstock.app.element import Element
from penstock.runtime.delivery import BlockPart, Delivery
from penstock.runtime.lineage import LineageColumns
from penstock.runtime.wire import Block
from penstock.runtime.wiring import Wiring

KEPT_IN_MEMORY = 16 << 20
"""The most bytes of blocks in memory; later blocks are spilled to a file until they are read."""


class Limits(NamedTuple):
    """About how many events are in a delivery. Between two deliveries, the state of each key that the first has touched is
    encoded, so that few deliveries cost less.

    Args:
        least: so many events always are.
        bytes: so many bytes of events, and of their lineages, if that is more than ``least`` events.
        most: at most so many events are, however small.
    """

    least: int
    bytes: int
    most: int


DECODED = Limits(20_000, 16 << 20, 120_000)
IN_COLUMNS = Limits(20_000, 32 << 20, 200_000)
"""Of events that are taken in columns, and only decoded where they fail or come late."""

_decode = msgspec.msgpack.Decoder(Block).decode
Moment = tuple[int, int]
"""A position in the sources' order of delivery: ``major`` and ``minor`` of a lineage."""


class _Kept(NamedTuple):
    """A block that waits to be read."""

    least: Moment
    """The least position of its events in the order of delivery."""
    number: int
    """The number of its arrival, which orders blocks with equal ``least``."""
    content: bytes | tuple[int, int]
    """The block's bytes; or, where it was spilled, its position in the file and its length."""


class ArrivedBlocks:
    """Blocks of events on their way to the elements of a hop.

    Args:
        directory: where the file for spilled blocks is created, if needed; by default the system's directory for temporary
            files.
    """

    def __init__(self, wiring: Wiring, directory: str | None = None) -> None:
        self._wiring, self._directory = wiring, directory
        self._kept: dict[Element, list[_Kept]] = {}
        self._bytes = self._written = self._number = 0
        self._file: IO[bytes] | None = None

    def add(self, content: bytes) -> None:
        """Take an encoded block."""
        block = _decode(content)
        element, _ = self._wiring.deliveries[block.target]
        self._number += 1
        arrival = _Kept(_least(block.lineage_columns), self._number, self._put(content))
        self._kept.setdefault(element, []).append(arrival)

    def take(self, element: Element) -> Iterator[Block]:
        """Yield, and remove, the blocks for an element, in the order of their least positions."""
        waiting = self._waiting(element)
        while waiting:
            yield self._read(waiting.popleft())

    def deliveries(self, element: Element) -> Iterator[Delivery]:
        """Yield an element's events in the order of the sources, in one or more deliveries; an empty one if there are none."""
        waiting: deque[_Kept] = self._waiting(element)
        reads = self._wiring.reads(element) is not None
        opened: list[BlockPart] = []
        events, size = 0, 0.0
        # Events before the next waiting block's least position can be delivered: no waiting block holds an earlier one.
        while True:
            while waiting and (
                not _is_enough(events, size, reads and _have_columns(opened)) or not _any_before(opened, waiting[0].least)
            ):
                part = BlockPart.of(self._read(waiting.popleft()), self._wiring)
                events, size = events + len(part), size + part.bytes
                opened.append(part)
            if not waiting:
                yield Delivery(self._wiring, opened)
                return
            divided = [part.divided(_before(part.lineage, waiting[0].least)) for part in opened]
            opened = [after for _, after in divided if len(after)]
            events, size = sum(map(len, opened)), sum(part.bytes for part in opened)
            yield Delivery(self._wiring, [before for before, _ in divided if len(before)])

    def _waiting(self, element: Element) -> deque[_Kept]:
        return deque(sorted(self._kept.pop(element, []), key=lambda kept: (kept.least, kept.number)))

    def _put(self, content: bytes) -> bytes | tuple[int, int]:
        if self._bytes + len(content) <= KEPT_IN_MEMORY:
            self._bytes += len(content)
            return content
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=self._directory)  # noqa: SIM115 - lives as long as this object
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


def _have_columns(parts: list[BlockPart]) -> bool:
    return all(part.block.has_columns for part in parts)


def _is_enough(events: int, size: float, in_columns: bool) -> bool:
    limits = IN_COLUMNS if in_columns else DECODED
    return events >= limits.least and (size >= limits.bytes or events >= limits.most)


def _any_before(parts: list[BlockPart], moment: Moment) -> bool:
    return any(_before(part.lineage, moment).any() for part in parts)
