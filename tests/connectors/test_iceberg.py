"""What the suite of all sinks does not ask of Iceberg tables: types, other writers, other readers, and what does not fit."""

import os
from pathlib import Path
from urllib.parse import urlsplit

import duckdb
import polars
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType, NestedField, StringType
from support import deliver_at_once
from test_delta import EVERYTHING, Durations, Everything, Perhaps, staged

from penstock.app.stream import Sink, Stream
from penstock.connectors.registry import bind_sinks, refuse_shared
from penstock.connectors.tables import iceberg
from penstock.errors import ConfigurationError, SinkError
from penstock.runtime.codec import Codec
from penstock.testing.contracts import SAMPLES, Sample, stage


def properties(directory):
    return {"uri": f"sqlite:///{directory / 'lake.sqlite'}", "warehouse": f"file://{directory / 'lake'}"}


def catalog(directory):
    (directory / "lake").mkdir(exist_ok=True)
    return load_catalog("lake", **properties(directory))


def table(directory):
    return catalog(directory).load_table("results.samples")


def bound(directory, event_type=Sample, key=(), at=None, options="", name="results.samples"):
    catalog(at or directory)
    own = [
        f"catalog.{name}={value}" for name, value in properties(at or directory).items() if f"&catalog.{name}=" not in options
    ]
    given = "&".join([*own, *options.removeprefix("&").split("&")]).removesuffix("&")
    sink = Sink("Out", Stream("Samples", event_type), f"iceberg:lake/{name}?{given}", key)
    return bind_sinks([sink], {}, directory / "output")["Out"]


def claimed(directory, **given):
    sink = bound(directory, **given)
    sink.claim("run-1", ())
    return sink


@pytest.mark.parametrize(
    "key", [(), ("Key",), ("Key", "flag"), ("at",), ("day", "money"), ("raw",), ("took",), ("real", "clock")]
)
def test_events_of_all_types_come_back(tmp_path, key):
    sink = claimed(tmp_path, event_type=Everything, key=key)
    sink.deliver("main", 0, staged(sink, EVERYTHING[:2]))
    sink.deliver("main", 1, staged(sink, EVERYTHING[2:]))
    same_key = len({tuple(getattr(event, name) for name in key) for event in EVERYTHING}) == 1 and key
    assert sorted(sink.read(), key=lambda event: event.Key) == EVERYTHING[2 if same_key else 0 :]


def test_a_table_is_one_however_its_catalog_is_spelled(tmp_path):
    """Two sinks of one run would take each other's batches for their own."""
    sinks = {
        "A": claimed(tmp_path),
        "B": claimed(tmp_path, options=f"&catalog.uri=sqlite:///{tmp_path}/./lake.sqlite"),
        "C": claimed(tmp_path, name="results.others"),
    }
    with pytest.raises(ConfigurationError, match=r"The sinks A and B both write to iceberg:lake/results\.samples"):
        refuse_shared(sinks)
    refuse_shared({name: sinks[name] for name in "AC"})


def test_other_programs_read_the_table(tmp_path):
    sink = claimed(tmp_path)
    sink.deliver("main", 0, stage(sink, SAMPLES))
    names = sorted(sample.name for sample in SAMPLES)
    assert sorted(polars.scan_iceberg(table(tmp_path)).collect()["name"].to_list()) == names
    by_metadata = polars.scan_iceberg(table(tmp_path).metadata_location)
    assert sorted(by_metadata.collect()["name"].to_list()) == names
    files = [urlsplit(task.file.file_path).path for task in table(tmp_path).scan().plan_files()]
    assert sorted(name for (name,) in duckdb.sql(f"SELECT name FROM read_parquet({files})").fetchall()) == names


def test_of_a_key_the_last_event_of_the_last_batch_stays(tmp_path):
    sink = claimed(tmp_path, key=("name",))
    sink.deliver("main", 0, stage(sink, [Sample("a", 1), Sample("b", 1), Sample("a", 2)]))
    sink.deliver("main", 1, stage(sink, [Sample("a", 4), Sample("c", 1), Sample("a", 3)]))
    assert sorted((event.name, event.number) for event in sink.read()) == [("a", 3), ("b", 1), ("c", 1)]
    assert sink.reached("main") == 1
    assert sink.reached("other") == -1


def test_of_several_fields_each_combination_is_a_key(tmp_path):
    sink = claimed(tmp_path, key=("name", "number"))
    sink.deliver("main", 0, stage(sink, [Sample("a", 1, "x"), Sample("b", 2, "x"), Sample("a", 2, "x"), Sample("c", 2, "x")]))
    sink.deliver("main", 1, stage(sink, [Sample("a", 1, "y"), Sample("b", 2), Sample("c", 1, "y")]))
    assert sorted((event.name, event.number, event.note) for event in sink.read()) == [
        ("a", 1, "y"),
        ("a", 2, "x"),
        ("b", 2, None),
        ("c", 1, "y"),
        ("c", 2, "x"),
    ]


@pytest.mark.parametrize("key", [(), ("name",)])
def test_a_batch_is_one_commit_that_says_what_it_is(tmp_path, key):
    sink = claimed(tmp_path, key=key)
    for batch in range(3):
        before = table(tmp_path).metadata_location
        sink.deliver("main", batch, stage(sink, SAMPLES))
        assert table(tmp_path).metadata.metadata_log[-1].metadata_file == before
    last = table(tmp_path).current_snapshot().summary.additional_properties
    assert (last["penstock.run"], last["penstock.group"], last["penstock.batch"]) == ("run-1", "main", "2")
    assert "commit.retry.num-retries" not in table(tmp_path).properties


@pytest.mark.parametrize("key", [(), ("name",)])
def test_four_drivers_that_deliver_one_batch_at_once_leave_one_copy(tmp_path, key):
    sinks = [claimed(tmp_path / name, key=key, at=tmp_path) for name in "abcd" if not (tmp_path / name).mkdir()]
    files = [stage(sink, SAMPLES) for sink in sinks]
    deliver_at_once(sinks, files)
    assert len(sinks[0].read()) == len(SAMPLES)
    assert len(table(tmp_path).snapshots()) == 1


@pytest.mark.parametrize("key", [(), ("name",)])
@pytest.mark.parametrize("same", [True, False])
def test_another_writer_between_reading_and_writing_does_not_harm(tmp_path, monkeypatch, key, same):
    sink, other = claimed(tmp_path, key=key), bound(tmp_path, key=key)
    other.claim("run-1", ())
    put, tries = iceberg.IcebergSink._stage, []

    def overtaken(self, *given):
        tries.append(self)
        put(self, *given)
        if len(tries) == 1:
            other.deliver("main" if same else "other", 0, stage(other, SAMPLES if same else [Sample("z", 1)]))

    monkeypatch.setattr(iceberg.IcebergSink, "_stage", overtaken)
    sink.deliver("main", 0, stage(sink, SAMPLES))
    assert tries.count(sink) == (1 if same else 2)
    assert len(sink.read()) == len(SAMPLES) + (not same)


def test_what_the_table_has_reached_outlives_its_snapshots(tmp_path, monkeypatch):
    monkeypatch.setattr(iceberg, "EXPIRED_EVERY", 4)
    sink = claimed(tmp_path, options="&keep=0.001s")
    for batch in range(4):
        files = stage(sink, SAMPLES)
        sink.deliver("main", batch, files)
    assert len(table(tmp_path).snapshots()) == 1
    sink.deliver("main", 2, stage(sink, SAMPLES))
    assert len(sink.read()) == 4 * len(SAMPLES)


def test_files_are_on_disk_before_the_catalog_names_them(tmp_path, monkeypatch):
    synced, fsync = set(), os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda handle: (synced.add(str(Path(f"/proc/self/fd/{handle}").readlink())), fsync(handle))
    )
    sink = claimed(tmp_path)
    sink.deliver("main", 0, stage(sink, SAMPLES))
    files = {str(file) for file in (tmp_path / "lake").rglob("*") if file.is_file()}
    assert len(files) >= 5
    assert files <= synced


def test_a_table_that_was_there_is_taken_if_it_fits(tmp_path):
    schema = Schema(
        NestedField(1, "added", StringType()),
        NestedField(2, "name", StringType(), required=True),
        NestedField(3, "number", LongType()),
        NestedField(4, "note", StringType()),
    )
    made = catalog(tmp_path)
    made.create_namespace("results")
    spec = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=BucketTransform(4), name="bucket"))
    made.create_table("results.samples", schema, partition_spec=spec)
    sink = claimed(tmp_path, key=("name", "number"))
    for batch in range(2):
        sink.deliver("main", batch, stage(sink, SAMPLES))
    assert len(sink.read()) == len(SAMPLES)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ([("name", pa.string(), True), ("number", pa.int64(), True)], "column note is missing"),
        ([("name", pa.string(), True), ("number", pa.string(), True), ("note", pa.string(), True)], "column number is"),
        ([("name", pa.string(), True), ("number", pa.int64(), True), ("note", pa.string(), False)], "note is never null"),
        ([*((f.name, f.type, True) for f in Codec(Sample).schema), ("added", pa.int32(), False)], "added is never null"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(tmp_path, columns, said):
    made = catalog(tmp_path)
    made.create_namespace("results")
    made.create_table("results.samples", pa.schema([pa.field(*column) for column in columns]))
    with pytest.raises(SinkError, match=said):
        claimed(tmp_path)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"event_type": Durations}, "Iceberg keeps no durations within"),
        ({"event_type": Perhaps, "key": ("name",)}, "must not be optional"),
        ({"options": "&keep=long"}, "a duration"),
        ({"options": "&catalog.credential=hush"}, "set PYICEBERG_CATALOG__LAKE__CREDENTIAL in the environment"),
        ({"options": "&catalog.s3.secret-access-key=hush"}, "set PYICEBERG_CATALOG__LAKE__S3__SECRET_ACCESS_KEY"),
        ({"options": "&catalog.uri=postgresql%2Bpsycopg://me:hush@host/db"}, "PYICEBERG_CATALOG__LAKE__URI"),
        ({"options": "&tables=5"}, "takes fresh, keep, catalog.NAME"),
        ({"name": "samples"}, "write iceberg:CATALOG/NAMESPACE.TABLE"),
    ],
)
def test_what_cannot_be_is_refused_at_once(tmp_path, given, said):
    with pytest.raises(ConfigurationError, match=said) as refused:
        bound(tmp_path, **given)
    assert "hush" not in str(refused.value)


def test_a_catalog_that_cannot_be_used_is_one_sentence(tmp_path):
    for uri in (f"sqlite:///{tmp_path / 'none' / 'lake.sqlite'}", "http://127.0.0.1:9", "ftp://there"):
        sink = bound(tmp_path, options=f"&catalog.uri={uri}")
        with pytest.raises(SinkError, match=r"Sink Out: iceberg:.*cannot be written") as refused:
            sink.claim("run-1", ())
        assert "\n" not in str(refused.value)
    unknown = bind_sinks([Sink("Out", Stream("Samples", Sample), "iceberg:unknown/a.b")], {}, tmp_path)["Out"]
    with pytest.raises(SinkError, match=r"PYICEBERG_CATALOG__UNKNOWN__URI"):
        unknown.claim("run-1", ())


@pytest.mark.servers
def test_a_table_in_a_store_is_written(s3, tmp_path):
    warehouse = f"{s3.uri.replace('s3a://', 's3://')}/{tmp_path.name}"
    given = {
        "uri": f"sqlite:///{tmp_path / 'lake.sqlite'}",
        "warehouse": warehouse,
        "s3.endpoint": s3.environment["AWS_ENDPOINT_URL"],
        "py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO",
    }
    uri = "iceberg:lake/results.samples?" + "&".join(f"catalog.{name}={value}" for name, value in given.items())
    sink = bind_sinks([Sink("Out", Stream("Samples", Sample), uri, ("name",))], {}, tmp_path / "output")["Out"]
    sink.claim("run-1", ())
    for batch in (0, 1, 1):
        sink.deliver("main", batch, stage(sink, SAMPLES))
    assert len(sink.read()) == len(SAMPLES)
