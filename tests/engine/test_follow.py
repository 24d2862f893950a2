"""What Spark is told of a sequence: offsets, and the ranges between them, though what was read before has gone."""

import time
from pathlib import Path

import msgspec
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from penstock.app.loader import load_app
from penstock.connectors.declaration import SourceContext
from penstock.connectors.registry import bind_source
from penstock.connectors.sequence import Followed
from penstock.engine.query.follow import FollowReader, ReadAllAvailable

APPS = Path(__file__).parent / "apps_engine.py"


def write(table, *texts):
    write_deltalake(table, pa.table({"text": list(texts), "size": [1] * len(texts)}), mode="append")


def follow(table, parts=2, beginning=None):
    """As a process that starts anew does, of a run that has begun somewhere, or begins now."""
    app, reference = load_app(f"{APPS}:passing")
    [source] = app.topology().sources
    uri = f"delta:{table}?max_rows={time.monotonic_ns()}"  # opened once a process
    bound = bind_source(source, uri, SourceContext(reference))
    return FollowReader(Followed(reference, source.name, uri, bound.identity()), parts, beginning or bound.beginning(0))


def texts(reader, start, end):
    batches = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
    rows = [row for batch in batches for row in batch.to_pylist()]
    return [(msgspec.json.decode(row["payload"])["text"], row["minor"]) for row in rows]


def test_the_first_batch_is_the_same_when_it_comes_again(tmp_path):
    write(tmp_path, "a", "b")
    reader = follow(tmp_path)
    start = reader.initialOffset()
    write(tmp_path, "c")
    end = reader.latestOffset(start, ReadAllAvailable())
    assert texts(reader, start, end) == [("a", 0), ("b", 1), ("c", 2)]
    write(tmp_path, "d")
    DeltaTable(tmp_path).optimize.compact()
    again = follow(tmp_path, beginning=start)
    assert texts(again, again.initialOffset(), end) == [("a", 0), ("b", 1), ("c", 2)]


def test_an_offset_is_enough_to_go_on_from(tmp_path):
    write(tmp_path, "a", "b")
    reader = follow(tmp_path)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    write(tmp_path, "c", "d")
    DeltaTable(tmp_path).create_checkpoint()
    (tmp_path / "_delta_log" / f"{0:020}.json").unlink()
    again = follow(tmp_path)
    last = again.latestOffset(end, ReadAllAvailable())
    assert texts(again, end, last) == [("c", 2), ("d", 3)]


def test_a_spark_that_does_not_say_from_where_on_is_told_what_comes_next(tmp_path):
    """Spark 4.0 and 4.1 ask so, and when they start again first for the partitions of what they have planned last."""
    table = tmp_path / "table"
    write(table, "a", "b")
    reader = follow(table)
    start = reader.initialOffset()
    first = reader.latestOffset()
    assert [part.end for part in reader.partitions(start, first)][-1] == 2
    assert reader.latestOffset() == first
    write(table, "c")
    again = follow(table, beginning=start)
    assert again.partitions(first, first) == []
    second = again.latestOffset()
    assert (second["first"], second["end"]) == (0, 3)
    assert [(part.start, part.end) for part in again.partitions(first, second)] == [(2, 3)]
