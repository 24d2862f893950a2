"""The audit of runs: every sink and every source, and what is removed, added and changed by hand."""

import fcntl
import json
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import deltalake
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apps_audit import Count
from click.testing import CliRunner
from confluent_kafka import Producer
from pyiceberg.catalog import load_catalog

from penstock.adapter import EventLog
from penstock.app.loader import load_app
from penstock.audit.auditor import Auditor
from penstock.audit.sample import RowSample
from penstock.cli.main import cli
from penstock.connectors.kafka.place import KafkaPlace
from penstock.connectors.kafka.topic import ID_HEADER, Topic
from penstock.errors import ConfigurationError, RunFailedError
from penstock.runs.batches import records_in
from penstock.runs.files import ledger_of
from penstock.runs.report import report_of_run
from penstock.runtime.codec import Codec

APPS = Path(__file__).parent / "apps_audit.py"
WORDS = [["a", "b", "a", "c", "bad"], ["b", "a", "c", "c"], ["d", "bad", "a", "b"]]
OTHER = Count("zz", 9, 0.5, ["x"])


def audited(result, which, sources, sinks=None, **options):
    app, reference = load_app(f"{APPS}:{which}")
    return Auditor(result.directory, app, reference, sources=sources, sinks=sinks or {}, **options).audit()


def wrong(audit):
    """The sinks that are not what they should be: how many rows are missing, too many, and of no input."""
    return {
        name: (sink.missing, sink.doubled, sink.strange)
        for name, sink in audit.sinks.items()
        if sink.missing or sink.doubled or sink.strange
    }


def catalog_of(place):
    return load_catalog("lake", type="sql", uri=f"sqlite:///{place}/lake/catalog.db", warehouse=f"file://{place}/lake")


@pytest.fixture
def places(tmp_path):
    """Where the sinks are that need no server."""
    (tmp_path / "lake").mkdir()
    catalog = f"catalog.type=sql&catalog.uri=sqlite:///{tmp_path}/lake/catalog.db&catalog.warehouse=file://{tmp_path}/lake"
    return {
        "Lines": f"jsonl:{tmp_path}/lines",
        "Parquet": f"parquet:{tmp_path}/parquet",
        "Sqlite": f"sqlite:{tmp_path}/all.db",
        "LastSqlite": f"sqlite:{tmp_path}/last.db",
        "Delta": f"delta:{tmp_path}/delta",
        "LastDelta": f"delta:{tmp_path}/last-delta",
        "Iceberg": f"iceberg:lake/results.all?{catalog}",
        "LastIceberg": f"iceberg:lake/results.last?{catalog}",
        "Log": f"log:{tmp_path}/log",
    }


REST = ("Kafka", "Atomic", "Postgres", "LastPostgres")


@pytest.fixture
def tampered(tmp_path):
    """Changes to each sink by hand: a row removed, one added, one changed."""

    def lines(change):
        file = sorted((tmp_path / "lines").glob("*.jsonl"))[0]
        rows = file.read_bytes().splitlines()
        file.write_bytes(b"\n".join(change(rows, Codec(Count).encode_json(OTHER))) + b"\n")

    def parquet(change):
        file = sorted((tmp_path / "parquet").glob("*.parquet"))[0]
        table = pq.read_table(file)
        rows = change(table.to_pylist(), vars_of(OTHER))
        pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), file)

    def sqlite(name, table):
        def changed(change):
            with closing(sqlite3.connect(tmp_path / name)) as database, database:
                rows = database.execute(f'SELECT * FROM "{table}"').fetchall()
                kept = change(rows, ("zz", 9, 0.5, '["x"]'))
                database.execute(f'DELETE FROM "{table}"')
                database.executemany(f'INSERT INTO "{table}" VALUES (?, ?, ?, ?)', kept)

        return changed

    def delta(name):
        def changed(change):
            table = deltalake.DeltaTable(tmp_path / name).to_pyarrow_table()
            rows = change(table.to_pylist(), vars_of(OTHER))
            made = pa.Table.from_pylist(rows, schema=table.schema)
            deltalake.write_deltalake(tmp_path / name, made, mode="overwrite")

        return changed

    def iceberg(name):
        def changed(change):
            table = catalog_of(tmp_path).load_table(f"results.{name}")
            found = table.scan().to_arrow()
            rows = change(found.to_pylist(), vars_of(OTHER))
            table.overwrite(pa.Table.from_pylist(rows, schema=found.schema))

        return changed

    return {
        "Lines": lines,
        "Parquet": parquet,
        "Sqlite": sqlite("all.db", "Sqlite"),
        "LastSqlite": sqlite("last.db", "LastSqlite"),
        "Delta": delta("delta"),
        "LastDelta": delta("last-delta"),
        "Iceberg": iceberg("all"),
        "LastIceberg": iceberg("last"),
    }


def vars_of(event):
    return {name: getattr(event, name) for name in event.__struct_fields__}


def removed(rows, other):
    return rows[1:]


def added(rows, other):
    return [*rows, other]


def changed(rows, other):
    return [other, *rows[1:]]


def doubled(rows, other):
    return [*rows, rows[0]]


CHANGES = {removed: (1, 0, 0), added: (0, 0, 1), changed: (1, 0, 1), doubled: (0, 1, 0)}


@pytest.mark.slow
def test_what_is_changed_in_a_sink_by_hand_is_found(run_app, words, places, tampered, tmp_path):
    for texts in WORDS:
        sources = words(*texts)
    given = {**places, **{name: f"jsonl:{tmp_path}/{name}" for name in REST}}
    result = run_app("app", file=APPS, sources=sources, sinks=given)
    sound = audited(result, "app", sources, given)
    assert sound.verdict == "sound", sound.to_text()
    assert sound.exact
    assert {sink.expected for name, sink in sound.sinks.items() if not name.startswith("Last")} == {11}
    for name, change_of in tampered.items():
        for change, figures in CHANGES.items():
            if change is doubled and name == "LastSqlite":
                continue  # which the table itself refuses
            shutil.copytree(tmp_path, tmp_path.with_name("before"))
            change_of(change)
            found = audited(result, "app", sources, given)
            assert wrong(found) == {name: figures}, (name, change.__name__)
            assert found.verdict == "not sound"
            shutil.rmtree(tmp_path)
            shutil.move(tmp_path.with_name("before"), tmp_path)


def test_a_result_that_is_missing_is_shown_with_its_input(run_app, words, tmp_path, capsys):
    for texts in WORDS:
        sources = words(*texts)
    result = run_app("passed", file=APPS, sources=sources)
    _, second, third = sorted((result.directory / "output" / "Out").glob("*.jsonl"))
    rows = third.read_text().splitlines()
    assert json.loads(rows[0]) == {"text": "d"}, "files are read by their times"
    third.write_text("\n".join(rows[1:]) + "\n")
    ended = CliRunner().invoke(cli, ["audit", str(result.directory)])
    assert ended.exit_code == 1
    assert "1 missing" in ended.output
    assert 'missing: {"text":"d"}, of micro-batch 2, from Words {"text": "d"}' in ended.output
    whole = second.read_text()
    second.write_text(whole.removeprefix('{"text":"b"}\n'))
    ended = CliRunner().invoke(cli, ["audit", str(result.directory)])
    assert 'missing: {"text":"b"}, of micro-batch 0 or 1 or 2, from Words' in ended.output, "there is one in each"
    second.write_text(whole)
    ended = CliRunner().invoke(cli, ["audit", str(result.directory), "--since", "1 h", "--json"])
    assert json.loads(ended.output)["sinks"]["Out"]["missing"] == 1
    ended = CliRunner().invoke(cli, ["audit", str(result.directory), "--sink", "Nope=jsonl:x"])
    assert "--sink Nope=...: there is no Nope; the application has Out." in str(ended.exception)
    with (result.directory / "spark.log").open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        ended = CliRunner().invoke(cli, ["audit", str(result.directory)])
        assert ended.exit_code == 2
        assert "it is on: stop it first" in ended.output
    ended = CliRunner().invoke(cli, ["audit", str(result.directory), "--since", "0 s"])
    assert ended.exit_code == 0, "what was committed before need not be there any more"
    assert "expected: 1 older than --since" in ended.output
    assert "Sound but for what is not delivered yet, or older than --since" in ended.output
    ended = CliRunner().invoke(cli, ["audit", str(result.directory), "--since", "2999-01-01"])
    assert "--since 2999-01-01 is in the future, so no row would be looked for" in str(ended.exception)


def test_of_a_micro_batch_that_is_half_delivered_only_the_staged_rows_may_be_missing(run_app, words):
    result = run_app("passed", file=APPS, sources=words("a", "b", "c", "d"), partitions=1)
    [file] = (result.directory / "output" / "Out").glob("*.jsonl")
    [record] = map(json.loads, (result.directory / "batches-main.jsonl").read_text().splitlines()[-1:])
    staged = file.parent / ".staging" / Path(next(each["staged"] for each in record["files"] if each["sink"] == "Out")).name
    staged.parent.mkdir(exist_ok=True)
    file.rename(staged)  # as a driver leaves it that is killed after a commit
    ended = CliRunner().invoke(cli, ["audit", str(result.directory)])
    assert (ended.exit_code, "0 rows, 4 expected: 4 not delivered yet" in ended.output) == (0, True)
    staged.unlink()
    ended = CliRunner().invoke(cli, ["audit", str(result.directory)])
    assert (ended.exit_code, "4 missing" in ended.output) == (1, True)


@pytest.mark.parametrize("partitioner", ["remainder", "blocks"])
def test_a_replay_puts_instances_where_the_run_had_them(run_app, tmp_path, monkeypatch, partitioner):
    """The order in which instances' results reach the next element is that of their partitions."""
    monkeypatch.setattr("penstock.runs.layout.PRESENT", partitioner)
    (tmp_path / "numbers.jsonl").write_text("".join(f'{{"key": {number}}}\n' for number in range(100, 140)))
    sources = {"Numbers": f"jsonl:{tmp_path}/numbers.jsonl"}
    result = run_app("ordered", file=APPS, sources=sources, partitions=2)
    assert json.loads((result.directory / "manifest.json").read_text())["layout"]["partitioner"] == partitioner
    monkeypatch.undo()
    audit = audited(result, "ordered", sources)
    assert audit.verdict == "sound", audit.to_text()
    assert audit.exact


def test_a_sample_has_a_row_in_both_places_or_in_neither(run_app, words):
    sources = words(*(f"word {number}" for number in range(200)))
    result = run_app("passed", file=APPS, sources=sources)
    file = next((result.directory / "output" / "Out").glob("*.jsonl"))
    shares = [0.02, 0.1, 0.3, 0.6, 1]
    whole = [audited(result, "passed", sources, sample=RowSample(share)) for share in shares]
    assert [audit.verdict for audit in whole] == ["sound"] * len(shares)
    assert ["Sound in the sample" in audit.to_text() for audit in whole] == [True] * (len(shares) - 1) + [False]
    none = audited(result, "passed", sources, sample=RowSample(1e-9))
    assert none.verdict == "cannot tell"
    assert "the sample has no row" in none.to_text()
    sizes = [audit.sinks["Out"].held for audit in whole]
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == 200
    assert all(abs(size - 200 * share) < 30 for size, share in zip(sizes, shares, strict=True))
    file.write_text("".join(f"{row}\n" for row in file.read_text().splitlines()[:-50]))
    missing = [audited(result, "passed", sources, sample=RowSample(share)).sinks["Out"].missing for share in shares]
    assert missing == sorted(missing)
    assert missing[-1] == 50
    assert abs(missing[3] - 30) < 15
    ended = CliRunner().invoke(cli, ["audit", str(result.directory), "--sample", "60%"])
    assert "a sample of 60% of the rows in sinks was compared" in ended.output
    assert f"{missing[3]} missing" in ended.output


@pytest.mark.parametrize("share", ["0", "-1", "1.5", "101%", "half", "nan", ""])
def test_a_share_that_is_none_is_refused(share, tmp_path, run_app, words):
    result = run_app("passed", file=APPS, sources=words("a"))
    ended = CliRunner().invoke(cli, ["audit", str(result.directory), f"--sample={share}"])
    assert isinstance(ended.exception, ConfigurationError)
    assert "share of the rows" in str(ended.exception)


def test_what_the_run_has_counted_is_counted_again(run_app, words):
    for texts in WORDS:
        sources = words(*texts)
    result = run_app("passed", file=APPS, sources=sources)
    ledger = result.directory / "batches-main.jsonl"
    ledger.write_text(ledger.read_text().replace('"accepted":5', '"accepted":4', 1))
    found = audited(result, "passed", sources)
    assert found.verdict == "not sound"
    assert (found.sources["Words"].accepted, found.sources["Words"].counted) == (13, 12)


def test_a_dead_letter_that_is_gone_is_missed(run_app, words):
    for texts in WORDS:
        sources = words(*texts)
    result = run_app("app", file=APPS, sources=sources)
    letters = sorted((result.directory / "dead-letters").glob("*.jsonl"))
    letters[0].unlink()
    found = audited(result, "app", sources)
    assert found.dead_letters == {"Counter": {"missing": 1, "strange": 0}}
    assert found.verdict == "not sound"


def test_what_cannot_be_told_is_said(run_app, words, tmp_path):
    sources = words("a", "b")
    result = run_app("passed", file=APPS, sources=sources)
    next((tmp_path / "in").glob("*.jsonl")).unlink()
    ended = CliRunner().invoke(cli, ["audit", str(result.directory)])
    assert ended.exit_code == 2
    assert "is gone, which the run has read" in ended.output
    assert "Cannot tell" in ended.output


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["csv", "parquet", "text", "log", "delta", "latin-1"])
def test_every_source_is_read_again(run_app, tmp_path, kind):
    place, texts = tmp_path / "in", [f"w{number % 7}" for number in range(60)]
    place.mkdir()
    uri = f"{kind}:{place}"
    if kind == "csv":
        (place / "1.csv").write_text("text\n" + "\n".join(texts) + "\n")
    elif kind == "text":
        (place / "1.txt").write_text("\n".join(texts) + "\n")
    elif kind == "latin-1":
        (place / "1.jsonl").write_bytes("".join(f'{{"text": "é{text}"}}\n' for text in texts).encode("latin-1"))
        uri = f"jsonl:{place}?encoding=latin-1"
    elif kind == "parquet":
        pq.write_table(pa.table({"text": texts}), place / "1.parquet")
    elif kind == "delta":
        deltalake.write_deltalake(place, pa.table({"text": texts}))
    else:
        EventLog(place).append("Words", [json.dumps({"text": text}).encode() for text in texts])
        uri += "?max_rows=25"
    result = run_app("passed", file=APPS, sources={"Words": uri})
    found = audited(result, "passed", {"Words": uri})
    assert found.verdict == "sound", found.to_text()
    assert found.sources["Words"].accepted == found.sinks["Out"].held == 60


@pytest.mark.slow
def test_groups_are_audited_by_what_came_out_at_their_end(run_app, words):
    for texts in WORDS:
        sources = words(*texts)
    result = run_app("chained", file=APPS, sources=sources, groups={"Sum": "behind"})
    found = audited(result, "chained", sources)
    assert found.verdict == "sound", found.to_text()
    assert not found.exact
    assert found.sinks["Out"].held == 13


def test_what_is_committed_and_not_delivered_yet_is_neither_lost_nor_missing(run_app, words, tmp_path):
    sources = words("a", "b", "c")
    with pytest.raises(RunFailedError, match="the disk is full"):
        run_app("full", file=APPS, sources=sources)
    directory = tmp_path / "runs" / "full"
    counts = report_of_run(directory).counts
    assert (counts.accepted, counts.processed, counts.lost, counts.duplicated) == (3, 3, 0, 0)
    app, reference = load_app(f"{APPS}:full")
    found = Auditor(directory, app, reference, sources=sources, sinks={}).audit()
    assert found.verdict == "sound", found.to_text()
    sys.modules["apps_audit"].Full.room = True
    result = run_app("full", file=APPS, sources=sources)
    assert sorted(word.text for word in result.output("Out")) == ["a", "b", "c"]
    assert audited(result, "full", sources).sinks["Out"].held == 3


@pytest.mark.servers
def test_topics_and_postgresql_are_audited(run_app, broker, postgres, tmp_path):
    Topic(KafkaPlace(broker.brokers, "audit-in"), create=True)
    producer = Producer({"bootstrap.servers": broker.brokers})
    for texts in WORDS:
        for text in texts:
            producer.produce("audit-in", json.dumps({"text": text}))
    producer.flush()
    sources = {"Words": f"kafka:{broker.brokers}/audit-in?max_rows=5"}
    uri = postgres.uri
    sinks = {
        "Kafka": f"kafka:{broker.brokers}/audit-out",
        "Atomic": f"kafka:{broker.brokers}/audit-atomic?transactions=yes",
        "Postgres": uri,
        "LastPostgres": uri,
        "Log": f"jsonl:{tmp_path}/log",
    }
    result = run_app("app", file=APPS, sources=sources, sinks=sinks)
    sound = audited(result, "app", sources, sinks)
    assert sound.verdict == "sound", sound.to_text()
    assert sound.sinks["Kafka"].held == sound.sinks["Atomic"].held == sound.sinks["Postgres"].held == 11
    with psycopg.connect(uri) as database:
        database.execute("DELETE FROM \"Postgres\" WHERE seen = 1 AND text = 'a'")
        database.execute("UPDATE \"LastPostgres\" SET seen = 99 WHERE text = 'd'")
    copies = [(ID_HEADER, f"{json.loads((result.directory / 'manifest.json').read_text())['run']}/main/9/0")]
    producer.produce("audit-out", Codec(Count).encode_json(OTHER), headers=copies)
    producer.flush()
    found = audited(result, "app", sources, sinks)
    assert wrong(found) == {"Postgres": (1, 0, 0), "LastPostgres": (1, 0, 1), "Kafka": (0, 0, 1)}


@pytest.mark.parametrize("gone", [[0], [0, 1], [0, 2]])
def test_what_is_older_than_since_may_be_gone_though_later_rows_are_equal(run_app, words, gone):
    for texts in WORDS:
        sources = words(*texts)
    result = run_app("passed", file=APPS, sources=sources)
    records = list(records_in(ledger_of(result.directory, "main")))
    files = sorted((result.directory / "output" / "Out").glob("*.jsonl"))
    for number in gone:
        files[number].unlink()
    audit = audited(result, "passed", sources, since=records[0].committed_us / 1e6 + 1e-6).sinks["Out"]
    assert audit.excused == {"older than --since": len(WORDS[0])}
    assert audit.missing == sum(len(WORDS[number]) for number in gone if number)


def test_without_what_the_checkpoint_says_was_read_nothing_is_known(run_app, words):
    for texts in WORDS:
        sources = words(*texts)
    result = run_app("passed", file=APPS, sources=sources)
    checkpoint = result.directory / "checkpoint" / "main"
    for part in ("offsets/2", "sources/0/2", "sources", "."):
        place = checkpoint / part
        shutil.rmtree(place) if place.is_dir() else place.unlink()
        audit = audited(result, "passed", sources)
        assert audit.verdict == "cannot tell"
        assert f"its checkpoint {checkpoint} lacks " in audit.to_text()
        assert "so it is not known what was read" in audit.to_text()
