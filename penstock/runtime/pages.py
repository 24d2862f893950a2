"""Pages: how a container keeps the instances of a prototype in few, bounded pieces of state.

A state call to the engine costs far more than handling an event, so instances are not stored one
by one. They are spread by the hash of their key over pages of some `INSTANCES_PER_PAGE`, and a
micro-batch reads and writes each page it touches once. The number of pages follows the number of
instances, and their bytes, by linear hashing (Litwin, 1980): pages are split one at a time, so that no batch pays
for all of them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from penstock.kinds.coding import msgpack_encoder

INSTANCES_PER_PAGE = 256
BYTES_PER_PAGE = 1 << 20
"""On the average; one instance is never divided."""
SWEPT_PER_BATCH = 4
HEADER = -1


class PageStore(Protocol):
    """Where pages live between micro-batches; the engine's state store, or a dict in tests."""

    def get(self, element: str, page: int) -> bytes | None:
        """The bytes of a page, or None where there is none."""

    def put(self, element: str, page: int, content: bytes) -> None:
        """Write a page."""


class Header(msgspec.Struct):
    """What a container must know of a prototype's pages before it reads one of them."""

    instances: int = 0
    pages: int = 1
    due: dict[int, float] = {}
    """For pages with timers a lower bound of the earliest."""
    swept: int = 0
    bytes: int = 0
    """Of all pages, as they were written last."""
    fired: float | None = None
    """The watermark of the last micro-batch, by which timers have fired; seconds since the epoch."""
    ran: float | None = None
    """The processing time of the last micro-batch; seconds since the epoch."""


Page = dict[bytes, Any]
"""Entries by the encoded key: `msgspec.Raw` until an instance is touched, then the live entry."""


def page_numbers(hashes: NDArray[np.int64], pages: NDArray[np.int64] | int) -> NDArray[np.int64]:
    """Linear hashing: the low bits of a hash, one more of them for the pages that have been split."""
    level = np.frexp(pages)[1].astype(np.int64)  # their bit length
    page = hashes & ((np.int64(1) << level) - 1)
    return np.where(page < pages, page, hashes & ((np.int64(1) << (level - 1)) - 1))


def pages_for(instances: int, content: int, per_page: int = INSTANCES_PER_PAGE) -> int:
    """How many pages so many instances with so many bytes in all are divided into."""
    return max(1, -(-instances // per_page), min(instances, -(-content // BYTES_PER_PAGE)))


class Directory:
    """What is known of the pages of one element in one partition without reading them."""

    def __init__(self, element: str, store: PageStore) -> None:
        self._element = element
        self._store = store
        stored = store.get(element, HEADER)
        self.header = Header() if stored is None else msgspec.msgpack.decode(stored, type=Header)

    def numbers(self, hashes: NDArray[np.int64]) -> NDArray[np.int64]:
        """The pages of hashes: their low bits, one more of them for the pages that have been split."""
        return page_numbers(hashes, self.header.pages)

    def due(self, clock: float) -> list[int]:
        """The pages that may hold a timer due at a time."""
        return sorted(page for page, due in self.header.due.items() if due <= clock)

    def note_due(self, number: int, due: float | None, *, exact: bool = False) -> None:
        """Remember the earliest timer of a page; a lower one stands unless this one is exact."""
        earlier = None if exact else self.header.due.get(number)
        due = min((time for time in (due, earlier) if time is not None), default=None)
        if due is None:
            self.header.due.pop(number, None)
        else:
            self.header.due[number] = due

    def next_to_sweep(self) -> Iterator[int]:
        """A few pages each batch, in turn: those in which expired instances are to be dropped."""
        for _ in range(min(SWEPT_PER_BATCH, self.header.pages)):
            self.header.swept = (self.header.swept + 1) % self.header.pages
            yield self.header.swept

    def write_header(self) -> None:
        """Keep what is known."""
        self._store.put(self._element, HEADER, msgspec.msgpack.encode(self.header))


class Pages(Directory):
    """The pages of one prototype in one partition, read on first touch, written by `flush`."""

    def __init__(self, element: str, store: PageStore) -> None:
        super().__init__(element, store)
        self._decode = msgspec.msgpack.Decoder(dict[bytes, msgspec.Raw]).decode
        self._encode = msgpack_encoder().encode
        self._loaded: dict[int, Page] = {}
        self._sizes: dict[int, int] = {}
        """What the pages that were read had in bytes."""

    def page(self, number: int) -> Page:
        """The entries of a page; what is changed in them is written by the next `flush`."""
        page = self._loaded.get(number)
        if page is None:
            stored = self._store.get(self._element, number)
            page = {} if stored is None else self._decode(stored)
            self._sizes[number] = 0 if stored is None else len(stored)
            self._loaded[number] = page
        return page

    def stored(self, number: int, key: bytes) -> msgspec.Raw | None:
        """An entry as it was before this micro-batch, whatever has become of it since."""
        stored = self._store.get(self._element, number)
        return None if stored is None else self._decode(stored).get(key)

    def flush(self, hashes: Callable[[Sequence[bytes]], NDArray[np.int64]]) -> None:
        """Split pages until they are small enough again, then write all that were read.

        Parameters
        ----------
        hashes: of encoded keys within their partition.
        """
        while self.header.instances > self.header.pages * INSTANCES_PER_PAGE:
            self._split(hashes)
        contents = self._encoded()
        while self.header.bytes > self.header.pages * BYTES_PER_PAGE and self.header.pages < self.header.instances:
            while self.header.bytes > self.header.pages * BYTES_PER_PAGE and self.header.pages < self.header.instances:
                self._split(hashes)
            contents = self._encoded()
        for number, content in contents.items():
            self._store.put(self._element, number, content)
        self.write_header()
        self._loaded.clear()
        self._sizes.clear()

    def _encoded(self) -> dict[int, bytes]:
        """The pages that were read, as they are now; notes how large all are."""
        contents = {number: self._encode(page) for number, page in self._loaded.items()}
        for number, content in contents.items():
            self.header.bytes = max(0, self.header.bytes + len(content) - self._sizes.get(number, 0))
            self._sizes[number] = len(content)
        return contents

    def _split(self, hashes: Callable[[Sequence[bytes]], NDArray[np.int64]]) -> None:
        new = self.header.pages
        old = new - (1 << (new.bit_length() - 1))
        page = self.page(old)
        self.header.pages += 1
        keys = list(page)
        numbers = self.numbers(hashes(keys)).tolist()
        self._loaded[new] = {key: page.pop(key) for key, number in zip(keys, numbers, strict=True) if number == new}
        if old in self.header.due:
            self.header.due[new] = self.header.due[old]


class MemoryStore:
    """Pages in a dict, with the copy and restore that a crash in the test driver needs."""

    def __init__(self, content: Iterable[tuple[tuple[str, int], bytes]] = ()) -> None:
        self._content = dict(content)
        self.calls = 0

    def get(self, element: str, page: int) -> bytes | None:
        self.calls += 1
        return self._content.get((element, page))

    def put(self, element: str, page: int, content: bytes) -> None:
        self.calls += 1
        self._content[element, page] = content

    def copy(self) -> "MemoryStore":
        return MemoryStore(self._content.items())
