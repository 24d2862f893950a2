"""The table of kinds: one row for each scalar type that a field can have; it says how values are stored, read and compared.

All other code looks kinds up here. An application or a library adds a type that msgspec does not know by `register`, before it
declares event types with fields of that type.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any
from uuid import UUID

from penstock.kinds.kind import Kind, text_column

if TYPE_CHECKING:
    import pyarrow as pa


def _arrow() -> Any:
    import pyarrow  # only here, so that commands that do not need it start quickly

    return pyarrow


def _plain_decimal(number: Decimal) -> Decimal:
    """Return the one form of all equal numbers: 1.00 as 1, 1E+2 as 100, -0 as 0, at any precision; NaN and infinity stay."""
    sign, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int):
        return number
    end = len(digits)
    while end > 1 and digits[end - 1] == 0:
        end -= 1
    digits, exponent = digits[:end], exponent + len(digits) - end
    if digits == (0,):
        return Decimal(0)
    if 0 < exponent < 20:
        digits, exponent = digits + (0,) * exponent, 0
    return Decimal((sign, digits, exponent))


def _in_utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo is None else moment.astimezone(UTC)


OFFSET = "a time of day has no zone, or one whose offset from UTC is whole minutes on all days"
"""What is said of another one."""


def on_the_minute(moment: datetime | time) -> bool:
    """Whether a time has no zone, or one whose offset is known and whole minutes; msgspec rounds others, or drops the zone."""
    offset = moment.utcoffset()
    return moment.tzinfo is None if offset is None else not (offset.seconds % 60 or offset.microseconds)


def _time_in_utc(clock: time) -> time:
    """Return a time of day in UTC; if its UTC time falls on another day, the equal time whose offset from UTC is smallest.

    Raises:
        ValueError: its offset is not known, or is no whole minutes.
    """
    if not on_the_minute(clock):
        raise ValueError(f"{clock!r} cannot be a key: {OFFSET}")
    offset = clock.utcoffset()
    if offset is None:
        return clock
    minutes = clock.hour * 60 + clock.minute - offset // timedelta(minutes=1)
    shown = min(max(minutes, 0), 1439)
    zone = UTC if shown == minutes else timezone(timedelta(minutes=shown - minutes))
    return clock.replace(hour=shown // 60, minute=shown % 60, tzinfo=zone)


def _iso_duration(functions: Any, column: Any) -> Any:
    """Return an interval column as ISO 8601 durations, spelled exactly as msgspec spells them, as they may be keys."""
    seconds = column.cast("interval second").cast("decimal(20, 6)")
    size = functions.abs(seconds)
    days, rest = functions.floor(size / 86400), (size % 86400).cast("decimal(20, 6)")
    parts = (
        functions.when(seconds < 0, "-").otherwise(""),
        functions.lit("P"),
        functions.when((days > 0) | (rest == 0), functions.concat(days.cast("string"), functions.lit("D"))).otherwise(""),
        functions.when(
            rest > 0,
            functions.concat(
                functions.lit("T"), functions.regexp_replace(rest.cast("string"), r"\.?0+$", ""), functions.lit("S")
            ),
        ).otherwise(""),
    )
    return functions.when(seconds.isNotNull(), functions.concat(*parts))


def _spark_decimal(functions: Any, column: Any) -> Any:
    """Return a decimal column as text, spelled as `_plain_decimal` spells numbers: without trailing zeros."""
    text = functions.regexp_replace(column.cast("string"), r"(\.\d*?)0+(?=E|$)", "$1")
    return functions.when(column == 0, functions.lit("0")).otherwise(functions.regexp_replace(text, r"\.(?=E|$)", ""))


def _spark_float(functions: Any, text: Any) -> Any:
    return functions.when(text == "-0.0", functions.lit("0.0")).otherwise(text)


def _spark_moment(functions: Any, text: Any) -> Any:
    return functions.replace(text, functions.lit(".000000"), functions.lit(""))


def _utc_column() -> "pa.DataType":
    return _arrow().timestamp("us", tz="UTC")


EAST = timezone(timedelta(hours=5, minutes=30))

_KINDS = [
    Kind(
        name="bool",
        python=bool,
        samples=(True, False),
        arrow=lambda: _arrow().bool_(),
        array="?",
        sqlite="boolean",
        postgresql="boolean",
        avro="boolean",
        protobuf="bool",
        reads=(bool,),
    ),
    Kind(
        name="int",
        python=int,
        samples=(0, -1, 2**53 + 1, 2**63 - 1, -(2**63)),
        arrow=lambda: _arrow().int64(),
        array="i8",
        sqlite="integer",
        postgresql="bigint",
        avro="long",
        protobuf="int64",
        reads=(int,),
    ),
    Kind(
        name="float",
        python=float,
        samples=(0.0, -0.0, 0.1, 1.7976931348623157e308, 5e-324, float("inf"), float("-inf"), float("nan")),
        arrow=lambda: _arrow().float64(),
        array="f8",
        identity=lambda number: number + 0.0 if number == number else float("nan"),
        sqlite="real",
        postgresql="double precision",
        spark_text=_spark_float,
        avro="double",
        protobuf="double",
        reads=(int, float),
    ),
    Kind(
        name="str",
        python=str,
        samples=("", " é\u2028😀 ", "\"\\,\n\t'", "null", "a/b", "%2F", "\0"),
        arrow=text_column,
        array="O",
        array_misses=True,
    ),
    Kind(
        name="bytes",
        python=bytes,
        samples=(b"", b"\x00\xff\n"),
        arrow=lambda: _arrow().binary(),
        array="O",
        array_misses=True,
        sqlite="blob",
        postgresql="bytea",
        avro="bytes",
        protobuf="bytes",
    ),
    Kind(
        name="datetime",
        python=datetime,
        samples=(
            datetime(1970, 1, 1, tzinfo=UTC),
            datetime(1, 1, 1, tzinfo=UTC),
            datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC),
            datetime(2026, 3, 29, 2, 30, 0, 1, EAST),
            datetime(2262, 4, 12, 1, 2, 3, 999_999, UTC),
        ),
        arrow=_utc_column,
        spark_text=_spark_moment,
        array="M8[us]",
        array_misses=True,
        identity=_in_utc,
        postgresql="timestamptz",
        to_sqlite=datetime.isoformat,
        avro={"type": "long", "logicalType": "timestamp-micros"},
        protobuf="google.protobuf.Timestamp",
        json_schema="date-time",
    ),
    Kind(
        name="naive datetime",
        python=datetime,
        naive=True,
        samples=(
            datetime(1970, 1, 1),
            datetime(1, 1, 1),
            datetime(9999, 12, 31, 23, 59, 59, 999_999),
            datetime(2026, 3, 29, 2, 30),
        ),
        arrow=lambda: _arrow().timestamp("us"),
        spark_text=_spark_moment,
        array="M8[us]",
        array_misses=True,
        postgresql="timestamp",
        to_sqlite=datetime.isoformat,
        avro={"type": "long", "logicalType": "local-timestamp-micros"},
        json_schema="date-time",
    ),
    Kind(
        name="date",
        python=date,
        samples=(date(1970, 1, 1), date.min, date.max),
        arrow=lambda: _arrow().date32(),
        postgresql="date",
        to_sqlite=date.isoformat,
        avro={"type": "int", "logicalType": "date"},
        json_schema="date",
    ),
    Kind(
        name="time",
        python=time,
        identity=_time_in_utc,
        samples=(time(), time(23, 59, 59, 999_999), time(12, tzinfo=UTC), time(17, 30, tzinfo=EAST), time(1, tzinfo=EAST)),
        avro={"type": "long", "logicalType": "time-micros"},
        json_schema="time",
    ),
    Kind(
        name="timedelta",
        python=timedelta,
        samples=(timedelta(), timedelta(microseconds=-1), timedelta(days=99_000, microseconds=1), timedelta(hours=36)),
        arrow=lambda: _arrow().duration("us"),
        array="m8[us]",
        array_misses=True,
        sqlite="real",
        postgresql="interval",
        to_sqlite=timedelta.total_seconds,
        protobuf="google.protobuf.Duration",
        json_schema="duration",
        spark=_iso_duration,
    ),
    Kind(
        name="Decimal",
        python=Decimal,
        samples=(
            Decimal(0),
            Decimal("-0.00"),
            Decimal("1.10"),
            Decimal("1E+2"),
            Decimal("-12345678901234567890.123456789012345678"),
            Decimal(4) / 3,
            Decimal("1E+21"),
            Decimal("NaN"),
        ),
        arrow=lambda: _arrow().decimal128(38, 18),
        staged=text_column,
        identity=_plain_decimal,
        spark=_spark_decimal,
        postgresql="numeric",
        reads=(str, int, float),
    ),
    Kind(
        name="UUID",
        python=UUID,
        samples=(UUID(int=0), UUID("6f1b6c1e-8d6e-4e0a-9f57-3c1d2b4a5e6f")),
        avro={"type": "string", "logicalType": "uuid"},
        json_schema="uuid",
    ),
]
_REGISTERED: list[Kind] = []
KNOWN_ANEW: list[Callable[[], None]] = []
"""Functions to call when a kind is added; each clears a cache that depends on the table."""


def kinds() -> Iterator[Kind]:
    """Yield all kinds in the order of the documentation: first the built-in ones, then the registered ones."""
    yield from _KINDS
    yield from _REGISTERED


def register(kind: Kind) -> None:
    """Add a kind. It replaces an earlier registered kind of its type, as a module may be loaded again.

    Raises:
        ValueError: the type has a built-in kind, or the kind lacks ``encode`` or ``decode``.
    """
    if any(known.python is kind.python for known in _KINDS):
        raise ValueError(f"The type {kind.python.__name__} has a built-in kind, which cannot be replaced.")
    if kind.encode is None or kind.decode is None:
        raise ValueError(f"The kind {kind.name} needs encode= and decode=: functions from a value to its text, and back.")
    _REGISTERED[:] = [*(known for known in _REGISTERED if known.python is not kind.python), kind]
    for forget in KNOWN_ANEW:
        forget()


def kind_of_type(python: Any, *, naive: bool = False) -> Kind | None:
    """Return the kind of a type, or of the nearest of its base classes that has one; None if none has."""
    return _found(python, naive)


@cache
def _found(python: Any, naive: bool) -> Kind | None:
    for base in getattr(python, "__mro__", ()):
        for kind in kinds():
            if kind.python is base and kind.naive == (naive and base is datetime):
                return kind
    return None


KNOWN_ANEW.append(_found.cache_clear)


def named(name: str) -> Kind:
    """Return the kind with a name."""
    return next(kind for kind in kinds() if kind.name == name)
