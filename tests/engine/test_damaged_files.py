"""Files that are cut short, or not what their names say, or unlike the others: one sentence that names the file; mended, it is
read.
"""

import gzip
import json
from datetime import datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import PenstockError

LINES = b"".join(json.dumps({"text": f"word {number}"}).encode() + b"\n" for number in range(2000))


def packed():
    return gzip.compress(LINES, mtime=0)


DAMAGED = {
    "cut short": lambda: packed()[: len(packed()) // 2],
    "without its end": lambda: packed()[:-6],
    "no gzip": lambda: LINES,
}


@pytest.mark.slow
@pytest.mark.parametrize("how", DAMAGED)
def test_a_compressed_file_that_is_damaged_is_named_and_a_whole_one_in_its_place_is_read(run_app, tmp_path, how):
    (tmp_path / "in").mkdir()
    file = tmp_path / "in" / "words.jsonl.gz"
    file.write_bytes(DAMAGED[how]())
    sources = {"Words": f"jsonl:{tmp_path / 'in'}"}
    with pytest.raises(PenstockError, match=r"words\.jsonl\.gz"):
        run_app("counter", sources=sources)
    file.write_bytes(packed())
    result = run_app("counter", sources=sources)
    assert (result.report["counts"]["processed"], result.report["counts"]["lost"]) == (2000, 0)


def columns(**given):
    return pa.table(given)


FIRST = {"text": ["a", "b"], "size": pa.array([1, 2], pa.int64())}
UNLIKE = {
    "columns in another order": (FIRST, {"size": pa.array([3], pa.int64()), "text": ["c"]}, 3),
    "one column more": (FIRST, {**FIRST, "more": [1, 2]}, 4),
    "a narrower type later": (FIRST, {"text": ["c"], "size": pa.array([3], pa.int32())}, 3),
    "a wider type later": ({**FIRST, "size": pa.array([1, 2], pa.int32())}, FIRST, 4),
    "a column that only later files have": ({"text": ["a", "b"]}, FIRST, 4),
    "a column that later files lack": (FIRST, {"text": ["c"]}, 3),
    "text in place of numbers": (FIRST, {"text": ["c"], "size": ["many"]}, "in/1.parquet: column size is of type string"),
    "nanoseconds": ({**FIRST, "at": pa.array([datetime(2026, 1, 1)] * 2, pa.timestamp("ns"))}, FIRST, 4),
}


@pytest.mark.slow
@pytest.mark.parametrize("how", UNLIKE)
def test_parquet_files_that_differ_are_read_or_named(run_app, tmp_path, how):
    (tmp_path / "in").mkdir()
    one, other, wanted = UNLIKE[how]
    sized = sum(len(content.get("size", ())) for content in (one, other))
    for number, content in enumerate((one, other)):
        pq.write_table(columns(**content), tmp_path / "in" / f"{number}.parquet")
    sources = {"Words": f"parquet:{tmp_path / 'in'}?max_files=1"}
    result = run_app("noted", sources=sources)
    if isinstance(wanted, str):
        assert [wanted in letter["error"] for letter in result.dead_letters] == [True]
        return
    assert result.report["counts"]["processed"] == len(result.output("Out")) == wanted
    assert sum(word.size is not None for word in result.output("Out")) == sized


def test_a_parquet_file_cut_short_is_named(run_app, tmp_path):
    (tmp_path / "in").mkdir()
    for number in range(2):
        pq.write_table(columns(**FIRST), tmp_path / "in" / f"{number}.parquet")
    whole = (tmp_path / "in" / "1.parquet").read_bytes()
    (tmp_path / "in" / "1.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(PenstockError, match=r"in/1\.parquet"):
        run_app("counter", sources={"Words": f"parquet:{tmp_path / 'in'}"})
