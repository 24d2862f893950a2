"""What the suite of all sources does not ask of Delta tables: what versions do, what goes from the log, and types."""

import json
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Annotated

import msgspec
import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from test_contracts import VISIT, Visit
from test_delta import EVERYTHING, Everything, staged

from penstock import Event
from penstock.app.stream import Sink, Source, Stream
from penstock.connectors.declaration import SourceContext
from penstock.connectors.registry import bind_sinks, bind_source
from penstock.connectors.tables import delta_source
from penstock.errors import ConfigurationError, SourceError
from penstock.runtime.codec import Codec


class Row(Event):
    name: str
    number: int


def bound(directory, event_type=Row, options=""):
    source = Source("Rows", event_type, uri=f"delta:{directory / 'table'}{options}")
    return bind_source(source, None, SourceContext())


def sequence(directory, **given):
    return bound(directory, **given).sequence


def write(directory, *names, **given):
    rows = pa.table({"name": list(names), "number": list(range(len(names)))})
    write_deltalake(directory / "table", rows, mode="append", **given)


def names(sequence, start=0):
    return [msgspec.json.decode(each)["name"] for each in sequence.read(start, sequence.end(0.0), 0.0).payloads]


def log(directory, version):
    return directory / "table" / "_delta_log" / f"{version:020}.json"


def commit(directory, *actions):
    """A version as another library may write it."""
    version = DeltaTable(directory / "table").version() + 1
    log(directory, version).write_text("\n".join(map(json.dumps, actions)))


def rewritten(directory, version, change):
    """Change the actions of a version."""
    actions = [json.loads(line) for line in log(directory, version).read_text().splitlines()]
    log(directory, version).write_text("\n".join(json.dumps(change(action)) for action in actions))


def test_the_rows_of_new_versions_come_in_their_order(tmp_path):
    write(tmp_path, "a", "b")
    rows = sequence(tmp_path)
    assert names(rows) == ["a", "b"]
    write(tmp_path, "c")
    write(tmp_path, "d", "e")
    assert names(rows) == ["a", "b", "c", "d", "e"]
    assert names(sequence(tmp_path)) == names(rows)


def test_a_row_is_born_with_its_version_or_when_the_run_started(tmp_path):
    write(tmp_path, "a")
    rows = sequence(tmp_path)
    assert rows.end(0.0) == 1
    write(tmp_path, "b")
    version = json.loads(log(tmp_path, 1).read_text().splitlines()[0])["commitInfo"]["timestamp"]
    assert rows.read(1, rows.end(0.0), 0.0).born.tolist() == [version * 1000]
    assert rows.read(1, 2, 4e9).born.tolist() == [4e15]


def test_only_what_comes_after_the_start_is_read_if_so_wished(tmp_path):
    write(tmp_path, "a", "b")
    rows = sequence(tmp_path, options="?start=latest")
    assert names(rows) == []
    write(tmp_path, "c")
    assert names(rows) == ["c"]


def test_what_only_moves_rows_is_no_event(tmp_path):
    write(tmp_path, "a")
    write(tmp_path, "b")
    rows = sequence(tmp_path)
    assert rows.end(0.0) == 2
    DeltaTable(tmp_path / "table").optimize.compact()
    write(tmp_path, "c")
    assert names(rows) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.delete("name = 'a'"),
        lambda table: table.update({"number": "7"}, predicate="name = 'a'"),
        lambda table: write_deltalake(table, pa.table({"name": ["z"], "number": [1]}), mode="overwrite"),
    ],
)
def test_what_takes_rows_back_is_refused_or_passed_over(tmp_path, change):
    write(tmp_path, "a", "b")
    strict, lax = sequence(tmp_path), sequence(tmp_path, options="?changes=skip")
    assert strict.end(0.0) == lax.end(0.0) == 2
    change(DeltaTable(tmp_path / "table"))
    write(tmp_path, "c")
    with pytest.raises(SourceError, match=r"deletes or rewrites rows in version 1 .*; events|events cannot be taken back"):
        strict.end(0.0)
    assert lax.end(0.0) == 3
    assert names(lax, 2) == ["c"]


def test_a_deletion_vector_is_refused(tmp_path):
    write(tmp_path, "a", "b")
    rows = sequence(tmp_path)
    assert rows.end(0.0) == 2
    file = json.loads(log(tmp_path, 0).read_text().splitlines()[-1])["add"]
    commit(tmp_path, {"add": {**file, "deletionVector": {"storageType": "i", "cardinality": 1}}})
    with pytest.raises(SourceError, match="deletes or rewrites rows in version 1"):
        rows.end(0.0)


def test_a_bookmark_finds_its_events_though_what_was_before_has_gone(tmp_path):
    write(tmp_path, "a", "b")
    first = sequence(tmp_path)
    assert first.end(0.0) == 2
    write(tmp_path, "c", "d")
    write(tmp_path, "e")
    assert first.end(0.0) == 5
    marks = {number: first.bookmark(number) for number in range(6)}
    DeltaTable(tmp_path / "table").create_checkpoint()
    for version in (0, 1):
        log(tmp_path, version).unlink()
    for number in (4, 5):
        again = sequence(tmp_path)
        again.turn_to(marks[number])
        assert names(again, number) == ["a", "b", "c", "d", "e"][number:]
    late = sequence(tmp_path)
    late.turn_to(marks[2])
    with pytest.raises(SourceError, match="has no version 1 in its log any more"):
        late.end(0.0)


def test_a_bookmark_within_what_the_table_held_at_first_means_that_version(tmp_path):
    write(tmp_path, "a", "b")
    write(tmp_path, "c")
    first = sequence(tmp_path)
    assert first.end(0.0) == 3
    mark = json.loads(json.dumps(first.bookmark(1)))
    write(tmp_path, "d")
    DeltaTable(tmp_path / "table").optimize.compact()
    again = sequence(tmp_path)
    again.turn_to(mark)
    assert names(again, 1) == ["b", "c", "d"]


def test_a_run_of_another_start_in_the_same_process_counts_anew(tmp_path):
    write(tmp_path, "a", "b")
    rows = sequence(tmp_path, options="?start=latest")
    old = rows.bookmark(0)
    write(tmp_path, "c")
    assert names(rows) == ["c"]
    new = sequence(tmp_path, options="?start=latest").bookmark(0)
    write(tmp_path, "d")
    rows.turn_to(new)
    assert names(rows) == ["d"]
    rows.turn_to(old)
    assert names(rows) == ["c", "d"]


def test_what_was_read_long_ago_is_forgotten(tmp_path, monkeypatch):
    monkeypatch.setattr(delta_source, "KEPT_FOR_LONG", 3)
    write(tmp_path, "a")
    rows = sequence(tmp_path)
    begin = rows.bookmark(0)
    for name in "bcdefg":
        write(tmp_path, name)
    assert names(rows) == list("abcdefg")
    rows.turn_to(rows.bookmark(5))
    assert len(rows._pieces) == 2
    assert names(rows, 5) == ["f", "g"]
    rows.turn_to(begin)
    assert names(rows) == list("abcdefg")


class Placed(Event):
    name: str
    number: int
    place: str
    day: date
    floor: int | None = None


def test_columns_of_partitions_and_columns_that_came_later(tmp_path):
    def rows(name, floor=None, **more):
        given = {"name": [name], "number": [1], "place": ["a b/ü%"], "day": [date(2026, 1, 2)], **more}
        return pa.table(given | ({} if floor is None else {"floor": [floor]}))

    at = tmp_path / "table"
    write_deltalake(at, rows("a"), partition_by=["place", "day"])
    table = sequence(tmp_path, event_type=Placed)
    assert table.end(0.0) == 1
    write_deltalake(at, rows("b", floor=3, other=["x"]), mode="append", schema_mode="merge")
    for each in (table, sequence(tmp_path, event_type=Placed)):
        events = [msgspec.json.decode(row, type=Placed) for row in each.read(0, each.end(0.0), 0.0).payloads]
        assert events == [Placed("a", 1, "a b/ü%", date(2026, 1, 2)), Placed("b", 1, "a b/ü%", date(2026, 1, 2), 3)]


def test_events_of_all_types_come_back(tmp_path):
    sink = Sink("Out", Stream("Samples", Everything), f"delta:{tmp_path / 'table'}", ())
    out = bind_sinks([sink], {}, tmp_path / "output")["Out"]
    out.claim("run-1", ())
    out.deliver("main", 0, staged(out, EVERYTHING))
    rows = sequence(tmp_path, event_type=Everything)
    payloads = rows.read(0, rows.end(0.0), 0.0).payloads
    assert list(map(Codec(Everything).decode_json, payloads)) == EVERYTHING


def test_what_another_library_has_written(tmp_path):
    rows = polars.DataFrame({"name": ["a", "b"], "number": [1, 2]}, schema={"name": polars.String, "number": polars.Int16})
    rows.write_delta(tmp_path / "table")
    assert names(sequence(tmp_path)) == ["a", "b"]


def test_a_file_without_statistics_is_counted(tmp_path):
    write(tmp_path, "a", "b")
    rows = sequence(tmp_path)
    assert rows.end(0.0) == 2
    write(tmp_path, "c", "d", "e")
    rewritten(tmp_path, 1, lambda action: {"add": {**action["add"], "stats": None}} if "add" in action else action)
    assert names(rows) == ["a", "b", "c", "d", "e"]
    assert names(sequence(tmp_path)) == names(rows)


def test_files_of_many_row_groups_are_read_in_any_cut(tmp_path):
    from deltalake import WriterProperties

    rows = pa.table({"name": [str(number) for number in range(100)], "number": list(range(100))})
    write_deltalake(tmp_path / "table", rows, writer_properties=WriterProperties(max_row_group_size=7))
    table = sequence(tmp_path)
    assert table.end(0.0) == 100
    for start, end in [(0, 100), (6, 8), (7, 14), (13, 50), (99, 100), (40, 40)]:
        found = [msgspec.json.decode(row)["number"] for row in table.read(start, end, 0.0).payloads]
        assert found == list(range(start, end))


def test_a_file_that_was_removed_is_one_sentence(tmp_path):
    write(tmp_path, "a")
    rows = sequence(tmp_path)
    assert rows.end(0.0) == 1
    for file in (tmp_path / "table").glob("*.parquet"):
        file.unlink()
    with pytest.raises(SourceError, match="has lost the file .* as vacuum does"):
        rows.read(0, 1, 0.0)


def test_a_table_that_was_replaced_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(delta_source, "CHECKED_EVERY_S", 0.0)
    write(tmp_path, "a")
    rows = sequence(tmp_path)
    assert rows.end(0.0) == 1
    (tmp_path / "table").rename(tmp_path / "old")
    write(tmp_path, "b")
    assert sequence(tmp_path).identity() != rows.identity()
    with pytest.raises(SourceError, match="is another table than it was"):
        rows.end(0.0)


def test_columns_of_other_names_are_refused(tmp_path):
    write(tmp_path, "a")
    rows = sequence(tmp_path)
    assert rows.end(0.0) == 1
    write(tmp_path, "b")
    mapped = next(json.loads(line) for line in log(tmp_path, 0).read_text().splitlines() if "metaData" in line)
    mapped["metaData"]["configuration"] = {"delta.columnMapping.mode": "name"}
    with log(tmp_path, 1).open("a") as file:
        file.write("\n" + json.dumps(mapped))
    with pytest.raises(SourceError, match="maps columns to other names"):
        rows.end(0.0)


class Wide(Event):
    name: str
    number: float
    more: int


class Wrong(Event):
    name: int


@pytest.mark.parametrize(
    ("event_type", "said"),
    [
        (Wide, "does not fit Wide: it has no column 'more'"),
        (Wrong, "column name of delta:.* is of type string, but Wrong.name"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(tmp_path, event_type, said):
    write(tmp_path, "a")
    with pytest.raises(SourceError, match=said):
        bound(tmp_path, event_type=event_type)


def test_no_table_and_no_store_is_one_sentence(tmp_path):
    for make in (lambda: None, (tmp_path / "table").mkdir):
        make()
        with pytest.raises(SourceError, match="Source Rows: delta:.* (is no Delta table|cannot be read)") as refused:
            bound(tmp_path)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("?start=now", "one of earliest, latest"),
        ("?storage.AWS_SECRET_ACCESS_KEY=hush", "Source Rows: .* in the environment"),
        ("?compact=5", "takes start, changes, storage.NAME, min_rows"),
    ],
)
def test_what_cannot_be_is_refused_at_once(tmp_path, options, said):
    write(tmp_path, "a")
    with pytest.raises(ConfigurationError, match=said):
        bound(tmp_path, options=options)


class Timed(Event):
    took: timedelta


def test_durations_are_numbers_of_seconds(tmp_path):
    write_deltalake(tmp_path / "table", pa.table({"took": [0.1, -3.000001]}))
    rows = sequence(tmp_path, event_type=Timed)
    events = [msgspec.json.decode(row, type=Timed) for row in rows.read(0, rows.end(0.0), 0.0).payloads]
    assert events == [Timed(timedelta(milliseconds=100)), Timed(timedelta(seconds=-3, microseconds=-1))]


@pytest.mark.servers
def test_a_table_in_a_store_is_followed(s3, tmp_path, monkeypatch):
    monkeypatch.setattr(delta_source, "LOOKED_EVERY_S", 0.0)
    at, storage = f"{s3.uri.replace('s3a://', 's3://')}/{tmp_path.name}", {"AWS_ALLOW_HTTP": "true"}

    def add(*names):
        rows = pa.table({"name": list(names), "number": [1] * len(names)})
        write_deltalake(at, rows, mode="append", storage_options=storage)

    add("a", "b")
    source = Source("Rows", Row, uri=f"delta:{at}?storage.AWS_ALLOW_HTTP=true")
    rows = bind_source(source, None, SourceContext()).sequence
    assert names(rows) == ["a", "b"]
    add("c")
    assert names(rows) == ["a", "b", "c"]


def test_columns_have_the_fields_names_whatever_json_calls_them(tmp_path):
    table = pa.table(Codec(Visit).to_columns([VISIT])).set_column(3, "how_long", [[VISIT.how_long.total_seconds()]])
    write_deltalake(tmp_path / "table", table)
    rows = sequence(tmp_path, event_type=Visit)
    assert list(map(Codec(Visit).decode_json, rows.read(0, 1, 0.0).payloads)) == [VISIT]


class Held(Event):
    n: int
    at: datetime | None = None
    real: float | None = None
    price: Decimal | None = None
    counts: dict[str, int] | None = None
    name: str | None = None


NOT_HELD = {
    "a year beyond 9999": ("at", pa.array([0, 2**60], pa.timestamp("us", "UTC"))),
    "infinity": ("real", pa.array([1.0, float("inf")])),
    "a whole number that no float is": ("real", pa.array([1, 2**53 + 1])),
    "a decimal that no column holds": ("price", pa.array([Decimal(1), Decimal(10) ** 25], pa.decimal128(38, 0))),
    "a key twice": ("counts", pa.array([[("x", 1)], [("x", 1), ("x", 2)]], pa.map_(pa.string(), pa.int64()))),
}


@pytest.mark.parametrize("how", NOT_HELD)
def test_a_value_that_its_field_does_not_hold_costs_its_row_alone(tmp_path, how):
    name, column = NOT_HELD[how]
    write_deltalake(tmp_path / "table", pa.table({"n": [1, 2], name: column}), mode="append")
    rows = sequence(tmp_path, event_type=Held)
    good, bad = rows.read(0, rows.end(0.0), 0.0).payloads
    assert Codec(Held).decode_json(good).n == 1
    assert f"column {name} cannot be read as" in bad.decode()
    with pytest.raises(msgspec.DecodeError):
        Codec(Held).decode_json(bad)


class Zoneless(Event):
    at: Annotated[datetime, msgspec.Meta(tz=False)]


def test_a_zone_that_would_be_lost_is_refused(tmp_path):
    noon = datetime(2026, 1, 1, 12)
    write_deltalake(tmp_path / "table", pa.table({"at": pa.array([noon], pa.timestamp("us", "UTC"))}))
    with pytest.raises(SourceError, match=r"column at of .* is of type timestamp\[us, tz=UTC\], but Zoneless.at needs"):
        bound(tmp_path, event_type=Zoneless)
    (tmp_path / "other").mkdir()
    write_deltalake(tmp_path / "other" / "table", pa.table({"at": pa.array([noon], pa.timestamp("us"))}))
    rows = sequence(tmp_path / "other", event_type=Zoneless)
    assert list(map(Codec(Zoneless).decode_json, rows.read(0, 1, 0.0).payloads)) == [Zoneless(noon)]
