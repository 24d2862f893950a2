"""Parts of the kinds that no door shows: times in another zone, texts of keys, types that a database declares."""

import time
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pyarrow as pa
import pytest

from penstock import Event
from penstock.connectors.tables.sqlite import _affinity
from penstock.kinds import table
from penstock.kinds.arrow import fits, fitted
from penstock.kinds.fields import is_immutable
from penstock.kinds.identity import identity, spelled
from penstock.kinds.kind import Kind
from penstock.kinds.table import register
from penstock.kinds.text import joined, text_of


@pytest.fixture
def far_away(monkeypatch):
    """The machine is in a zone that is not UTC."""
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_one_moment_in_two_zones_is_one_key_wherever_the_machine_is(far_away):
    moment = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert identity(moment) == identity(moment.astimezone(timezone(timedelta(hours=-7))))
    assert spelled(moment).tzinfo is UTC


def test_texts_of_several_fields_are_quoted_and_apart():
    assert joined(["a/b", None, "c d"]) == "a%2Fb/*/c%20d"
    assert joined(["a", "b"]) != joined(["a/b"])


@pytest.mark.parametrize(
    ("number", "text"),
    [("1.50", "1.5"), ("1E+3", "1000"), ("1E-18", "0." + "0" * 17 + "1"), ("1E-19", "1E-19"), ("1E+20", "1E+20")],
)
def test_decimals_are_written_as_spark_writes_those_that_fit_its_type(number, text):
    assert text_of(Decimal(number)) == text


def test_a_built_in_kind_is_not_replaced():
    with pytest.raises(ValueError, match="Decimal has a built-in kind"):
        register(Kind(name="another", python=Decimal, samples=(Decimal(1),), encode=str, decode=Decimal))


@pytest.mark.parametrize(
    ("declared", "affinity"),
    [
        ("BIGINT", "INTEGER"),
        ("varchar(20)", "TEXT"),
        ("NCLOB", "TEXT"),
        ("", "BLOB"),
        ("REAL", "REAL"),
        ("float(8)", "REAL"),
        ("DOUBLE PRECISION", "REAL"),
        ("DECIMAL(10, 2)", "NUMERIC"),
        ("BOOLEAN", "NUMERIC"),
    ],
)
def test_a_declared_type_has_sqlites_affinity(declared, affinity):
    assert _affinity(declared) == affinity


class Own:
    """A type with code of its own."""


@pytest.fixture
def own_kind():
    kind = Kind(name="own", python=Own, samples=(Own(),), encode=lambda value: "own", decode=lambda text: Own())
    register(kind)
    yield
    table._REGISTERED.remove(kind)
    for forget in table.KNOWN_ANEW:
        forget()


class Flat(Event):
    text: str
    amount: int


class Listed(Event):
    texts: list[str]


def test_events_that_no_function_can_change(own_kind):
    class WithOwn(Event):
        own: Own

    assert [is_immutable(kind) for kind in (Flat, Listed, WithOwn)] == [True, False, False]


def test_finer_times_keep_their_zone():
    column = pa.array([1_700_000_000_123_456_789], pa.timestamp("ns", "America/New_York"))
    wanted = pa.timestamp("us", "UTC")
    assert fitted(column, wanted).to_pylist() == [datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=UTC)]
    plain = pa.array([1_700_000_000_123_456_789], pa.timestamp("ns"))
    assert fitted(plain, pa.timestamp("us")).to_pylist() == [datetime(2023, 11, 14, 22, 13, 20, 123456)]


def test_integers_are_durations_also_in_a_dictionary_where_spark_has_written_them():
    there = pa.dictionary(pa.int32(), pa.int64())
    assert fits(there, pa.duration("us"), lengths=True)
    assert not fits(there, pa.duration("us"))


def test_a_missing_struct_stays_missing_when_its_fields_are_fitted():
    wanted = pa.struct([pa.field("n", pa.int64()), pa.field("more", pa.string())])
    column = pa.array([{"n": 1}, None, {"n": None}], pa.struct([pa.field("n", pa.int32())]))
    assert fitted(column, wanted).to_pylist() == [{"n": 1, "more": None}, None, {"n": None, "more": None}]
    assert fitted(column, wanted).null_count == 1


@pytest.mark.parametrize("nested", [pa.list_, lambda kind: pa.map_(pa.string(), kind), lambda kind: pa.struct([("n", kind)])])
def test_integers_are_durations_within_lists_maps_and_structs_too(nested):
    assert fits(nested(pa.int64()), nested(pa.duration("us")), lengths=True)
    assert not fits(nested(pa.int64()), nested(pa.duration("us")))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float64(), 2)),
        pa.ListArray.from_arrays([0, 2, 4, 6], pa.array([1.0, 2.0, 7.0, 8.0, 3.0, 4.0]), mask=pa.array([False, True, False])),
    ],
    ids=["of a fixed size", "with values under null"],
)
def test_values_under_a_missing_list_belong_to_no_other(column):
    assert fitted(column, pa.list_(pa.float64())).to_pylist() == [[1.0, 2.0], None, [3.0, 4.0]]
    within = pa.StructArray.from_arrays([column], ["v"])
    assert fitted(within, pa.struct([("v", pa.list_(pa.float64()))])).to_pylist()[0] == {"v": [1.0, 2.0]}


def test_values_under_a_missing_map_belong_to_no_other():
    kind = pa.map_(pa.string(), pa.int64())
    whole = pa.array([[("a", 1)], [("x", 9)], [("b", 2)]], kind)
    masked = pa.Array.from_buffers(kind, 3, [pa.py_buffer(bytes([0b101])), whole.buffers()[1]], children=[whole.values])
    assert fitted(masked, kind).to_pylist() == [[("a", 1)], None, [("b", 2)]]
