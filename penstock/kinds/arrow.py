"""Arrow columns of events: the types of columns, and conversion of other systems' columns to them."""

import typing
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.kinds.annotations import optional, plain, scalar_of
from penstock.kinds.event import Event, field_types
from penstock.kinds.fields import is_writable

DAYS = (-719_162, 2_932_896)
MICROSECONDS = (DAYS[0] * 86_400_000_000, (DAYS[1] + 1) * 86_400_000_000 - 1)
"""The dates and times that Python can represent, 0001-01-01 to 9999-12-31, as days and as microseconds since 1970."""

SPARKS = b"org.apache.spark.sql.parquet.row.metadata"
"""The metadata key under which Spark stores its own schema in a Parquet file."""

TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)


def _is_zoned(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz is not None)


def _is_zoneless(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz is None)


READ_AS: tuple[tuple[Callable[[pa.DataType], bool], tuple[Callable[[pa.DataType], bool], ...]], ...] = (
    (pa.types.is_boolean, (pa.types.is_boolean,)),
    (pa.types.is_integer, (pa.types.is_integer,)),
    (pa.types.is_floating, (pa.types.is_floating, pa.types.is_integer)),
    (pa.types.is_decimal, (pa.types.is_decimal,)),
    (pa.types.is_date, (pa.types.is_date,)),
    (pa.types.is_duration, (pa.types.is_duration,)),
    (_is_zoned, (pa.types.is_timestamp, pa.types.is_date)),
    (_is_zoneless, (_is_zoneless, pa.types.is_date)),
    (pa.types.is_string, TEXTS),
    (pa.types.is_binary, BYTES),
)
"""Tests for the types of an event's columns; with each, tests for the types of columns that can be read as it."""


def arrow_schema(event_type: type[Event], *, staged: bool = False) -> pa.Schema:
    """Return the Arrow schema of an event type.

    Args:
        staged: whether columns are staged for a database: then some have types that hold more values (see `Kind`).
    """
    annotations = field_types(event_type, annotated=True)
    return pa.schema([_field(name, annotation, staged) for name, annotation in annotations.items()])


def _field(name: str, annotation: Any, staged: bool) -> pa.Field:
    return pa.field(name, _type(annotation, staged), nullable=optional(annotation))


def _type(annotation: Any, staged: bool) -> pa.DataType:
    kind = plain(annotation)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is list:
        return pa.list_(_type(arguments[0], staged))
    if origin is dict:
        return pa.map_(pa.string(), _type(arguments[1], staged))
    if isinstance(kind, type) and issubclass(kind, Event):
        # Spark cannot cast to a nested field that is not nullable. `Codec.from_columns` refuses a null that is not allowed.
        fields = field_types(kind, annotated=True).items()
        return pa.struct([_field(name, inner, staged).with_nullable(True) for name, inner in fields])
    scalar = scalar_of(annotation)
    return ((staged and scalar.staged) or scalar.arrow)()


def has_spark_lengths(schema: pa.Schema) -> bool:
    """Whether a Parquet file was written by Spark and has intervals, which are stored as integers of microseconds."""
    return b"interval day to second" in (schema.metadata or {}).get(SPARKS, b"")


def fits(there: pa.DataType, wanted: pa.DataType, *, lengths: bool = False) -> bool:
    """Whether a column of one type can be read as a column of the type ``wanted``; finer units of time may be truncated.

    Args:
        lengths: whether integers may be read as durations in microseconds, as Spark writes these.
    """
    if pa.types.is_dictionary(there):
        return fits(there.value_type, wanted, lengths=lengths)
    if pa.types.is_null(there):
        return True
    if pa.types.is_struct(wanted):
        return bool(pa.types.is_struct(there)) and all(
            fits(there.field(field.name).type, field.type, lengths=lengths) for field in wanted if _has(there, field.name)
        )
    if pa.types.is_map(wanted):
        return bool(pa.types.is_map(there)) and all(
            fits(part, whole, lengths=lengths)
            for part, whole in ((there.key_type, wanted.key_type), (there.item_type, wanted.item_type))
        )
    if pa.types.is_list(wanted):
        return any(is_a(there) for is_a in LISTS) and fits(there.value_type, wanted.value_type, lengths=lengths)
    if pa.types.is_duration(wanted) and lengths and pa.types.is_int64(there):
        return True
    return any(is_kept(wanted) and any(bool(is_a(there)) for is_a in sources) for is_kept, sources in READ_AS)


def fitted(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Cast a column that `fits` to a type. Fields of structs are matched by name; missing ones become null.

    Raises:
        pyarrow.ArrowException: a value does not fit.
        ValueError: a time is out of range, see `refuse_beyond`.
    """
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_struct(wanted) and pa.types.is_struct(column.type):
        parts = [
            fitted(pc.struct_field(column, field.name), field.type)
            if _has(column.type, field.name)
            else pa.nulls(len(column), field.type)
            for field in wanted
        ]
        return pa.StructArray.from_arrays(parts, fields=list(wanted), mask=column.is_null())
    if pa.types.is_map(wanted) and pa.types.is_map(column.type):
        column = _compact(column)
        keys, items = fitted(column.keys, wanted.key_type), fitted(column.items, wanted.item_type)
        return pa.MapArray.from_arrays(_offsets(column), keys, items, type=wanted)
    if pa.types.is_list(wanted) and any(is_a(column.type) for is_a in LISTS):
        column = _compact(column.cast(pa.list_(column.type.value_type)))
        values = fitted(column.values, wanted.value_type)
        return pa.ListArray.from_arrays(_offsets(column), values, type=wanted)
    if pa.types.is_timestamp(wanted) and not pa.types.is_null(column.type):
        finer = bool(pa.types.is_timestamp(column.type)) and column.type.unit == "ns"  # is truncated
        column = column.cast(pa.timestamp("us", getattr(column.type, "tz", None)), safe=not finer)
    made = column.cast(wanted)
    if pa.types.is_string(wanted):
        made.validate(full=True)  # readers do not check that it is UTF-8
    refuse_beyond(made)
    return made


def _holds_floats(kind: pa.DataType) -> bool:
    parts = [kind.field(place).type for place in range(kind.num_fields)] if pa.types.is_nested(kind) else []
    return bool(pa.types.is_floating(kind)) or any(map(_holds_floats, parts))


def refuse_infinite(column: Any) -> None:
    """Refuse a column with numbers that JSON cannot represent; but allow NaN outside of lists, dicts and events, as null.

    Raises:
        ValueError: the column is infinite somewhere, or holds NaN within a list, a dict or an event.
    """
    if pa.types.is_floating(column.type) and pc.any(pc.is_inf(column)).as_py():
        raise ValueError("it is infinite")
    if pa.types.is_nested(column.type) and _holds_floats(column.type):
        values = column.to_pylist(maps_as_pydicts="strict")
        if not is_writable(values):
            raise ValueError("it holds NaN or infinity")


def refuse_beyond(column: pa.Array) -> None:
    """Refuse a column with a time or date that Python cannot represent: in UTC, a time late in 9999 may be in the year 10000.

    Raises:
        ValueError: the column has one.
    """
    is_date = pa.types.is_date(column.type)
    if is_date or pa.types.is_timestamp(column.type):
        extremes = pc.min_max(column.cast(pa.int32() if is_date else pa.int64()))
        least, most = DAYS if is_date else MICROSECONDS
        if extremes["min"].is_valid and not least <= extremes["min"].as_py() <= extremes["max"].as_py() <= most:
            raise ValueError("a time is outside of the years 1 to 9999")


def _has(kind: pa.DataType, name: str) -> bool:
    return bool(kind.get_field_index(name) >= 0)


def _compact(column: pa.Array) -> pa.Array:
    """Return a list or map column whose null entries hold no values, as lists of a fixed size do."""
    return column.take(pa.array(range(len(column)), pa.int64())) if column.null_count else column


def _offsets(column: pa.Array) -> pa.Array:
    """Return the offsets of a list or map column, with null for null entries, as ``from_arrays`` expects."""
    offsets = column.offsets
    if not column.null_count:
        return offsets
    gone = pa.concat_arrays([column.is_null(), pa.array([False])])
    return pc.if_else(gone, pa.scalar(None, offsets.type), offsets)


def rows_shown(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return rows as dicts for dead letters; values that Python cannot represent are shown as texts, nested ones as ``?``."""
    try:
        shown: list[dict[str, Any]] = rows.to_pylist()
    except (ValueError, ArithmeticError):
        texts = [_shown(column) for column in rows.columns]
        return [dict(zip(rows.schema.names, values, strict=True)) for values in zip(*texts, strict=True)]
    return shown


def _shown(column: pa.Array) -> list[Any]:
    """Return a column's values; if Python cannot represent one, return all as texts: bytes, or the stored integers."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    try:
        values: list[Any] = column.to_pylist()
    except (ValueError, ArithmeticError):
        if pa.types.is_nested(column.type):
            return ["?"] * len(column)
        if pa.types.is_date32(column.type):
            column = column.cast(pa.int32())
        elif any(is_a(column.type) for is_a in TEXTS):
            return [str(value) for value in column.cast(pa.large_binary()).to_pylist()]
        return [str(number) for number in column.cast(pa.int64()).to_pylist()]
    return values
