"""Static tables: every format gives the same rows, changes are followed, and what does not fit is a sentence."""

import gzip
import json
import os
import sqlite3
from datetime import datetime, timedelta

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import App, Event
from penstock.app.picture import svg
from penstock.app.table import Table
from penstock.errors import SourceError, TopologyError
from penstock.runtime.codec import Codec
from penstock.testing import TopologyDriver


class Sale(Event):
    article: str
    pieces: int


class Article(Event):
    article: str
    price: float
    shop: str | None = None


class Priced(Event):
    article: str
    total: float | None


CSV = "article,price,shop\npen,1.5,basel\nink,4,\n"
ROWS = {"pen": Article("pen", 1.5, "basel"), "ink": Article("ink", 4.0)}


def application(table, **options):
    app = App("lookups")
    sales = app.source("Sales", Sale)
    priced = app.stream("Priced", Priced)
    app.sink("Out", priced)

    @app.lookup(sales, table, **{"key": "article", "row": Article, "emits": priced, **options})
    def price(sale, article):
        yield priced(sale.article, article and article.price * sale.pieces)

    return app


@pytest.fixture
def tables(tmp_path):
    """The same table in each format of files."""
    (tmp_path / "a.csv").write_text(CSV)
    (tmp_path / "a.jsonl").write_text('{"article": "pen", "price": 1.5, "shop": "basel"}\n\n{"article": "ink", "price": 4}\n')
    columns = {"article": ["pen", "ink"], "price": [1.5, 4.0], "shop": ["basel", None], "other": [1, 2]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    with sqlite3.connect(tmp_path / "a.db") as database:
        database.execute("create table articles (shop text, article text, price real)")
        database.executemany("insert into articles values (?, ?, ?)", [("basel", "pen", 1.5), (None, "ink", 4)])
    database.close()
    return tmp_path


@pytest.mark.parametrize(
    "uri", ["csv:{}/a.csv", "{}/a.csv", "jsonl:{}/a.jsonl", "parquet:{}/a.parquet", "sqlite:{}/a.db/articles"]
)
def test_every_format_has_the_same_rows(tables, uri):
    table = Table(uri.format(tables), Article, ["article"], "10 s")
    table.follow()
    assert {name: table.get((name,)) for name in ROWS} == ROWS
    assert table.get(("map",)) is None
    driver = TopologyDriver(application(uri.format(tables)))
    driver.batch({"Sales": [Sale("pen", 2), Sale("map", 1)]})
    assert driver.output("Out") == [Priced("pen", 3.0), Priced("map", None)]


class Stock(Event):
    article: str
    by_shop: dict[str, int]
    lasts: timedelta


def test_tables_that_our_own_sinks_have_written_are_read(tmp_path):
    """Spark writes a length of time as a number."""
    columns = Codec(Stock).to_columns([Stock("pen", {"basel": 3}, timedelta(days=2))])
    pq.write_table(pa.table(columns.set_column(2, "lasts", columns["lasts"].cast(pa.int64()))), tmp_path / "a.parquet")
    with sqlite3.connect(tmp_path / "a.db") as database:
        database.execute("create table stock (article text, by_shop text, lasts real)")
        database.execute("insert into stock values ('pen', '{\"basel\": 3}', 172800.0)")
    database.close()
    for uri in (f"{tmp_path}/a.parquet", f"sqlite:{tmp_path}/a.db/stock"):
        table = Table(uri, Stock, ["article"], "10 s")
        table.follow()
        assert table.get(("pen",)) == Stock("pen", {"basel": 3}, timedelta(days=2))


class Renamed(Event, rename={"shop": "soldIn"}):
    article: str
    price: float
    shop: str | None = None


@pytest.mark.parametrize("uri", ["{}/a.csv", "{}/a.parquet", "sqlite:{}/a.db/articles"])
def test_columns_have_the_fields_names_whatever_json_calls_them(tables, uri):
    table = Table(uri.format(tables), Renamed, ["article"], "10 s")
    table.follow()
    assert table.get(("pen",)) == Renamed("pen", 1.5, "basel")


def test_inner_passes_over_what_has_no_row(tables):
    driver = TopologyDriver(application(f"csv:{tables}/a.csv", how="inner"))
    driver.batch({"Sales": [Sale("pen", 2), Sale("map", 1)]})
    assert driver.output("Out") == [Priced("pen", 3.0)]


def test_another_version_is_read_between_micro_batches(tables):
    driver = TopologyDriver(application(f"csv:{tables}/a.csv", refresh=0))
    driver.batch({"Sales": [Sale("pen", 1)]})
    (tables / "new.csv").write_text("article,price\npen,2\n")
    os.replace(tables / "new.csv", tables / "a.csv")
    driver.batch({"Sales": [Sale("pen", 1), Sale("ink", 1)]})
    assert driver.output("Out") == [Priced("pen", 1.5), Priced("pen", 2.0), Priced("ink", None)]


def test_a_table_that_is_gone_in_mid_run_stops_it_and_leaves_no_dead_letter(tables):
    driver = TopologyDriver(application(f"csv:{tables}/a.csv", refresh=0), dead_letters=True)
    driver.batch({"Sales": [Sale("pen", 1)]})
    (tables / "a.csv").unlink()
    with pytest.raises(SourceError, match="cannot be read"):
        driver.batch({"Sales": [Sale("pen", 1)]})
    assert driver.dead_letters == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, r"cannot be read \(No such file"),
        ("article,price\npen,cheap\n", "row 1 is no Article"),
        ("article\npen\n", "no column 'price'; it names 'article'"),
        (CSV + "pen,2,bern\n", "two rows of article 'pen'"),
        (b"article,price\n\xff\xfe,2\n", "cannot be read"),
        ('article,price\n"pen,2\n' + "x" * 200_000, "cannot be read|row 1 is no Article"),
        ("", "no column 'article'"),
    ],
)
def test_what_does_not_fit_is_a_sentence_before_anything_runs(tmp_path, content, said):
    if content is not None:
        (tmp_path / "a.csv").write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(SourceError, match=said):
        TopologyDriver(application(f"csv:{tmp_path}/a.csv"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"table": "oracle:somewhere/x"}, "no table that can be looked up in"),
        ({"table": "sqlite:alone"}, "names no table"),
        ({"key": "number"}, "no field 'number' to be looked up by"),
        ({"by": "name"}, "no field 'name' to look up by"),
        ({"by": "pieces"}, "nothing would be found"),
        ({"by": ["article", "pieces"]}, "as many columns"),
        ({"how": "ineer"}, "choose left, inner"),
    ],
)
def test_a_wrong_declaration_is_refused(options, said):
    with pytest.raises(TopologyError, match=said):
        application(**{"table": "csv:a.csv", **options})


def test_missing_tables_of_a_database_are_said(tables):
    for place, said in (("a.db/none", "no such table"), ("none.db/articles", "unable to open")):
        with pytest.raises(SourceError, match=said):
            TopologyDriver(application(f"sqlite:{tables}/{place}"))


def test_a_password_is_shown_nowhere():
    topology = application("postgresql://me:hunter2@127.0.0.1:9/db/t").topology()
    assert "hunter2" not in json.dumps(topology.to_json()) + svg(topology)
    with pytest.raises(SourceError) as told:
        topology.elements[0].prepare()
    assert "hunter2" not in str(told.value)


def test_times_and_truths_as_other_programs_write_them(tmp_path):
    class Day(Event):
        name: str
        at: datetime
        open: bool

    at = datetime(2026, 3, 1, 9)
    stamp = pa.array([at], pa.timestamp("ns"))
    pq.write_table(pa.table({"name": ["a"], "at": stamp, "open": [True]}), tmp_path / "days.parquet")
    table = Table(f"{tmp_path}/days.parquet", Day, ["name"], 0)
    table.follow()
    assert table.get(("a",)) == Day("a", at, True)
    with sqlite3.connect(tmp_path / "days.db") as database:
        database.execute("create table days (name text, at text, open boolean)")
        database.execute("insert into days values ('a', '2026-03-01T09:00:00', true)")
    database.close()
    table = Table(f"sqlite:{tmp_path}/days.db/days", Day, ["name"], 0)
    table.follow()
    assert table.get(("a",)) == Day("a", at, True)


def test_a_table_of_postgresql(postgres):
    place = postgres.uri.removeprefix("postgresql:")
    with psycopg.connect(postgres.uri) as database:
        database.execute("create table looked_up (shop text, article text, price double precision)")
        database.execute("insert into looked_up values ('basel', 'pen', 1.5), (null, 'ink', 4)")
    driver = TopologyDriver(application(f"postgresql:{place}/looked_up", refresh=0))
    driver.batch({"Sales": [Sale("pen", 2)]})
    with psycopg.connect(postgres.uri) as database:
        database.execute("update looked_up set price = 2 where article = 'pen'")
    driver.batch({"Sales": [Sale("pen", 2)]})
    assert driver.output("Out") == [Priced("pen", 3.0), Priced("pen", 4.0)]
    with pytest.raises(SourceError, match="cannot be read"):
        TopologyDriver(application(f"postgresql:{place}/none"))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"code,name\nx,a\ny,Smith, John\n", "row 2 has 3 fields, and its first line names 2"),
        (b"code,name,code\nx,a,y\n", "names 'code' twice"),
        (b"code,name\nx,Z\xfcrich\n", "row 1 is not in UTF-8"),
    ],
)
def test_a_line_of_csv_that_is_no_row_is_refused(tmp_path, content, said):
    class Named(Event):
        code: str
        name: str

    (tmp_path / "rows.csv").write_bytes(content)
    with pytest.raises(SourceError, match=said):
        Table(f"{tmp_path}/rows.csv", Named, ("code",), 1).follow()


def test_a_table_of_parquet_is_read_by_its_own_columns(tmp_path):
    class Inner(Event):
        x: int
        y: int | None = None

    class Named(Event):
        code: str
        inner: Inner | None = None
        waits: list[timedelta] | None = None
        more: str | None = None

    kind = pa.struct({"y": pa.int32(), "x": pa.int32()})
    columns = {
        "waits": pa.array([[timedelta(seconds=1)]], pa.list_(pa.duration("us"))),
        "inner": pa.array([{"y": 2, "x": 1}], kind),
        "code": pa.array(["x"]).dictionary_encode(),
    }
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    table = Table(f"{tmp_path}/rows.parquet", Named, ("code",), 1)
    table.follow()
    assert table.get(("x",)) == Named("x", Inner(1, 2), [timedelta(seconds=1)])


class Named(Event):
    code: str
    name: str


def test_what_is_cut_short_marked_or_lacks_a_column(tmp_path):
    whole = gzip.compress(b"code,name\n" + b"".join(b"c%d,n\n" % number for number in range(50_000)))
    (tmp_path / "cut.csv.gz").write_bytes(whole[:-9])
    (tmp_path / "marked.jsonl").write_bytes(b'\xef\xbb\xbf{"code": "x", "name": "a"}\n')
    (tmp_path / "latin.jsonl").write_bytes('{"code": "x", "name": "Z\u00fcrich"}\n'.encode("latin-1"))
    (tmp_path / "quotes.csv").write_text('code,name\nx,"a\n')
    with sqlite3.connect(tmp_path / "a.db") as database:
        database.execute("create table t (code text)")
        database.execute("insert into t values ('x')")
    for uri, said in {
        f"csv:{tmp_path}/cut.csv.gz": "cannot be read",
        f"jsonl:{tmp_path}/latin.jsonl": "row 1 is not in UTF-8",
        f"csv:{tmp_path}/quotes.csv": "row 1 cannot be read: its quotes are not in order",
        f"sqlite:{tmp_path}/a.db/t": "no such column: t.name",
    }.items():
        with pytest.raises(SourceError, match=said):
            Table(uri, Named, ("code",), "1 s").follow()
    marked = Table(f"jsonl:{tmp_path}/marked.jsonl", Named, ("code",), "1 s")
    marked.follow()
    assert marked.get(("x",)).name == "a"
