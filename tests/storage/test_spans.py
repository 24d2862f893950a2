"""Spans that follow each other have each line of a file once, wherever they divide it."""

import io
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.storage import spans

LINES = st.binary(max_size=40).map(lambda content: bytes(b"ab\r\n"[byte % 4] for byte in content))


@settings(max_examples=2000, deadline=None)
@given(LINES, st.lists(st.integers(1, 40), max_size=5), st.sampled_from([1, 2, 3, 5, 100]))
def test_each_line_lies_in_one_span(content, cuts, at_once):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spans, "AT_ONCE", at_once)
        ends = sorted({0, *(cut for cut in cuts if cut < len(content)), len(content)})
        divided = [
            [line for lines in spans.lines_in(io.BytesIO(content), begin, end) for line in lines]
            for begin, end in pairwise(ends)
        ]
        whole = [line for lines in spans.lines_in(io.BytesIO(content)) for line in lines]
    assert whole == content.splitlines()
    assert [line for lines in divided for line in lines] == whole
