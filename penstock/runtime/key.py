"""Keys: finds the instance that an event belongs to, and the partition of that instance."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Any, NamedTuple
from zlib import crc32

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.kinds.coding import array_of, msgpack_decoder, msgpack_encoder
from penstock.kinds.event import Event, field_types
from penstock.kinds.identity import spelling
from penstock.runtime.lineage import hashed
from penstock.runtime.partitioner import LOG_TOGETHER, PRESENT, TOGETHER, UNTURNED, Partitioner

INTEGERS = np.array([byte < 0x80 or byte >= 0xE0 or 0xCC <= byte <= 0xD3 for byte in range(256)])
"""Whether an encoded key that begins with a byte is an integer (MessagePack: fixint, uint and int)."""

SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio. Multiplying by it mixes the bits of a checksum, which depend on each other."""


_decode = msgspec.msgpack.Decoder().decode


class Places(NamedTuple):
    """The distinct instances of many events, in the order of their first events."""

    identities: list[bytes]
    first: NDArray[np.int64]
    """The first row of each instance."""
    at: NDArray[np.int64]
    """The instance of each row, as an index into ``identities``."""


def first_rows(at: NDArray[np.int64], number: int) -> NDArray[np.int64]:
    """Return the first row of each group, given the group of each row, and the number of groups."""
    first = np.empty(number, np.int64)
    first[at[::-1]] = np.arange(len(at) - 1, -1, -1)  # assigned backwards, so that the first row wins
    return first


def distinct(values: NDArray[Any]) -> tuple[list[Any], NDArray[np.int64]]:
    """Return the distinct values of an array in the order of their first occurrence, and the place of each value among them."""
    encoded = pa.array(values).dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)


class KeyReader:
    """Reads an event's key, and computes the instance's identity (its encoded key), partition and hash.

    Args:
        fields: the fields of the event that make up the key.
        event_type: the type of the events, whose fields give the types of the key's parts.
        partitions: the number of partitions of the hop.
        partitioner: the rule for keys that are integers.
    """

    def __init__(
        self, fields: tuple[str, ...], event_type: type[Event], partitions: int, partitioner: Partitioner = PRESENT
    ) -> None:
        kinds = field_types(event_type)
        kind = kinds[fields[0]] if len(fields) == 1 else tuple[tuple(kinds[field] for field in fields)]  # type: ignore[misc]
        self.value = attrgetter(*fields)
        self._encode = msgpack_encoder().encode
        spellings = [spelling(kinds[field]) for field in fields]
        self._spellings = spellings if any(spellings) else None
        self.decode = msgpack_decoder(kind).decode
        self._partitions, self._partitioner = partitions, partitioner

    @property
    def respells(self) -> bool:
        """Whether equal keys may differ in form, as 0.0 and -0.0 do."""
        return self._spellings is not None

    def places(self, events: Sequence[Any]) -> Places:
        """Find the instances of events."""
        keys = list(map(self.value, events))
        if set(map(type, keys)) == {int}:
            with suppress(OverflowError):  # beyond 64 bits
                return self.places_of_integers(np.array(keys, np.int64))
        identities = self.identities_of(keys)
        numbers = {identity: number for number, identity in enumerate(dict.fromkeys(identities))}
        at = np.fromiter(map(numbers.__getitem__, identities), np.int64, len(identities))
        return Places(list(numbers), first_rows(at, len(numbers)), at)

    def places_of_integers(self, keys: NDArray[np.int64]) -> Places:
        """Find the instances of events, given their keys."""
        present, at = distinct(keys)
        return Places(self.identities_of(present), first_rows(at, len(present)), at)

    def identities(self, events: Sequence[Any]) -> list[bytes]:
        """Return the encoded keys of events; they are equal if and only if the keys are."""
        return self.identities_of(map(self.value, events))

    def identities_of(self, keys: Iterable[Any]) -> list[bytes]:
        """Encode keys."""
        return list(map(self._encode, keys if self._spellings is None else map(self._spelled, keys)))

    def _spelled(self, key: Any) -> Any:
        """Return the canonical form of a key: one for all keys that are equal."""
        assert self._spellings is not None
        if len(self._spellings) == 1:
            [spell] = self._spellings
            return key if spell is None else spell(key)
        parts = zip(self._spellings, key, strict=True)
        return tuple(part if spell is None else spell(part) for spell, part in parts)

    def buckets(self, events: Sequence[Any]) -> NDArray[np.int64]:
        """Return the partition of each event's instance."""
        return self.buckets_of_keys(list(map(self.value, events)))

    def buckets_of_keys(self, keys: list[Any]) -> NDArray[np.int64]:
        """Return the partition of each key's instance."""
        if self._spellings is not None:
            keys = list(map(self._spelled, keys))
        if set(map(type, keys)) <= {int}:
            return self.buckets_of_integers(self._in_64_bits(keys))
        return self._spread_out(keys, self.identities_of(keys))

    def buckets_of(self, identities: Sequence[bytes]) -> NDArray[np.int64]:
        """Return the partition of each instance, by encoded keys."""
        return self._spread_out(list(map(self.decode, identities)), identities)

    def _spread_out(self, keys: Sequence[Any], identities: Sequence[bytes]) -> NDArray[np.int64]:
        whole = np.array([type(key) is int for key in keys], bool)
        integers = self._in_64_bits([key if type(key) is int else 0 for key in keys])
        others = (_spread(identities) >> np.uint64(40)) % np.uint64(self._partitions)
        return np.where(whole, self.buckets_of_integers(integers), others.astype(np.int64))

    def buckets_of_integers(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the partition of each key's instance, for keys that are integers; see `Partitioner`."""
        if self._partitioner == "remainder":
            return keys % self._partitions
        blocks, places = np.divmod(keys, self._partitions)
        turns = hashed(blocks, np.zeros_like(blocks)) % self._partitions
        is_turned = (blocks < -UNTURNED) | (blocks >= UNTURNED)
        return (places + turns * is_turned) % self._partitions

    def _in_64_bits(self, keys: list[int]) -> NDArray[np.int64]:
        """Return integers as an array; for those beyond 64 bits with a sign, others that have the same partition."""
        try:
            return np.array(keys, np.int64)
        except OverflowError:
            if self._partitioner == "remainder":
                return np.array([key % self._partitions for key in keys], np.int64)
            return np.array([key & 0xFFFFFFFFFFFFFFFF for key in keys], np.uint64).view(np.int64)

    def hashes(self, identities: Sequence[bytes]) -> NDArray[np.int64]:
        """Return a hash of 32 bits for each encoded key; it assigns the instances of a partition to pages."""
        if self._partitioner == "remainder":
            return _checked(identities)
        whole = INTEGERS[np.frombuffer(b"".join([identity[:1] for identity in identities]), np.uint8)]
        if whole.all():
            return self._hashes_of_integers(identities)
        hashes, rows = _checked(identities), np.flatnonzero(whole)
        hashes[rows] = self._hashes_of_integers([identities[row] for row in rows.tolist()])
        return hashes

    def _hashes_of_integers(self, identities: Sequence[bytes]) -> NDArray[np.int64]:
        return _beside(self._in_64_bits(_decode(array_of(identities))) // self._partitions)

    def hash(self, identity: bytes, /) -> int:
        """Return the hash of one encoded key."""
        return int(self.hashes([identity])[0])


def _beside(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return hashes of 32 bits of which the low bits, which say the page, are equal for `TOGETHER` neighbours.

    Where all numbers up to n are keys there are n / 256 pages; if their states are large, up to n. So from the length of the
    number itself less `LOG_TOGETHER` bits on, the hash has the bits of the place among the neighbours, which then lie apart.
    """
    blocks, places = np.divmod(numbers, TOGETHER)
    hashes = hashed(blocks, np.zeros_like(blocks)) & 0xFFFFFFFF
    at = np.clip(np.frexp(np.abs(numbers.astype(np.float64)))[1] - LOG_TOGETHER, 0, 32 - LOG_TOGETHER).astype(np.int64)
    beside: NDArray[np.int64] = (hashes & ~((TOGETHER - 1) << at)) | (places << at)
    return beside


def _checked(identities: Sequence[bytes]) -> NDArray[np.int64]:
    """Return a hash of 32 bits for each encoded key, of its checksum."""
    return ((_spread(identities) >> np.uint64(8)) & np.uint64(0xFFFFFFFF)).astype(np.int64)


def _spread(identities: Sequence[bytes]) -> NDArray[np.uint64]:
    """Return a hash of 64 bits for each encoded key; it is equal in all processes."""
    return np.fromiter(map(crc32, identities), np.uint64, len(identities)) * SPREAD
