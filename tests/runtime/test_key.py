"""Where instances live: by an event, and by what is kept of its key, the same."""

import zlib
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Event
from penstock.runtime.key import KeyReader
from penstock.runtime.pages import page_numbers
from penstock.runtime.partitioner import Partitioner


class Of(Event):
    number: int
    text: str
    real: float
    money: Decimal
    at: datetime
    maybe: int | None


class Numbered(Event):
    number: int


partitioners = st.sampled_from(get_args(Partitioner))
events = st.builds(
    Of,
    st.integers(-(2**63), 2**64 - 1),
    st.text(max_size=5),
    st.floats(allow_nan=False) | st.integers(-5, 5),
    st.decimals(-9, 9, places=3),
    st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=5))])),
    st.none() | st.integers(-5, 5),
)


@given(
    st.lists(events, min_size=1, max_size=20),
    st.sampled_from(["number", "text", "real", "money", "at", "maybe"]),
    st.integers(1, 7),
    partitioners,
)
def test_an_instance_lives_where_its_events_go(batch, field, partitions, partitioner):
    for fields in ((field,), (field, "text")):
        key = KeyReader(fields, Of, partitions, partitioner)
        assert key.buckets(batch).tolist() == key.buckets_of(key.identities(batch)).tolist()


def test_equal_keys_live_in_one_place():
    key = KeyReader(("real",), Of, 5)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    there = [key.buckets([Of(1, "", real, Decimal(1), at, None)]).item() for real in (3, 3.0)]
    assert there[0] == there[1]


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1), st.integers(1, 5000))
def test_page_numbers_are_those_of_splitting_one_by_one(hashes, pages):
    def number(value):
        level = pages.bit_length()
        low = value & ((1 << level) - 1)
        return low if low < pages else value & ((1 << (level - 1)) - 1)

    assert page_numbers(np.array(hashes, np.int64), pages).tolist() == list(map(number, hashes))


def test_an_instance_lives_where_earlier_versions_have_put_it():
    """State lies by these numbers: whoever changes them makes every checkpoint unreadable. Worked out with plain integers: the
    CRC-32 of the key in MessagePack, times 2^64 over the golden ratio, modulo 2^64; bits from the 40th on, and from the 8th."""
    of = {
        "": (0, 2557123888),
        "a": (4, 3255340302),
        "gate": (3, 706696640),
        "münchen": (4, 2216447771),
        "x" * 100: (2, 798118775),
    }
    for text, expected in of.items():
        key = KeyReader(("text",), Of, 7)
        [identity] = key.identities([Of(1, text, 1.0, Decimal(1), datetime(2026, 1, 1, tzinfo=UTC), None)])
        assert (key.buckets_of([identity])[0], key.hash(identity)) == expected


def buckets(numbers, partitions, partitioner="blocks"):
    return KeyReader(("number",), Numbered, partitions, partitioner).buckets(list(map(Numbered, numbers))).tolist()


def test_integers_live_where_earlier_versions_have_put_them():
    """Worked out with plain integers: SplitMix64's function of the block, which says by how much the block is turned."""

    def turn(block):
        mixed = splitmix(block)
        return mixed - 2**64 if mixed >= 2**63 else mixed

    numbers = [700, 10**15, -1000, -(2**63), 2**63 - 1]
    assert buckets(numbers, 7) == [(number % 7 + turn(number // 7) % 7) % 7 for number in numbers]
    assert buckets(numbers, 7, "remainder") == [number % 7 for number in numbers]
    few = [*range(7 * 16), *range(-7 * 16, 0)]
    assert buckets(few, 7) == [number % 7 for number in few]
    assert buckets([7 * 16, -7 * 16 - 1], 7) == [turn(16) % 7, (6 + turn(-17)) % 7]


def splitmix(number):
    """SplitMix64's function, in plain integers."""
    mixed = number * 0x9E3779B97F4A7C15 % 2**64
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % 2**64
    return mixed ^ (mixed >> 31)


def test_integers_lie_where_earlier_versions_have_put_them():
    """Worked out with plain integers, as above; the place among 64 neighbours from the number's own length less 6 bits on."""

    def beside(number):
        block, place = divmod(number, 64)
        at = min(max(abs(number).bit_length() - 6, 0), 26)
        return splitmix(block) & 0xFFFFFFFF & ~(63 << at) | place << at

    numbers = [0, 63, 64 * 7 - 1, 64 * 7, 127, 128, 2**16, 2**40, -1, -64, -65, -128, -129, -(2**40), -(2**63), 2**63 - 1]
    key = KeyReader(("number",), Numbered, 7)
    identities = key.identities(map(Numbered, numbers))
    assert key.hashes(identities).tolist() == [beside(number // 7) for number in numbers]
    assert [key.hash(identity) for identity in identities] == key.hashes(identities).tolist()
    assert key.hashes([]).tolist() == []
    older = KeyReader(("number",), Numbered, 7, "remainder")
    spread = [zlib.crc32(identity) * 0x9E3779B97F4A7C15 % 2**64 >> 8 & 0xFFFFFFFF for identity in identities]
    assert older.hashes(identities).tolist() == spread


@pytest.mark.parametrize("count", [5_000, 200_000])
def test_neighbours_lie_together_unless_there_is_a_page_for_each(count):
    key = KeyReader(("number",), Numbered, 2)
    numbers = [number for number, bucket in enumerate(buckets(range(count), 2)) if bucket == 0]
    hashes = key.hashes(key.identities(map(Numbered, numbers)))
    small = page_numbers(hashes, len(numbers) // 256)
    newest = small[-len(numbers) // 4 :]
    assert len(set(newest.tolist())) <= len(newest) / 64 + 1, "a micro-batch of new keys touches few pages"
    assert np.bincount(small).max() < 1500
    large = np.bincount(page_numbers(hashes, len(numbers)))
    assert large.max() <= 12, "large states, of which each has a page, lie apart"
    assert (large > 0).mean() > 0.4


@given(st.lists(events, max_size=20), st.sampled_from(["number", "text", "real", "money", "at", "maybe"]))
def test_an_instance_lies_on_one_page_whatever_is_beside_it(batch, field):
    key = KeyReader((field,), Of, 5)
    identities = key.identities(batch)
    assert [key.hash(identity) for identity in identities] == key.hashes(identities).tolist()


@pytest.mark.parametrize("partitions", [1, 2, 3, 7, 16])
def test_integers_of_older_runs_live_at_their_remainders(partitions):
    numbers = [0, 1, -1, 700, 10**15, -(2**63), 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1]
    assert buckets(numbers, partitions, "remainder") == [number % partitions for number in numbers]
    key = KeyReader(("number",), Numbered, partitions, "remainder")
    assert key.buckets_of(key.identities(map(Numbered, numbers))).tolist() == [number % partitions for number in numbers]


@pytest.mark.parametrize("partitions", range(1, 65))
def test_the_first_few_keys_are_spread_evenly(partitions):
    counts = np.bincount(buckets(range(1, 10 * partitions + 1), partitions), minlength=partitions)
    assert counts.tolist() == [10] * partitions


@given(st.integers(-(2**40), 2**40), st.integers(1, 9))
def test_of_each_block_of_consecutive_integers_every_partition_has_one(block, partitions):
    first = block * partitions
    assert sorted(buckets(range(first, first + partitions), partitions)) == list(range(partitions))


@pytest.mark.parametrize("partitions", [2, 3, 4, 8, 16])
@pytest.mark.parametrize("stride", [1, 2, 3, 5, 7, 8, 10, 16, 64, 100, 1000, 4096, 2**22, 10**9])
def test_numbers_with_any_stride_are_spread_evenly(stride, partitions):
    """As evenly as by chance: with 4,000 a partition, five standard deviations are at most 8%."""
    counts = np.bincount(buckets(range(0, stride * 4000 * partitions, stride), partitions), minlength=partitions)
    assert counts.min() > 0.92 * 4000
    assert counts.max() < 1.08 * 4000
