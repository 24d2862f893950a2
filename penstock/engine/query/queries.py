"""Windows and joins that are declared in the query dialect, as Spark DataFrame operations."""

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.app import reducers
from penstock.app.queries import JoinQuery, WindowQuery
from penstock.app.reducers import Reducer
from penstock.app.stream import EventTime
from penstock.app.topology import Topology
from penstock.app.window.windowing import Planned
from penstock.errors import EmissionError

SKETCH_ERROR = 0.016
"""The standard error of the event dialect's sketch."""
WINDOW = "the window"
LEFT_MARK, RIGHT_MARK = "the left mark", "the right mark"
JUDGED_AT_ONCE = {"spark.sql.streaming.statefulOperator.allowMultiple": "false"}
"""Makes Spark judge lateness by the watermark of the same micro-batch, not by the one before. Works for queries with one
stateful operator only.
"""


class Columns:
    """Gives columns by the names of an event's fields, for functions that take an event in the event dialect."""

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self._columns = dict(columns)

    def __getattr__(self, name: str) -> Column:
        try:
            return self._columns[name]
        except KeyError:
            raise AttributeError(f"there is no field {name!r}; there are {', '.join(self._columns)}") from None


def has_join(topology: Topology) -> bool:
    """Whether a topology has a join that Spark plans."""
    return any(isinstance(element.body, JoinQuery) for element in topology.elements)


def settings_for(topology: Topology) -> Mapping[str, str]:
    """Return the session's settings for starting a group's query: joins judge lateness at once, windows a micro-batch later."""
    return JUDGED_AT_ONCE if has_join(topology) else {}


def windowed(element: str, query: WindowQuery, frame: DataFrame) -> DataFrame:
    """Return a DataFrame with one row for each window of each key."""
    columns = {name: _column(name) for name in frame.columns}
    marked = _with_watermark(frame, query.time.field, query.time)
    reduced = [_reduced(element, reducer, columns, query.time.field).alias(name) for name, reducer in query.reducers.items()]
    window = _window(query.planned, columns[query.time.field])
    grouped = marked.groupBy(window.alias(WINDOW), *(columns[name] for name in query.key)).agg(*reduced)
    return grouped.select(
        *(_column(name) for name in query.key),
        *(F.col(f"`{WINDOW}`.{span}").alias(span) for span in query.spans),
        *(_column(name) for name in query.reducers),
    )


def joined(element: str, query: JoinQuery, left: DataFrame, right: DataFrame) -> DataFrame:
    """Return a DataFrame with a row for each pair and, for outer joins, for each event without a match."""
    (lefts, left), (rights, right) = _apart("left", left), _apart("right", right)
    left_time, right_time = lefts[query.times[0].field], rights[query.times[1].field]
    left = _with_watermark(left.withColumn(LEFT_MARK, _judged_by(left_time)), LEFT_MARK, query.times[0])
    right = _with_watermark(right.withColumn(RIGHT_MARK, _judged_by(right_time)), RIGHT_MARK, query.times[1])
    within = (right_time >= left_time + _interval(query.lower)) & (right_time <= left_time + _interval(query.upper))
    marks = _column(LEFT_MARK), _column(RIGHT_MARK)  # from these conditions Spark derives which state it can drop
    within &= marks[1] >= marks[0] + _interval(query.lower - 1000)
    within &= marks[1] <= marks[0] + _interval(query.upper + 1000)
    for part in query.key:
        within = lefts[part].eqNullSafe(rights[part]) & within
    pairs = left.join(right, within, {"inner": "inner", "left": "left_outer", "full": "full_outer"}[query.how])
    pair = _asked(element, lambda: query.pair(Columns(lefts), Columns(rights)))
    if not isinstance(pair, Mapping):
        raise EmissionError(
            f"{element} returned {type(pair).__name__}; in the query dialect a join returns columns by name, as "
            '{"price": left.price}.'
        )
    return pairs.select(
        *((column if isinstance(column, Column) else F.lit(column)).alias(name) for name, column in pair.items())
    )


def _apart(side: str, frame: DataFrame) -> tuple[dict[str, Column], DataFrame]:
    """Prefix a frame's columns with the side of the join; returns the columns by their own names, and the renamed frame."""
    renamed = frame.select(*(_column(name).alias(f"{side} {name}") for name in frame.columns))
    return {name: _column(f"{side} {name}") for name in frame.columns}, renamed


def _column(name: str) -> Column:
    return F.col(f"`{name}`")


def _interval(micros: int) -> Column:
    return F.expr(f"INTERVAL '{micros}' MICROSECONDS")


def _judged_by(time: Column) -> Column:
    """Return the time by which Spark judges lateness. To Spark, an event at the watermark is late; to Penstock, only one before
    it is, so the time is cut to milliseconds and one microsecond is added.

    Watermarks are in whole milliseconds, so the addition does not change them.
    """
    return F.date_trunc("millisecond", time) + _interval(1)


def _with_watermark(frame: DataFrame, column: str, time: EventTime) -> DataFrame:
    return frame.withWatermark(f"`{column}`", f"{round(time.lateness * 1000)} milliseconds")


def _window(window: Planned, time: Column) -> Column:
    return F.window(time, _micros(window.size_us), _micros(window.every_us), _micros(window.offset_us))


def _micros(span: int) -> str:
    return f"{span} microseconds"


def _reduced(element: str, reducer: Reducer[Any], columns: Mapping[str, Column], time: str) -> Column:
    """Return the aggregate column of a reducer over the rows that it takes."""
    whole = F.struct(*columns.values())
    value = whole if reducer.field is None else columns[reducer.field]
    wanted = F.lit(True)
    takes = reducer.wanted
    if takes is not None:
        wanted = _asked(element, lambda: takes(Columns(columns)))
    return _SPARK[type(reducer)](reducer, F.when(wanted, value), F.when(wanted, columns[time]), wanted)


def _asked(element: str, ask: Callable[[], Any]) -> Any:
    """Call a user's function on columns, and return its result.

    Raises:
        EmissionError: the function does not work on columns.
    """
    try:
        return ask()
    except Exception as error:
        raise EmissionError(
            f"{element} has a function that works on events and not on columns ({error}): write `&` for `and`, `|` for `or`, "
            "and functions of pyspark.sql; or leave out dialect='query'."
        ) from error


def _in_order(entries: Column, before: Callable[[Column, Column], Column]) -> Column:
    """Sort an array column by the order ``before``."""
    return F.array_sort(entries, lambda one, other: F.when(before(one, other), -1).when(before(other, one), 1).otherwise(0))


def _collected(value: Column, time: Column, wanted: Column) -> Column:
    entries = F.collect_list(F.when(wanted, F.struct(time.alias("time"), value.alias("value"))))
    in_order = _in_order(entries, lambda one, other: one["time"] < other["time"])
    return F.transform(in_order, lambda entry: entry["value"])


def _best(reducer: reducers.top, value: Column, wanted: Column) -> Column:
    there = wanted & value[reducer.by].isNotNull()
    ranked = _in_order(F.collect_list(F.when(there, value)), lambda one, other: one[reducer.by] > other[reducer.by])
    return F.slice(ranked, 1, reducer.n)


_SPARK: dict[type, Callable[[Any, Column, Column, Column], Column]] = {
    reducers.count: lambda _, value, time, wanted: F.count_if(wanted),
    reducers.sum: lambda _, value, time, wanted: F.coalesce(F.sum(value), F.lit(0)),
    reducers.mean: lambda _, value, time, wanted: F.avg(value),
    reducers.min: lambda _, value, time, wanted: F.min(value),
    reducers.max: lambda _, value, time, wanted: F.max(value),
    reducers.first: lambda _, value, time, wanted: F.min_by(value, time),
    reducers.last: lambda _, value, time, wanted: F.max_by(value, time),
    reducers.top: lambda reducer, value, time, wanted: _best(reducer, value, wanted),
    # A struct with a null field is not null itself, so null counts as one value, as in the event dialect.
    reducers.distinct: lambda _, value, time, wanted: F.size(F.collect_set(F.when(wanted, F.struct(value)))),
    reducers.approx_distinct: lambda _, value, time, wanted: F.approx_count_distinct(value, SKETCH_ERROR),
    reducers.collect: lambda _, value, time, wanted: _collected(value, time, wanted),
}
"""Each reducer as a function to a Spark aggregate. Its arguments are the reducer, the values and the times of the rows that it
takes (null for other rows), and whether it takes the row.
"""
