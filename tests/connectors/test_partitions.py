"""Tables that are partitioned by a field: a value comes back, or is a dead letter, or the table is refused before the run."""

import json
import math
from datetime import UTC, date, datetime, time
from decimal import Decimal

import pytest
from deltalake import DeltaTable
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform, VoidTransform
from test_delta import staged
from test_iceberg import catalog, properties

from penstock import Event
from penstock.app.stream import Sink, Stream
from penstock.connectors.registry import bind_sinks
from penstock.connectors.sink import Refusals
from penstock.errors import SinkError
from penstock.runtime.codec import Codec

VALUES = {
    str: ["", "x" * 400, "ü" * 60, "a/b=c%41 \n", ".."],
    bytes: [b"ab", b"", b"\xff" * 300],
    int: [0, -(2**63), 2**63 - 1],
    bool: [True, False],
    float: [0.1, 1e300, 5e-324, -1e200, math.inf, -0.0, math.nan],
    Decimal: [Decimal(text) for text in ("1.5", "-2", "-0.5", "-1.000000000000000001", "99999999999999999999.5")],
    date: [date(1, 1, 1), date(9999, 12, 31)],
    datetime: [datetime(1, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)],
    time: [time(0), time(23, 59, 59, 999999)],
}
TRANSFORMS = {
    "identity": IdentityTransform(),
    "truncate": TruncateTransform(300),
    "void": VoidTransform(),
    "bucket": BucketTransform(4),
}
BUCKETED = (str, bytes, int, Decimal, date, datetime, time)
REFUSED = {("delta", bytes), *(("void", kind) for kind in VALUES)}
LETTERS = {
    ("delta", str): {"", "x" * 400, "ü" * 60},
    ("delta", float): {1e300, 5e-324},
    ("delta", Decimal): {Decimal("-0.5"), Decimal("-1.000000000000000001")},
    ("identity", str): {"x" * 400, "ü" * 60},
    ("truncate", str): {"x" * 400, "ü" * 60},
    ("identity", bytes): {b"\xff" * 300},
    ("truncate", bytes): {b"\xff" * 300},
    ("identity", float): {"NaN"},
}
CELLS = [("delta", kind) for kind in VALUES] + [
    (how, kind)
    for how in TRANSFORMS
    for kind in VALUES
    if not (how == "bucket" and kind not in BUCKETED) and not (how == "truncate" and kind not in (str, bytes, int, Decimal))
]


def event_of(kind):
    return type("Row", (Event,), {"__annotations__": {"k": kind, "name": str}})


def made(how, event_type, directory):
    """A table partitioned by ``k``, and the URI of a sink that writes it."""
    schema = Codec(event_type).schema
    if how == "delta":
        DeltaTable.create(directory / "table", schema, partition_by=["k"])
        return f"delta:{directory / 'table'}"
    lake = catalog(directory)
    lake.create_namespace("results")
    with lake.create_table("results.rows", schema).update_spec() as change:
        change.add_field("k", TRANSFORMS[how], "part")
    return "iceberg:lake/results.rows?" + "&".join(f"catalog.{name}={text}" for name, text in properties(directory).items())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("how", "kind"), CELLS, ids=lambda part: getattr(part, "__name__", part))
def test_a_value_comes_back_or_is_a_dead_letter(tmp_path, how, kind):
    event_type = event_of(kind)
    uri = made(how, event_type, tmp_path)
    sink = bind_sinks([Sink("Out", Stream("Rows", event_type), uri)], {}, tmp_path / "output")["Out"]
    if (how, kind) in REFUSED:
        with pytest.raises(SinkError, match="it (is|was) partitioned by k"):
            sink.claim("run-1", ())
        return
    sink.claim("run-1", ())
    (tmp_path / "letters").mkdir()
    sink.refusals = Refusals(tmp_path / "letters", 0, "Out", "Rows")
    for batch, value in enumerate(VALUES[kind]):
        sink.deliver("main", batch, staged(sink, [event_type(value, str(batch))]))
    rows = {row.name: row.k for row in sink.read()}
    lines = [line for path in (tmp_path / "letters").iterdir() for line in path.read_text().splitlines()]
    lost = {VALUES[kind][int(json.loads(line)["event"]["name"])] for line in lines}
    lost = {"NaN" if value != value else value for value in lost}
    assert lost == LETTERS.get((how, kind), set())
    for batch, value in enumerate(VALUES[kind]):
        if ("NaN" if value != value else value) not in lost:
            assert rows[str(batch)] == value or value != value != rows[str(batch)]
