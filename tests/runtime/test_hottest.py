"""The keys with most events, against a plain count of all."""

from collections import Counter

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.hottest import KEPT, LEAST, SHARE, Hottest

KEYS = st.integers(0, 200).map(lambda number: min(number, number * number // 200))  # some far more often than others


@given(st.lists(st.lists(KEYS, max_size=400), max_size=12))
def test_counts_are_never_too_high_and_not_far_too_low(batches):
    found, all_of_them = Hottest(), Counter()
    for batch in batches:
        counts = Counter(batch)
        times = np.array([*counts.values()], np.int64)
        found.merge(Hottest.of([msgspec.msgpack.encode(key) for key in counts], times, msgspec.msgpack.decode))
        all_of_them.update(map(str, batch))
    events = all_of_them.total()
    missed = (SHARE + 1 / KEPT) * events + LEAST * len(batches)
    for key, times in all_of_them.items():
        assert times - missed <= found.counts.get(key, 0) <= times


def test_memory_is_bounded():
    found = Hottest()
    for number in range(1000):
        found.merge(Hottest({f"{number}-{one}": 10 + one for one in range(20)} | {"hot": 100}))
    assert len(found.counts) <= KEPT
    assert found.most(1)[0][0] == "hot"


def test_a_key_of_several_parts_is_spelled():
    one = msgspec.msgpack.encode(("Zurich", 7))
    assert Hottest.of([one], np.array([20]), msgspec.msgpack.Decoder(tuple[str, int]).decode).counts == {"Zurich, 7": 20}
