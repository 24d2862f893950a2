"""Every source and sink with nothing else installed, on Spark."""

import csv
import gzip
import json
import sqlite3
import sys
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from support import TOPOLOGIES, load

from penstock.adapter import EventLog
from penstock.errors import ConfigurationError, RunFailedError, SinkError, SourceError
from penstock.runs.letters import letters_of
from penstock.runs.record import record_of
from penstock.runtime.codec import Codec

WORDS = [("a", 1), ("b", 2), ("a", 3)]


def seen(result):
    return Counter(word.text for word in result.output("Out"))


def lines(words=WORDS):
    return "".join(json.dumps({"text": text, "size": size}) + "\n" for text, size in words)


def write(directory, kind):
    directory.mkdir()
    if kind == "jsonl":
        (directory / "a.jsonl").write_text(lines())
    elif kind == "gzip":
        with gzip.open(directory / "a.jsonl.gz", "wt") as file:
            file.write(lines())
    elif kind == "csv":
        with (directory / "a.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("size", "text"), *((size, text) for text, size in WORDS)])
    else:
        text, size = zip(*WORDS, strict=True)
        pq.write_table(pa.table({"text": text, "size": pa.array(size, pa.int32())}), directory / "a.parquet")


@pytest.mark.parametrize("kind", ["jsonl", "gzip", "csv", "parquet"])
def test_files_are_read(run_app, tmp_path, kind):
    write(tmp_path / "in", kind)
    scheme = {"gzip": "jsonl"}.get(kind, kind)
    result = run_app("passing", sources={"Words": f"{scheme}:{tmp_path / 'in'}"})
    assert seen(result) == {"a": 2, "b": 1}
    assert result.report["counts"]["accepted"] == 3
    told = [json.loads(line) for line in (result.directory / "progress.jsonl").read_text().splitlines()]
    assert sum(one["numInputRows"] for one in told) == 3  # Spark counts the files that it lists for us


def test_csv_values_of_a_wrong_type_are_dead_letters(run_app, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text('text,size\na,1\nb,many\n"c, d",\n')
    result = run_app("passing", sources={"Words": f"csv:{tmp_path / 'in'}"})
    assert seen(result) == {"a": 1, "c, d": 1}
    [letter] = result.dead_letters
    assert json.loads(letter["raw"]) == {"text": "b", "size": "many"}
    assert "$.size" in letter["error"]


def test_lines_of_csv_that_are_no_events_are_dead_letters_with_what_they_say(run_app, tmp_path):
    (tmp_path / "in").mkdir()
    content = b"\xef\xbb\xbfsize,text,more\n1,a,\n2,b,c,d\n3,Z\xfcrich,\nmany,e,\n4\n5,f,\n"
    (tmp_path / "in" / "a.csv").write_bytes(content)
    result = run_app("passing", sources={"Words": f"csv:{tmp_path / 'in'}"})
    assert seen(result) == {"a": 1, "f": 1}
    letters = {letter["raw"]: letter["error"] for letter in result.dead_letters}
    assert "the line has 4 fields, and the header names 3" in letters["2,b,c,d"]
    assert "the line is not in UTF-8" in letters["3,Z\\udcffrich,"]
    assert "$.size" in letters['{"size":"many","text":"e"}']
    assert "missing required field `text`" in letters['{"size":"4"}']
    assert result.report["counts"]["accepted"] == 6 == len(letters) + 2
    result = run_app("passing", fresh=True, sources={"Words": f"csv:{tmp_path / 'in'}?encoding=latin-1"})
    assert "Z\u00fcrich" in seen(result)


def test_parquet_nulls_where_a_value_is_needed_are_dead_letters(run_app, tmp_path):
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"text": ["a", None], "size": [1, 2]}), tmp_path / "in" / "a.parquet")
    result = run_app("passing", sources={"Words": f"parquet:{tmp_path / 'in'}"})
    assert seen(result) == {"a": 1}
    assert "text is null" in result.dead_letters[0]["error"]


def test_parquet_columns_of_a_wrong_type_are_refused(run_app, tmp_path):
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"text": ["a"], "size": ["one"]}), tmp_path / "in" / "a.parquet")
    with pytest.raises(SourceError, match="column size is of type string.*needs int64"):
        run_app("passing", sources={"Words": f"parquet:{tmp_path / 'in'}"})


def test_the_log_is_followed_through_the_gate(run_app, tmp_path):
    log = EventLog(tmp_path / "log")
    log.append("Words", [line.encode() for line in lines([(f"w{n % 3}", n) for n in range(100)]).splitlines()])
    source = f"log:{tmp_path / 'log'}?max_rows=30"
    result = run_app("passing", sources={"Words": source})
    assert result.report["batches"] == 4
    assert seen(result) == {"w0": 34, "w1": 33, "w2": 33}
    told = [record_of(json.loads(line)) for line in (result.directory / "progress.jsonl").read_text().splitlines()]
    assert [one.sources[0].waiting for one in told if one is not None and one.ran] == [70, 40, 10, 0]
    log.append("Words", [b'{"text": "w0"}', b"broken"])
    result = run_app("passing", sources={"Words": source})
    assert seen(result)["w0"] == 35
    counts = result.report["counts"]
    assert (counts["accepted"], counts["processed"], counts["dead_lettered"]) == (102, 101, 1)


@pytest.mark.slow
def test_a_delta_table_is_followed_from_one_run_into_the_next(run_app, tmp_path):
    write(tmp_path / "in", "jsonl")
    table = f"delta:{tmp_path / 'table'}"
    first = {"sources": {"Words": f"jsonl:{tmp_path / 'in'}"}, "sinks": {"Out": table}}
    run_app("passing", name="first", **first)
    second = {"name": "second", "sources": {"Words": f"{table}?max_rows=2"}}
    result = run_app("passing", **second)
    assert result.report["batches"] == 2
    told = [record_of(json.loads(line)) for line in (result.directory / "progress.jsonl").read_text().splitlines()]
    assert [one.sources[0].waiting for one in told if one is not None and one.ran] == [1, 0]
    assert seen(result) == {"a": 2, "b": 1}
    (tmp_path / "in" / "b.jsonl").write_text(lines([("c", 4), ("a", 5)]))
    run_app("passing", name="first", **first)
    DeltaTable(tmp_path / "table").create_checkpoint()
    (tmp_path / "table" / "_delta_log" / f"{0:020}.json").unlink()
    result = run_app("passing", **second)
    assert seen(result) == {"a": 3, "b": 1, "c": 1}
    counts = result.report["counts"]
    assert (counts["accepted"], counts["processed"], counts["queued"], counts["lost"]) == (5, 5, 0, 0)
    DeltaTable(tmp_path / "table").delete("text = 'b'")
    with pytest.raises((SourceError, RunFailedError), match="deletes or rewrites rows in version"):
        run_app("passing", **second)


def test_spark_reads_the_tables_of_lakes(run_app, spark, tmp_path):
    """By the files that a table names, since there is no connector for this version of Spark."""
    catalog = {"uri": f"sqlite:///{tmp_path / 'lake.sqlite'}", "warehouse": f"file://{tmp_path / 'lake'}"}
    (tmp_path / "lake").mkdir()
    given = "&".join(f"catalog.{name}={value}" for name, value in catalog.items())
    sinks = {"Out": f"delta:{tmp_path / 'table'}?compact=1", "Memory": f"iceberg:lake/results.words?{given}"}
    write(tmp_path / "in", "jsonl")
    for name in ("b", "c"):
        (tmp_path / "in" / f"{name}.jsonl").write_text(lines([(name, 4)]))
    run_app("passing", sources={"Words": f"jsonl:{tmp_path / 'in'}?max_files=1"}, sinks=sinks)
    delta = DeltaTable(tmp_path / "table")
    iceberg = load_catalog("lake", **catalog).load_table("results.words")
    files = [task.file.file_path for task in iceberg.scan().plan_files()]
    assert len(delta.file_uris()) < delta.version()
    for named in (delta.file_uris(), files):
        rows = spark.get().read.parquet(*named).collect()
        assert sorted((row.text, row.size) for row in rows) == sorted([*WORDS, ("b", 4), ("c", 4)])


@pytest.mark.slow
def test_what_the_gate_holds_back_is_queued(run_app, tmp_path):
    log = EventLog(tmp_path / "log")
    log.append("Words", [b'{"text": "a"}'] * 7)
    source = f"log:{tmp_path / 'log'}?min_rows=10&max_delay=1h"
    result = run_app("passing", sources={"Words": source}, until_idle=False, duration=8)
    counts = result.report["counts"]
    assert (counts["accepted"], counts["processed"], counts["queued"]) == (7, 0, 7)
    log.append("Words", [b'{"text": "a"}'] * 3)
    assert seen(run_app("passing", sources={"Words": source})) == {"a": 10}


def test_the_delay_opens_the_gate(run_app, tmp_path):
    log = EventLog(tmp_path / "log")
    log.append("Words", [b'{"text": "a"}'] * 7)
    source = f"log:{tmp_path / 'log'}?min_rows=1000&max_delay=2s"
    assert seen(run_app("passing", sources={"Words": source})) == {"a": 7}


def test_the_generator_keeps_its_schedule(run_app):
    result = run_app("passing", sources={"Words": "generator:poisson?rate=200&count=500&seed=4"})
    assert seen(result) == {f"w{n}": 100 for n in range(5)}
    assert result.report["latency_ms"]["p50"] > 0


def test_recorded_times_are_replayed(run_app, tmp_path):
    (tmp_path / "times").write_text("10.0\n11.0\n11.5\n12.0\n")
    result = run_app("passing", sources={"Words": f"generator:recorded?times={tmp_path / 'times'}&speed=2"})
    assert result.report["counts"]["accepted"] == 4


def test_sinks_are_parquet_memory_and_console(run_app, tmp_path, capfd):
    write(tmp_path / "in", "jsonl")
    sinks = {"Out": f"parquet:{tmp_path / 'out'}", "Memory": "memory:", "Console": "console"}
    result = run_app("passing", sources={"Words": f"jsonl:{tmp_path / 'in'}"}, sinks=sinks)
    assert seen(result) == {"a": 2, "b": 1}
    rows = sorted(WORDS)
    assert sorted((row["text"], row["size"]) for row in pq.read_table(tmp_path / "out").to_pylist()) == rows
    assert sorted((word.text, word.size) for word in result.output("Memory")) == rows
    assert 'Console: {"text":"a","size":3}' in capfd.readouterr().out


def test_two_runs_cannot_share_a_sink(run_app, tmp_path):
    write(tmp_path / "in", "jsonl")
    options = {"sources": {"Words": f"jsonl:{tmp_path / 'in'}"}, "sinks": {"Out": f"jsonl:{tmp_path / 'out'}"}}
    run_app("passing", name="one", **options)
    with pytest.raises(SinkError, match="not of this run"):
        run_app("passing", name="two", **options)
    assert seen(run_app("passing", name="one", fresh=True, **options)) == {"a": 2, "b": 1}


def test_fields_of_every_kind_come_from_parquet(run_app, tmp_path):
    load("kinds")
    t = sys.modules["topologies"]
    event = t.Everything(
        True,
        7,
        0.5,
        "x",
        b"\x00",
        datetime(2026, 1, 2, tzinfo=UTC),
        t.Colour.RED,
        t.Place("dam", 1.5),
        ["a"],
        {"k": 2.0},
        local=datetime(2026, 1, 2),
        took=timedelta(days=-1, microseconds=1),
    )
    batch = Codec(t.Everything).to_columns([event, event])
    colours = pa.array(["red", "mauve"])
    index = batch.schema.get_field_index("colour")
    (tmp_path / "in").mkdir()
    pq.write_table(pa.Table.from_batches([batch]).set_column(index, "colour", colours), tmp_path / "in" / "a.parquet")
    result = run_app(
        "kinds",
        file=TOPOLOGIES,
        sources={"Everything": f"parquet:{tmp_path / 'in'}"},
        sinks={"Out": f"parquet:{tmp_path / 'out'}"},
    )
    assert result.output("Out") == [event]
    assert "mauve" in result.dead_letters[0]["error"]


def test_two_sinks_cannot_share_a_directory(run_app, tmp_path):
    (tmp_path / "in").mkdir()
    sinks = {"Everything": f"jsonl:{tmp_path / 'o'}", "Tags": f"jsonl:{tmp_path / 'o'}"}
    with pytest.raises(ConfigurationError, match="Everything and Tags both write"):
        run_app("fans", file=TOPOLOGIES, sources={"Words": f"jsonl:{tmp_path / 'in'}"}, sinks=sinks)


@pytest.mark.parametrize("which", ["passing", pytest.param("refusable", marks=pytest.mark.slow)])
def test_what_a_table_refuses_is_a_dead_letter_of_the_run_and_stops_nothing(run_app, tmp_path, which):
    (tmp_path / "in").mkdir()
    lines = [json.dumps({"text": f"w{size}", "size": size}) for size in range(8)]
    (tmp_path / "in" / "1.jsonl").write_text("\n".join(lines))
    table = tmp_path / "t.sqlite"
    with sqlite3.connect(table) as connection:
        connection.execute('CREATE TABLE "Out" (text text NOT NULL, size bigint NOT NULL CHECK (size < 5))')
    options = {"sources": {"Words": f"jsonl:{tmp_path / 'in'}"}, "sinks": {"Out": f"sqlite:{table}"}}
    result = run_app(which, **options)
    assert sorted(word.size for word in result.output("Out")) == [0, 1, 2, 3, 4]
    letters = list(letters_of(result.directory))
    assert sorted(letter.event["size"] for letter in letters) == [5, 6, 7]
    assert {(letter.place, "CHECK constraint failed" in letter.error) for letter in letters} == {("Out", True)}
    counts = result.report["counts"]
    assert (counts["processed"], counts["dead_letters"], counts["refused"], counts["lost"]) == (8, 3, 3, 0)
    (tmp_path / "in" / "2.jsonl").write_text(json.dumps({"text": "w9", "size": 9}))
    again = run_app(which, **options)
    assert (again.report["counts"]["refused"], len(again.output("Out"))) == (4, 5)
    assert list(
        letters_of(
            run_app(
                which,
                fresh=True,
                sinks=options["sinks"] | {"Out": f"{options['sinks']['Out']}?fresh=empty"},
                sources=options["sources"],
            ).directory
        )
    )


@pytest.mark.servers
def test_what_postgresql_refuses_of_a_query_stops_nothing(run_app, tmp_path, postgres):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.jsonl").write_text('{"text": "a"}\n{"text": "nul \\u0000"}\n{"text": "b"}\n')
    uri = f"{postgres.uri}?table=t{time.time_ns()}"
    result = run_app("refusable", sources={"Words": f"jsonl:{tmp_path / 'in'}"}, sinks={"Out": uri})
    assert sorted(word.text for word in result.output("Out")) == ["a", "b"]
    [letter] = letters_of(result.directory)
    assert "NUL" in letter.error
