"""No column of ours, or of Spark's, meets a field of the user's, whatever it is called."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apps_names import NAMES, Cased, Named, queried

from penstock.app.loader import load_app
from penstock.engine import RunOptions, run
from penstock.errors import TopologyError
from penstock.kinds.coding import json_encoder
from penstock.runtime.codec import Codec

pytestmark = pytest.mark.spark

APPS = Path(__file__).parent / "apps_names.py"


def write(events, directory, kind):
    directory.mkdir()
    if kind == "jsonl":
        (directory / "in.jsonl").write_bytes(b"\n".join(map(json_encoder().encode, events)))
    elif kind == "parquet":
        pq.write_table(pa.Table.from_batches([Codec(type(events[0])).to_columns(events)]), directory / "in.parquet")
    else:
        names = type(events[0]).__struct_fields__
        rows = [",".join(names), *(",".join(str(getattr(event, name)) for name in names) for event in events)]
        (directory / "in.csv").write_text("\n".join(rows))
    return {"In": f"{kind}:{directory}"}


@pytest.mark.parametrize(
    "kind", [pytest.param("jsonl", marks=pytest.mark.slow), pytest.param("csv", marks=pytest.mark.slow), "parquet"]
)
@pytest.mark.parametrize(
    ("which", "groups"),
    [
        pytest.param("names", {}, marks=pytest.mark.slow),
        pytest.param("names", {"second": "later"}, marks=pytest.mark.slow),
        ("names_queried", {}),
        ("cases", {"second": "later"}),
    ],
)
def test_fields_of_any_name_come_through(tmp_path, spark, which, groups, kind):
    event_type = Cased if which == "cases" else Named
    events = [event_type(*range(start, start + len(event_type.__struct_fields__))) for start in (0, 1000)]
    app, application = load_app(f"{APPS}:{which}")
    options = RunOptions(
        runs=tmp_path / "runs",
        sources=write(events, tmp_path / "in", kind),
        groups=groups,
        until_idle=True,
        quiet=True,
        spark=spark.get(),
    )
    result = run(app, options, application=application)
    assert result.dead_letters == []
    assert sorted(result.output("Results"), key=lambda event: event.n) == events


def test_names_that_differ_in_case_alone_are_refused_where_spark_cannot_tell_them_apart():
    with pytest.raises(TopologyError, match="a and A of Cased differ in case alone"):
        queried(Cased).topology()
    assert len(NAMES) == len(set(map(str.lower, NAMES)))
