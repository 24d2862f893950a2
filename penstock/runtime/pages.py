"""Pages: how a container stores the instances of an element in few pieces of state of bounded size.

A call to the engine's state store costs far more than handling an event, so instances are not stored one by one. The hash of
the key assigns each instance to a page of about `INSTANCES_PER_PAGE`, and a micro-batch reads and writes each page it touches
once. The number of pages follows the number and the bytes of the instances by linear hashing (Litwin, 1980): pages are split
one at a time, so that no micro-batch pays for splitting all of them.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from penstock.kinds.coding import msgpack_encoder
from penstock.runtime.compressed import compressed, restored

INSTANCES_PER_PAGE = 256
BYTES_PER_PAGE = 1 << 20
"""Average size; a larger instance gets a larger page, as instances are never split."""
SWEPT_PER_BATCH = 4
HEADER = -1


class PageStore(Protocol):
    """Stores pages between micro-batches: the engine's state store, or a dict in tests."""

    def get(self, element: str, page: int) -> bytes | None:
        """Return the bytes that were stored as a page; None where it does not exist."""

    def put(self, element: str, page: int, content: bytes) -> None:
        """Store bytes as a page."""


class Header(msgspec.Struct):
    """What a container must know about an element's pages before it reads any of them."""

    instances: int = 0
    pages: int = 1
    due: dict[int, float] = {}
    """By page with timers, a lower bound of the earliest due time."""
    swept: int = 0
    bytes: int = 0
    """The total size of all pages' contents when they were last written."""
    fired: float | None = None
    """The greatest watermark by which timers have fired, in seconds since the epoch."""
    ran: float | None = None
    """The processing time of the last micro-batch, in seconds since the epoch."""


Page = dict[bytes, Any]
"""Instances by their encoded key: `msgspec.Raw` until an instance is touched, then a live `Instance`."""


def page_numbers(hashes: NDArray[np.int64], pages: NDArray[np.int64] | int) -> NDArray[np.int64]:
    """Linear hashing: the page of a hash is its low bits, one bit more for pages that have been split."""
    level = np.frexp(pages)[1].astype(np.int64)  # their bit length
    page = hashes & ((np.int64(1) << level) - 1)
    return np.where(page < pages, page, hashes & ((np.int64(1) << (level - 1)) - 1))


def pages_for(instances: int, content: int, per_page: int = INSTANCES_PER_PAGE) -> int:
    """Return how many pages a number of instances with a total size in bytes needs."""
    return max(1, -(-instances // per_page), min(instances, -(-content // BYTES_PER_PAGE)))


def split_pages(pages: int, wanted: int) -> dict[int, int]:
    """Return, for each page that is made where there are to be more, the page that it splits; that may be made itself."""
    return {new: new - (1 << (new.bit_length() - 1)) for new in range(pages, wanted)}


class Directory:
    """The header of the pages of one element in one partition: what is known without reading them."""

    def __init__(self, element: str, store: PageStore) -> None:
        self._element = element
        self._store = store
        stored = store.get(element, HEADER)
        self.header = Header() if stored is None else msgspec.msgpack.decode(stored, type=Header)

    def numbers(self, hashes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the page of each hash."""
        return page_numbers(hashes, self.header.pages)

    def due(self, clock: float) -> list[int]:
        """Return the pages that may hold a timer due by a time in seconds since the epoch."""
        return sorted(page for page, due in self.header.due.items() if due <= clock)

    def note_due(self, number: int, due: float | None) -> None:
        """Record the earliest due time of a page, of which all timers are known; None where there is none."""
        if due is None:
            self.header.due.pop(number, None)
        else:
            self.header.due[number] = due

    def note_dues(self, numbers: Iterable[int], dues: Iterable[float | None]) -> None:
        """Record when timers are due, given the pages of their instances. Earlier recorded times stand."""
        earliest = self.header.due
        for number, due in zip(numbers, dues, strict=True):
            if due is not None and due < earliest.get(number, math.inf):
                earliest[number] = due

    def next_to_sweep(self) -> Iterator[int]:
        """Yield the next few pages, in turn, from which this micro-batch drops expired instances."""
        for _ in range(min(SWEPT_PER_BATCH, self.header.pages)):
            self.header.swept = (self.header.swept + 1) % self.header.pages
            yield self.header.swept

    def _read(self, number: int) -> Any:
        """Return the content of a page, as bytes or a buffer of Arrow; None if there is no such page."""
        stored = self._store.get(self._element, number)
        return None if stored is None else restored(stored)

    def _write(self, number: int, content: bytes) -> None:
        """Store the content of a page."""
        self._store.put(self._element, number, compressed(content))

    def write_header(self) -> None:
        """Store the header."""
        self._store.put(self._element, HEADER, msgspec.msgpack.encode(self.header))


class Pages(Directory):
    """The pages of one element in one partition: read on first use, written by `flush`."""

    def __init__(self, element: str, store: PageStore) -> None:
        super().__init__(element, store)
        self._decode = msgspec.msgpack.Decoder(dict[bytes, msgspec.Raw]).decode
        self._encode = msgpack_encoder().encode
        self._loaded: dict[int, Page] = {}
        self._sizes: dict[int, int] = {}
        """The sizes in bytes of the pages that were read, by number."""

    def page(self, number: int) -> Page:
        """Return the entries of a page; the next `flush` writes changes to them."""
        page = self._loaded.get(number)
        if page is None:
            content = self._read(number)
            page = {} if content is None else self._decode(content)
            self._sizes[number] = 0 if content is None else len(content)
            self._loaded[number] = page
        return page

    def size(self, number: int) -> int:
        """Return how many bytes a page had when it was read."""
        self.page(number)
        return self._sizes[number]

    def release(self, number: int) -> None:
        """Write a page before all others, and forget it."""
        content = self._encode(self._loaded.pop(number))
        self.header.bytes = max(0, self.header.bytes + len(content) - self._sizes.pop(number))
        self._write(number, content)

    def stored(self, number: int, key: bytes) -> msgspec.Raw | None:
        """Return an entry as it was stored before this micro-batch."""
        content = self._read(number)
        return None if content is None else self._decode(content).get(key)

    def flush(self, hashes: Callable[[Sequence[bytes]], NDArray[np.int64]]) -> None:
        """Split pages until they are small enough again, then write all loaded pages and the header.

        Args:
            hashes: returns the hashes of encoded keys.
        """
        self._split(pages_for(self.header.instances, 0, INSTANCES_PER_PAGE), hashes)
        contents = self._encoded()
        while (wanted := pages_for(self.header.instances, self.header.bytes, INSTANCES_PER_PAGE)) > self.header.pages:
            self._split(wanted, hashes)
            contents = self._encoded()
        for number, content in contents.items():
            self._write(number, content)
        self.write_header()
        self._loaded.clear()
        self._sizes.clear()

    def _encoded(self) -> dict[int, bytes]:
        """Encode the loaded pages as they are now, and update the total size in the header."""
        contents = {number: self._encode(page) for number, page in self._loaded.items()}
        for number, content in contents.items():
            self.header.bytes = max(0, self.header.bytes + len(content) - self._sizes.get(number, 0))
            self._sizes[number] = len(content)
        return contents

    def _split(self, wanted: int, hashes: Callable[[Sequence[bytes]], NDArray[np.int64]]) -> None:
        """Split pages until there are as many as wanted."""
        made, due = split_pages(self.header.pages, wanted), self.header.due
        if not made:
            return
        divided = [self.page(old) for old in dict.fromkeys(made.values()) if old < self.header.pages]
        self.header.pages = wanted
        for new, old in made.items():
            self._loaded[new] = {}
            if old in due:
                due[new] = due[old]
        keys = [list(page) for page in divided]
        numbers = iter(self.numbers(hashes(list(chain.from_iterable(keys)))).tolist())
        for page, old_keys in zip(divided, keys, strict=True):
            for key, number in zip(old_keys, numbers, strict=False):
                if number in made:
                    self._loaded[number][key] = page.pop(key)


class MemoryStore:
    """Pages in a dict. The test driver copies it, to restore the state after a crash."""

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
