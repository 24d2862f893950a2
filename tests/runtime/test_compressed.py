"""Pages are stored compressed where that makes them shorter, and those of before are read."""

import os

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.compressed import MARK, SHORT, compressed, restored
from penstock.runtime.pages import MemoryStore, Pages


@given(st.binary(max_size=40).filter(lambda piece: piece[:1] != MARK), st.integers(0, 4000))
def test_what_is_stored_comes_back(piece, times):
    content = piece * times
    stored = compressed(content)
    assert len(stored) <= len(content)
    assert bytes(restored(stored)) == content


@pytest.mark.parametrize(
    ("content", "shorter"), [(b"a" * (SHORT - 1), False), (b"a" * SHORT, True), (os.urandom(2 * SHORT), False)]
)
def test_only_what_becomes_shorter_is_compressed(content, shorter):
    stored = compressed(content)
    assert (stored[:1] == MARK) is shorter
    assert (stored == content) is not shorter


def test_a_page_of_before_is_read_and_becomes_shorter():
    page = {b"%d" % key: "state" * 20 for key in range(1000)}
    store = MemoryStore([(("e", 0), msgspec.msgpack.encode(page))])
    before = len(store.get("e", 0))
    pages = Pages("e", store)
    assert msgspec.msgpack.decode(pages.stored(0, b"7")) == page[b"7"]
    assert pages.page(0).keys() == page.keys()
    pages.flush(lambda keys: None)
    assert len(store.get("e", 0)) < before / 5
    again = Pages("e", store)
    assert {key: msgspec.msgpack.decode(content) for key, content in again.page(0).items()} == page
