"""Pages against a plain dict, whatever is put into them and however often they split."""

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import Event
from penstock.runtime import pages as module
from penstock.runtime.key import KeyReader
from penstock.runtime.pages import MemoryStore, Pages


class Word(Event):
    text: str
    size: int


KEYS = KeyReader(("text",), Word, 1, "remainder")  # which takes any bytes as a key


def touch(store, keys):
    """One micro-batch that counts keys."""
    pages = Pages("element", store)
    for key in keys:
        page = pages.page(int(pages.numbers(KEYS.hashes([key]))[0]))
        if key not in page:
            pages.header.instances += 1
        count = page.get(key, 0)
        page[key] = (msgspec.msgpack.decode(count) if isinstance(count, msgspec.Raw) else count) + 1
    pages.flush(KEYS.hashes)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(st.binary(max_size=6), max_size=80), max_size=12))
def test_pages_hold_what_a_dict_would(batches):
    held = module.INSTANCES_PER_PAGE
    module.INSTANCES_PER_PAGE = 3
    try:
        store, expected = MemoryStore(), {}
        for batch in batches:
            touch(store, batch)
            for key in batch:
                expected[key] = expected.get(key, 0) + 1
        pages = Pages("element", store)
        assert pages.header.instances == len(expected)
        stored = {}
        for number in range(pages.header.pages):
            page = pages.page(number)
            for key, raw in page.items():
                assert int(pages.numbers(KEYS.hashes([key]))[0]) == number
                stored[key] = msgspec.msgpack.decode(raw)
        assert stored == expected
        assert pages.header.pages >= len(expected) / 3
    finally:
        module.INSTANCES_PER_PAGE = held


def test_a_batch_reads_and_writes_each_page_it_touches_once():
    store = MemoryStore()
    every = [str(number).encode() for number in range(20_000)]
    touch(store, every)
    store.calls = 0
    touch(store, every[:10] * 50)
    assert store.calls <= 2 * 10 + 2


def test_pages_are_of_nearly_one_size():
    store = MemoryStore()
    touch(store, [str(number).encode() for number in range(50_000)])
    pages = Pages("element", store)
    sizes = [len(pages.page(number)) for number in range(pages.header.pages)]
    assert max(sizes) < 4 * module.INSTANCES_PER_PAGE
    assert pages.header.pages == -(-50_000 // module.INSTANCES_PER_PAGE)


@given(st.integers(2, 64), st.lists(st.text(max_size=8), min_size=1, max_size=50))
def test_buckets_and_hashes_do_not_depend_on_the_company(partitions, texts):
    keys = KeyReader(("text",), Word, partitions)
    events = [Word(text, 0) for text in texts]
    together = keys.buckets(events)
    assert [int(keys.buckets([event])[0]) for event in events] == together.tolist()
    identities = keys.identities(events)
    assert [keys.hash(identity) for identity in identities] == keys.hashes(identities).tolist()
    assert np.all((together >= 0) & (together < partitions))
