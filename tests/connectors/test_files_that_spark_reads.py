"""What counts as a file of a source: just what Spark reads of its directory (`InMemoryFileIndex`, and what it plans of it)."""

import codecs
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import Event
from penstock.app.stream import Source
from penstock.connectors.checkpoint import Position
from penstock.connectors.declaration import SourceContext
from penstock.connectors.files.source import is_read
from penstock.connectors.registry import bind_source
from penstock.errors import SourceError


class Row(Event):
    k: str


def bound(uri):
    return bind_source(Source("Rows", Row), uri, SourceContext())


def taken(checkpoint: Path, files: list[Path]) -> Position:
    """A checkpoint whose first micro-batch has taken these files."""
    for directory in ("offsets", "commits", "sources/0"):
        (checkpoint / directory).mkdir(parents=True, exist_ok=True)
    (checkpoint / "offsets" / "0").write_text('v1\n{"conf":{}}\n{"logOffset":0}')
    (checkpoint / "commits" / "0").write_text("v1\n{}")
    entries = [json.dumps({"path": file.as_uri(), "timestamp": 0, "batchId": 0}) for file in files]
    (checkpoint / "sources" / "0" / "0").write_text("\n".join(["v1", *entries]))
    return Position(checkpoint, 0, 0)


NOTHING = Position(Path("/nowhere"), 0, None)


@pytest.mark.parametrize(
    ("name", "is_one"),
    [("a.jsonl", True), ("_a", False), (".a", False), ("_a=1.jsonl", True), (".a=1", False), ("a.jsonl._COPYING_", False)],
)
def test_a_file_is_read_by_its_name(tmp_path, name, is_one):
    (tmp_path / name).write_text('{"k":"a"}\n')
    assert is_read(name) == is_one
    assert bound(f"jsonl:{tmp_path}").reckon(NOTHING).queued == is_one


def test_a_single_file_that_spark_does_not_read_is_refused(tmp_path):
    (tmp_path / "_a.jsonl").write_text('{"k":"a"}\n')
    with pytest.raises(SourceError, match=r"Spark does not read a file that is called _a\.jsonl; rename it"):
        bound(f"jsonl:{tmp_path}/_a.jsonl")


def test_a_name_that_is_not_utf_8_is_refused(tmp_path):
    (tmp_path / os.fsdecode(b"caf\xe9.jsonl")).write_text('{"k":"a"}\n')
    with pytest.raises(SourceError, match="not in UTF-8, which Spark does not see; rename it"):
        bound(f"jsonl:{tmp_path}")


def test_files_of_directories_that_a_pattern_matches_wait_too(tmp_path):
    for day in ("day-1", "day-2"):
        (tmp_path / day).mkdir()
        (tmp_path / day / "a.jsonl").write_text('{"k":"a"}\n')
    source = bound(f"jsonl:{tmp_path}/day-*")
    assert (source.reckon(NOTHING).queued, source.drained(NOTHING)) == (2, False)
    position = taken(tmp_path / "checkpoint", [tmp_path / "day-1" / "a.jsonl"])
    assert source.reckon(position)[:2] == (1, 1)


def test_a_description_of_a_parquet_directory_is_no_file_of_it(tmp_path):
    (tmp_path / "in").mkdir()
    rows = pa.table({"k": ["a", "b"]})
    pq.write_table(rows, tmp_path / "in" / "a.parquet")
    pq.write_table(rows, tmp_path / "in" / "_metadata")
    source = bound(f"parquet:{tmp_path}/in")
    position = taken(tmp_path / "checkpoint", [tmp_path / "in" / "_metadata", tmp_path / "in" / "a.parquet"])
    assert source.reckon(position)[:2] == (2, 0)
    assert [len(part.rows) for part in source.again(Position(tmp_path / "checkpoint", 0, None), position)] == [2]


@pytest.mark.parametrize(("text", "rows"), [("", 0), ("\n", 0), ('{"k":"a"}\n', 1), ('\n{"k":"a"}', 1)])
@pytest.mark.parametrize(
    ("encoding", "mark"),
    [
        (None, codecs.BOM_UTF8),
        ("utf-8", codecs.BOM_UTF8),
        ("utf-16-le", codecs.BOM_UTF16_LE),
        ("utf-32-le", codecs.BOM_UTF32_LE),
    ],
)
def test_a_byte_order_mark_is_no_row(tmp_path, text, rows, encoding, mark):
    (tmp_path / "a.jsonl").write_bytes(mark + text.encode(encoding or "utf-8"))
    assert bound(f"jsonl:{tmp_path}" + (f"?encoding={encoding}" if encoding else "")).reckon(NOTHING).queued == rows
