"""Files of rows as people have them: each is read by its own header or schema, and what cannot be right is a dead letter."""

import codecs
import gzip
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import Event
from penstock.app.stream import Source
from penstock.connectors.declaration import SourceContext
from penstock.connectors.files.reader import FileReader, lines_of_csv
from penstock.connectors.registry import bind_source
from penstock.errors import SourceError
from penstock.kinds.arrow import rows_shown
from penstock.runtime.codec import Codec
from penstock.runtime.entrance import Misfit


class Inner(Event):
    x: int
    y: int | None = None


class Row(Event):
    name: str
    city: str | None = None
    size: int | None = None
    inner: Inner | None = None
    waits: list[timedelta] | None = None
    at: datetime | None = None
    price: Decimal | None = None


def read(path, kind, event_type=Row, encoding=None):
    """The events of a file, and the dead letters' reasons."""
    codec = Codec(event_type)
    events, letters = [], []
    for part in FileReader("Rows", event_type.__name__, kind, codec.schema, encoding).parts(f"file:{path}"):
        if isinstance(part, pa.RecordBatch):
            events += codec.from_columns(part)
            continue
        for row in part:
            if isinstance(row, Misfit):
                letters.append(row.reason)
            else:
                events.append(codec.from_text(row))
    return events, letters


def csv_file(directory, content):
    path = directory / "rows.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def parquet_file(directory, **columns):
    path = directory / "rows.parquet"
    pq.write_table(pa.table(columns), path)
    return path


CSV = {
    "plain": ("name,city\nAda,Paris\n", [Row("Ada", "Paris")]),
    "a mark at the beginning": ("\ufeffname,city\nAda,Paris\n", [Row("Ada", "Paris")]),
    "columns in another order, and more of them": ("x,city,name\n1,Paris,Ada\n", [Row("Ada", "Paris")]),
    "quotes, commas, lines": ('name,city\n"A ""d"", a","P\naris"\n', [Row('A "d", a', "P\naris")]),
    "an empty text and a missing one": ('name,city\n"",\n', [Row("", None)]),
    "a quoted empty text": ('name,city\nAda,""\n', [Row("Ada", "")]),
    "fields too few": ("name,city,size\nAda\n", [Row("Ada")]),
    "carriage returns": ("name,city\r\nAda,Paris\r\n", [Row("Ada", "Paris")]),
    "blank lines": ("name,city\n\nAda,Paris\n\n", [Row("Ada", "Paris")]),
    "no line at its end": ("name,city\nAda,Paris", [Row("Ada", "Paris")]),
    "a header alone": ("name,city\n", []),
    "a header alone, and no line": ("name,city", []),
    "a blank line first": ("\n\nname,city\nAda,Paris\n", [Row("Ada", "Paris")]),
    "fields too few, and an empty text": ('name,city,size\n"",""\n"",\n', [Row("", ""), Row("")]),
    "a long field": (f"name,city\nAda,{'x' * 200_000}\n", [Row("Ada", "x" * 200_000)]),
    "a column of ours": ("name,born,now,major\nAda,1,2,3\n", [Row("Ada")]),
    "nested fields as JSON": (
        'name,inner,waits\nAda,"{""x"": 1}","[""PT1S""]"\n',
        [Row("Ada", inner=Inner(1), waits=[timedelta(seconds=1)])],
    ),
}


@pytest.mark.parametrize("how", CSV)
def test_csv_as_people_have_it(tmp_path, how):
    content, wanted = CSV[how]
    assert read(csv_file(tmp_path, content), "csv") == (wanted, [])


@pytest.mark.parametrize("line", ["Smith, John,Paris", "Smith,John,Paris,", ",,,,"])
def test_a_line_with_a_field_too_many_is_no_event(tmp_path, line):
    path = csv_file(tmp_path, f"name,city\nAda,Paris\n{line}\nBob,Rome\n")
    events, [letter] = read(path, "csv")
    assert events == [Row("Ada", "Paris"), Row("Bob", "Rome")]
    assert f"{path}: the line has {line.count(',') + 1} fields, and the header names 2" in letter


def test_lines_come_in_the_order_of_the_file(tmp_path):
    lines = [f"n{number}" if number % 3 else f"n{number},c" for number in range(20_000)]
    path = csv_file(tmp_path, "\n".join(["name,city", *lines]))
    events, letters = read(path, "csv")
    assert ([event.name for event in events], letters) == ([f"n{number}" for number in range(20_000)], [])


def test_a_line_of_another_length_in_another_encoding_takes_no_other_with_it(tmp_path):
    path = csv_file(tmp_path, b"name,city\nAda,\xff,x\nBob,\xff\nCid\xff\nDot,Rome\n")
    events, letters = read(path, "csv")
    assert events == [Row("Dot", "Rome")]
    assert len(letters) == 3
    path = csv_file(tmp_path, b"name,city\nAda,a\x81b\nBob,Rome\n")
    events, letters = read(path, "csv", encoding="cp1252")
    assert (events, len(letters)) == ([Row("Bob", "Rome")], 1)


def test_a_header_that_names_a_field_twice_makes_dead_letters(tmp_path):
    events, [letter] = read(csv_file(tmp_path, "name,city,name\nAda,Paris,Eve\n"), "csv")
    assert events == []
    assert "names 'name' twice" in letter


def test_an_encoding_is_named_or_its_lines_are_dead_letters(tmp_path):
    path = csv_file(tmp_path, "name,city\nAda,Zürich\nBob,Rome\n".encode("latin-1"))
    events, [letter] = read(path, "csv")
    assert events == [Row("Bob", "Rome")]
    assert "not in UTF-8" in letter
    assert "?encoding=latin-1" in letter
    assert read(path, "csv", encoding="latin-1") == ([Row("Ada", "Zürich"), Row("Bob", "Rome")], [])
    path.write_bytes("name,city\nAda,Zürich\n".encode("utf-16"))
    assert read(path, "csv", encoding="utf-16") == ([Row("Ada", "Zürich")], [])


MARKED = [
    ("utf-8", codecs.BOM_UTF8),
    ("latin-1", codecs.BOM_UTF8),
    ("utf-16", b""),
    ("UTF_16_LE", codecs.BOM_UTF16_LE),
    ("utf-16-be", codecs.BOM_UTF16_BE),
    ("utf-32-le", codecs.BOM_UTF32_LE),
    ("utf-32-be", codecs.BOM_UTF32_BE),
]


@pytest.mark.parametrize(("encoding", "mark"), [*MARKED, *((encoding, b"") for encoding, _ in MARKED)])
def test_a_mark_never_matters(tmp_path, encoding, mark):
    path = csv_file(tmp_path, mark + "name,city\nAda,Z\u00fcrich\n".encode(encoding))
    assert read(path, "csv", encoding=encoding) == ([Row("Ada", "Z\u00fcrich")], [])


def test_lines_in_another_encoding(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes('{"name": "Zoë"}\n'.encode("utf-16"))
    parts = list(FileReader("Rows", "Row", "jsonl", Codec(Row).schema, "utf-16").parts(str(path)))
    assert parts == [['{"name": "Zoë"}'.encode()]]


def test_a_packed_file_is_unpacked(tmp_path):
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress(b"name,city\nAda,Paris\n"))
    assert read(path, "csv") == ([Row("Ada", "Paris")], [])
    path.write_bytes(gzip.compress(b"name,city\nAda,Paris\n" * 1000)[:-20])
    with pytest.raises(SourceError, match=r"rows\.csv\.gz is not a whole csv file"):
        read(path, "csv")


SECOND = pa.array([[timedelta(seconds=1)], None], pa.list_(pa.duration("us")))
PARQUET = {
    "columns that are absent": ({"name": ["a", "b"]}, [Row("a"), Row("b")]),
    "columns in another order": ({"city": ["x"], "name": ["a"]}, [Row("a", "x")]),
    "a narrower type": ({"name": ["a"], "size": pa.array([1], pa.int8())}, [Row("a", size=1)]),
    "an unsigned type": ({"name": ["a"], "size": pa.array([2**63 - 1], pa.uint64())}, [Row("a", size=2**63 - 1)]),
    "categories": ({"name": pa.array(["a"]).dictionary_encode()}, [Row("a")]),
    "large texts": ({"name": pa.array(["a"], pa.large_string())}, [Row("a")]),
    "a column of nulls": ({"name": ["a"], "size": pa.nulls(1)}, [Row("a")]),
    "nested fields that are absent": ({"name": ["a"], "inner": [{"x": 1}]}, [Row("a", inner=Inner(1))]),
    "nested fields in another order": (
        {"name": ["a"], "inner": pa.array([{"y": 2, "x": 1}], pa.struct({"y": pa.int32(), "x": pa.int32()}))},
        [Row("a", inner=Inner(1, 2))],
    ),
    "a nested field too many": ({"name": ["a"], "inner": [{"x": 1, "z": 3}]}, [Row("a", inner=Inner(1))]),
    "nested lengths of time": ({"name": ["a", "b"], "waits": SECOND}, [Row("a", waits=[timedelta(seconds=1)]), Row("b")]),
    "nanoseconds": (
        {"name": ["a"], "at": pa.array([1_000_000_001], pa.timestamp("ns"))},
        [Row("a", at=datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))],
    ),
    "milliseconds in a zone": (
        {"name": ["a"], "at": pa.array([1_000], pa.timestamp("ms", "Europe/Paris"))},
        [Row("a", at=datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))],
    ),
    "a narrower decimal": (
        {"name": ["a"], "price": pa.array([Decimal("1.50")], pa.decimal128(10, 2))},
        [Row("a", price=Decimal("1.5"))],
    ),
    "columns that are no fields": (
        {"name": ["a"], "now": [1], "born": [2], "major": [3], "_born": [4], "path": ["p"]},
        [Row("a")],
    ),
    "no rows": ({"name": pa.array([], pa.string())}, []),
}


@pytest.mark.parametrize("how", PARQUET)
def test_parquet_as_people_have_it(tmp_path, how):
    content, wanted = PARQUET[how]
    assert read(parquet_file(tmp_path, **content), "parquet") == (wanted, [])


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"name": ["a", "b"], "size": ["one", "two"]}, "column size is of type string, but Row.size needs int64"),
        ({"name": ["a", "b"], "inner": [{"x": "1"}, None]}, "column inner is of type struct<x: string>"),
        ({"name": ["a", "b"], "waits": [[1], [2]]}, "column waits is of type list<"),
    ],
)
def test_parquet_of_another_type_is_dead_letters_that_name_file_and_column(tmp_path, columns, reason):
    path = parquet_file(tmp_path, **columns)
    events, letters = read(path, "parquet")
    assert events == []
    assert [reason in letter and str(path) in letter for letter in letters] == [True, True]


def test_a_nested_value_that_does_not_fit_takes_no_other_with_it(tmp_path):
    class Measured(Event):
        name: str
        values: list[float] = []
        counts: dict[str, int] = {}

    rows = [[1], [2**53 + 1], [], None, [3]]
    counts = pa.array([[("a", 1)], [], [("b", 2**64 - 1)], [("c", 3)], []], pa.map_(pa.string(), pa.uint64()))
    path = parquet_file(tmp_path, name=list("abcde"), values=pa.array(rows, pa.list_(pa.int64())), counts=counts)
    codec, events, letters = Codec(Measured), [], []
    for part in FileReader("Rows", "Measured", "parquet", codec.schema, None).parts(str(path)):
        for number in range(len(part)):
            if isinstance(part, pa.RecordBatch):
                events += [row["name"] for row in part.slice(number, 1).to_pylist(maps_as_pydicts="strict")]
            else:
                letters.append(part[number].row["name"])
    assert (events, letters) == (["a", "d", "e"], ["b", "c"])


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("us", "UTC")])
def test_a_time_that_python_does_not_have_is_a_dead_letter(tmp_path, kind):
    path = parquet_file(tmp_path, name=["a", "b", "c"], at=pa.array([0, 2**60, -(2**60)], kind))
    events, letters = read(path, "parquet")
    assert [event.name for event in events] == ["a"]
    assert all("years 1 to 9999" in letter for letter in letters)
    assert len(letters) == 2


def test_a_value_that_does_not_fit_takes_no_other_with_it(tmp_path):
    sizes = pa.array([1, 2**64 - 1, 3], pa.uint64())
    events, [letter] = read(parquet_file(tmp_path, name=["a", "b", "c"], size=sizes), "parquet")
    assert events == [Row("a", size=1), Row("c", size=3)]
    assert "rows.parquet" in letter


BAD_QUOTES = {
    "not closed": ('name,city\nAda,Paris\nBob,"Rome\nCid,Oslo\nDot,Bern\n', ["Ada", "Cid", "Dot"], ['Bob,"Rome']),
    "not closed at the end": ('name,city\nAda,Paris\nBob,"Rome', ["Ada"], ['Bob,"Rome']),
    "backslashes before them": ('name,city\n"A \\"d\\" a",Paris\nCid,Oslo\n', ["Cid"], ['"A \\"d\\" a",Paris']),
    "not doubled": ('name,city\n"cell "2" 2",Paris\nCid,Oslo\n', ["Cid"], ['"cell "2" 2",Paris']),
    "text behind them": ('name,city\n"Ada"x,Paris\nCid,"O\nslo"\n', ["Cid"], ['"Ada"x,Paris']),
    "within a field that has none": ('name,city\n5" pipe,Paris\n', ['5" pipe'], []),
    "many that are not closed": ("name,city\n" + 'Bob,"Rome\n' * 3 + "Cid,Oslo\n", ["Cid"], ['Bob,"Rome'] * 3),
}


def reader_of(event_type=Row, kind="csv", encoding=None):
    return FileReader("Rows", event_type.__name__, kind, Codec(event_type).schema, encoding)


@pytest.mark.parametrize("how", BAD_QUOTES)
def test_quotes_that_are_not_in_order_cost_their_line_alone(tmp_path, how):
    content, names, lines = BAD_QUOTES[how]
    path = csv_file(tmp_path, content)
    (part,) = reader_of().parts(f"file:{path}")
    letters = [row for row in part if isinstance(row, Misfit)]
    assert [row["name"] for row in part if not isinstance(row, Misfit)] == names
    assert [letter.row for letter in letters] == lines
    assert all("its quotes are not in order" in letter.reason and str(path) in letter.reason for letter in letters)
    assert lines_of_csv(path, None) == len(part)


class Ort(Event):
    name: str
    größe: float | None = None


class Loose(Event):
    name: str | None = None
    city: str | None = None


HEADERS = {
    "blanks around a name": (Row, "name, city\nAda, Paris\n", "names ' city', which is not 'city'"),
    "another case": (Row, "Name,city\nAda,Paris\n", "names 'Name', which is not 'name'"),
    "another encoding": (Ort, "name,gr\u00f6\u00dfe\nAda,1.5\n".encode("latin-1"), "first line is not in the encoding"),
    "semicolons": (Loose, "name;city\nAda;Paris\n", "none of the columns name, city; it names 'name;city'"),
    "a column too few": (Row, "city\nParis\n", "has no column 'name'; it names 'city'"),
    "a name twice": (Row, "name,name\na,b\n", "names 'name' twice"),
}


@pytest.mark.parametrize("how", HEADERS)
def test_the_lines_below_a_header_that_does_not_fit_are_no_events(tmp_path, how):
    event_type, content, reason = HEADERS[how]
    path = csv_file(tmp_path, content)
    events, [letter] = read(path, "csv", event_type)
    assert events == []
    assert f"{path}: " in letter
    assert reason in letter
    with pytest.raises(SourceError, match=re.escape(reason)):
        bind_source(Source("Rows", event_type, uri=f"csv:{path}"), None, SourceContext())


@pytest.mark.parametrize("text", ["20260131", "2026", "8.30", " 1e9 ", "-5"])
def test_a_number_in_csv_is_no_time(tmp_path, text):
    path = csv_file(tmp_path, f"name,at\na,{text}\nb,2026-01-31\n")
    (part,) = reader_of().parts(f"file:{path}")
    with pytest.raises(msgspec.ValidationError, match=r"a time in ISO 8601, got the number .* at `\$.at`"):
        Codec(Row).from_text(part[0])


def test_times_beyond_those_of_nanoseconds_are_as_they_were(tmp_path):
    times = [datetime(9999, 12, 31, 2), datetime(1, 1, 1), datetime(2026, 1, 1, 0, 0, 0, 1)]
    table = pa.table({"name": list("abc"), "at": pa.array(times, pa.timestamp("us"))})
    pq.write_table(table, tmp_path / "rows.parquet", use_deprecated_int96_timestamps=True)
    events, letters = read(tmp_path / "rows.parquet", "parquet")
    assert ([event.at.replace(tzinfo=None) for event in events], letters) == (times, [])


def test_times_that_columns_do_not_hold_are_dead_letters(tmp_path):
    kind = pa.timestamp("ms", "UTC")
    path = parquet_file(tmp_path, name=["a", "b"], at=pa.array([2**63 - 1, 0], kind))
    events, [letter] = read(path, "parquet")
    assert ([event.name for event in events], str(path) in letter) == (["b"], True)


class Dated(Event):
    name: str
    day: date | None = None


def test_dates_that_python_has_not_are_dead_letters(tmp_path):
    path = parquet_file(tmp_path, name=["a", "b"], day=pa.array([2**31 - 1, 0], pa.date32()))
    events, [letter] = read(path, "parquet", Dated)
    assert [event.name for event in events] == ["b"]
    assert "outside of the years 1 to 9999" in letter


def test_texts_that_are_not_utf8_are_dead_letters(tmp_path):
    bad = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(b"\0\0\0\0\x01\0\0\0\x03\0\0\0"), pa.py_buffer(b"a\xff\xfe")]
    )
    path = parquet_file(tmp_path, name=["a", "b"], city=bad)
    events, [letter] = read(path, "parquet")
    assert ([event.city for event in events], "UTF" in letter) == (["a"], True)


def test_two_columns_of_one_name_are_dead_letters(tmp_path):
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["name", "name"])
    pq.write_table(table, tmp_path / "rows.parquet")
    events, [letter] = read(tmp_path / "rows.parquet", "parquet")
    assert (events, "names 'name' twice" in letter) == ([], True)


DIVIDED = {
    "by a field": ("city=Paris/x", "", "is named by a value, city=Paris"),
    "by what is no field": ("day=1/x", "", "is named by a value, day=1"),
    "by a field, in a pattern": ("city=Paris/x", "*/*.parquet", "is named by a value, city=Paris"),
    "by what is no field, in a pattern": ("day=1/x", "*/*.parquet", None),
    "above the source": ("city=Paris/x", "city=Paris", None),
    "in the name of a file": ("city=Paris", "", None),
}


@pytest.mark.parametrize("how", DIVIDED)
def test_directories_that_are_named_by_a_value_are_refused_where_no_row_holds_it(tmp_path, how):
    file, place, said = DIVIDED[how]
    path = tmp_path / "in" / f"{file}.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({"name": ["Ada"], "city": ["Paris"]}), path)
    source = Source("Rows", Row, uri=f"parquet:{tmp_path / 'in' / place}")
    if said is None:
        assert bind_source(source, None, SourceContext())._files() == [path]
        return
    with pytest.raises(SourceError, match=said):
        bind_source(source, None, SourceContext())


def test_a_dictionary_of_texts_that_are_not_utf8_can_be_shown():
    bad = pa.Array.from_buffers(pa.string(), 2, [None, pa.py_buffer(b"\0\0\0\0\x01\0\0\0\x02\0\0\0"), pa.py_buffer(b"x\xff")])
    rows = pa.record_batch({"city": pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), bad)})
    assert rows_shown(rows) == [{"city": "b'x'"}, {"city": "b'\\xff'"}]


@pytest.mark.parametrize("opened", [1, 3])
def test_a_quote_that_nothing_closes_costs_a_long_file_its_line_alone(tmp_path, opened):
    lines = ["Ada,Paris"] * 30_000
    lines[5 : 5 + opened] = ['Bob,"Rome'] * opened
    path = csv_file(tmp_path, "\n".join(["name,city", *lines]))
    events, letters = read(path, "csv")
    assert (len(events), len(letters), lines_of_csv(path, None)) == (30_000 - opened, opened, 30_000)
