"""Every kind of field through Spark: each source, dialect and file sink, side by side in one event."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apps_kinds import COLUMNS, EVENTS, Everything
from kind_cells import same

from penstock.app.loader import load_app
from penstock.engine import RunOptions, run
from penstock.kinds.coding import json_encoder
from penstock.kinds.text import text_of
from penstock.runtime.codec import Codec

pytestmark = pytest.mark.spark

APPS = Path(__file__).parent / "apps_kinds.py"


def jsonl(directory):
    encode = json_encoder().encode
    (directory / "in.jsonl").write_bytes(b"\n".join(map(encode, EVENTS)))
    return f"jsonl:{directory}"


def parquet(directory):
    pq.write_table(pa.Table.from_batches([Codec(Everything).to_columns(EVENTS)]), directory / "in.parquet")
    return f"parquet:{directory}"


def csv_of(directory):
    """What is missing is empty, what is an empty text is so in quotes."""
    names = Everything.__struct_fields__
    rows = [[None if (value := getattr(event, name)) is None else text_of(value) for name in names] for event in EVENTS]
    lines = [
        ",".join("" if text is None else '"' + text.replace('"', '""') + '"' for text in row) for row in (list(names), *rows)
    ]
    (directory / "in.csv").write_bytes("\n".join(lines).encode())
    return f"csv:{directory}"


def wrong(came):
    """What has come out otherwise than it went in, by its kind."""
    by_number = {event.n: event for event in came}
    found = {}
    for event in EVENTS:
        for name in Everything.__struct_fields__:
            given = getattr(event, name)
            got = getattr(by_number[event.n], name) if event.n in by_number else "nothing"
            if not same(given, got):
                found.setdefault(COLUMNS[name].name if name in COLUMNS else name, []).append((given, got))
    return found


SLOW = pytest.mark.slow
PASSAGES = [
    ("relays", parquet),
    ("planned", csv_of),
    *(
        pytest.param(name, source, marks=SLOW)
        for name, source in (("relays", jsonl), ("relays", csv_of), ("planned", jsonl), ("planned", parquet))
    ),
]


@pytest.mark.parametrize(("name", "source"), PASSAGES)
def test_every_kind_comes_through_spark(name, source, tmp_path, spark):
    (tmp_path / "in").mkdir()
    app, application = load_app(f"{APPS}:{name}")
    sinks = {
        sink.name: f"parquet:{tmp_path}/{sink.name}" if "Columns" in sink.name else f"sqlite:{tmp_path}/t.sqlite"
        for sink in app.topology().sinks
        if "Lines" not in sink.name
    }
    options = RunOptions(
        runs=tmp_path / "runs",
        sources={"In": source(tmp_path / "in")},
        sinks=sinks,
        until_idle=True,
        quiet=True,
        spark=spark.get(),
    )
    result = run(app, options, application=application)
    assert result.dead_letters == []
    assert {sink.name: wrong(result.output(sink.name)) for sink in app.topology().sinks} == {
        sink.name: {} for sink in app.topology().sinks
    }
