"""A table that is read from its latest version on: what comes between two starts is read, though the first has read nothing."""

import pyarrow as pa
import pytest
from deltalake import write_deltalake


@pytest.mark.slow
@pytest.mark.parametrize("starts", [1, 3])
def test_what_comes_between_starts_is_read(run_app, tmp_path, starts):
    def add(*words):
        write_deltalake(tmp_path / "table", pa.table({"text": list(words), "size": [0] * len(words)}), mode="append")

    add("before")
    sources = {"Words": f"delta:{tmp_path / 'table'}?start=latest"}
    for _ in range(starts):
        assert run_app("counter", sources=sources).output("Out") == []
    add("a", "b")
    first = run_app("counter", sources=sources)
    assert (first.report["counts"]["accepted"], first.report["counts"]["queued"]) == (2, 0)
    add("c")
    result = run_app("counter", sources=sources)
    assert sorted(count.text for count in result.output("Out")) == ["a", "b", "c"]
