"""Windows and joins that are declared in the query dialect, as Spark plans them."""

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
"""Has Spark judge lateness by the watermark of the micro-batch, and not by that of the one before; for one operator with
state.
"""


class Columns:
    """The columns of a row by the names of an event's fields, for functions that take an event in the event dialect."""

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self._columns = dict(columns)

    def __getattr__(self, name: str) -> Column:
        try:
            return self._columns[name]
        except KeyError:
            raise AttributeError(f"there is no field {name!r}; there are {', '.join(self._columns)}") from None


def has_join(topology: Topology) -> bool:
    """Whether one of its elements is a join that Spark plans."""
    return any(isinstance(element.body, JoinQuery) for element in topology.elements)


def settings_for(topology: Topology) -> Mapping[str, str]:
    """What a session is to have set when the query of a group starts: windows close by the micro-batch before, joins do not."""
    return JUDGED_AT_ONCE if has_join(topology) else {}


def windowed(element: str, query: WindowQuery, frame: DataFrame) -> DataFrame:
    """A row for each window of a key."""
    columns = {name: _column(name) for name in frame.columns}
    marked = _with_watermark(frame, query.time.field, query.time)
    made = [_reduced(element, reducer, columns, query.time.field).alias(name) for name, reducer in query.reducers.items()]
    window = _window(query.planned, columns[query.time.field])
    grouped = marked.groupBy(window.alias(WINDOW), *(columns[name] for name in query.key)).agg(*made)
    return grouped.select(
        *(_column(name) for name in query.key),
        *(F.col(f"`{WINDOW}`.{span}").alias(span) for span in query.spans),
        *(_column(name) for name in query.reducers),
    )


def joined(element: str, query: JoinQuery, left: DataFrame, right: DataFrame) -> DataFrame:
    """A row for each pair, and for each event that has met none, where that is asked for."""
    (lefts, left), (rights, right) = _apart("left", left), _apart("right", right)
    mine, theirs = lefts[query.times[0].field], rights[query.times[1].field]
    left = _with_watermark(left.withColumn(LEFT_MARK, _judged_by(mine)), LEFT_MARK, query.times[0])
    right = _with_watermark(right.withColumn(RIGHT_MARK, _judged_by(theirs)), RIGHT_MARK, query.times[1])
    within = (theirs >= mine + _interval(query.lower)) & (theirs <= mine + _interval(query.upper))
    marks = _column(LEFT_MARK), _column(RIGHT_MARK)  # by which Spark knows what it need not keep
    within &= marks[1] >= marks[0] + _interval(query.lower - 1000)
    within &= marks[1] <= marks[0] + _interval(query.upper + 1000)
    for part in query.key:
        within = lefts[part].eqNullSafe(rights[part]) & within
    pairs = left.join(right, within, {"inner": "inner", "left": "left_outer", "full": "full_outer"}[query.how])
    made = _asked(element, lambda: query.pair(Columns(lefts), Columns(rights)))
    if not isinstance(made, Mapping):
        raise EmissionError(
            f"{element} returned {type(made).__name__}; in the query dialect a join returns columns by name, as "
            '{"price": left.price}.'
        )
    return pairs.select(
        *((column if isinstance(column, Column) else F.lit(column)).alias(name) for name, column in made.items())
    )


def _apart(side: str, frame: DataFrame) -> tuple[dict[str, Column], DataFrame]:
    """Columns under names that say of which side they are."""
    renamed = frame.select(*(_column(name).alias(f"{side} {name}") for name in frame.columns))
    return {name: _column(f"{side} {name}") for name in frame.columns}, renamed


def _column(name: str) -> Column:
    return F.col(f"`{name}`")


def _interval(micros: int) -> Column:
    return F.expr(f"INTERVAL '{micros}' MICROSECONDS")


def _judged_by(time: Column) -> Column:
    """By what Spark is to judge whether an event is late: to Spark one is whose time is the watermark, to us none that is not
    before.

    The watermark is of whole milliseconds, so that it does not move by this.
    """
    return F.date_trunc("millisecond", time) + _interval(1)


def _with_watermark(frame: DataFrame, column: str, time: EventTime) -> DataFrame:
    return frame.withWatermark(f"`{column}`", f"{round(time.lateness * 1000)} milliseconds")


def _window(window: Planned, time: Column) -> Column:
    return F.window(time, _micros(window.size_us), _micros(window.every_us), _micros(window.offset_us))


def _micros(span: int) -> str:
    return f"{span} microseconds"


def _reduced(element: str, reducer: Reducer[Any], columns: Mapping[str, Column], time: str) -> Column:
    """What a reducer makes of the rows that it takes."""
    whole = F.struct(*columns.values())
    value = whole if reducer.field is None else columns[reducer.field]
    wanted = F.lit(True)
    takes = reducer.wanted
    if takes is not None:
        wanted = _asked(element, lambda: takes(Columns(columns)))
    return _SPARK[type(reducer)](reducer, F.when(wanted, value), F.when(wanted, columns[time]), wanted)


def _asked(element: str, ask: Callable[[], Any]) -> Any:
    """What a user's function makes of columns.

    Raises
    ------
    EmissionError: it cannot be said in columns.
    """
    try:
        return ask()
    except Exception as error:
        raise EmissionError(
            f"{element} has a function that works on events and not on columns ({error}): write `&` for `and`, `|` for `or`, "
            "and functions of pyspark.sql; or leave out dialect='query'."
        ) from error


def _in_order(entries: Column, before: Callable[[Column, Column], Column]) -> Column:
    """An array, sorted."""
    return F.array_sort(entries, lambda one, other: F.when(before(one, other), -1).when(before(other, one), 1).otherwise(0))


def _collected(value: Column, time: Column, wanted: Column) -> Column:
    entries = F.collect_list(F.when(wanted, F.struct(time.alias("time"), value.alias("value"))))
    in_order = _in_order(entries, lambda one, other: one["time"] < other["time"])
    return F.transform(in_order, lambda entry: entry["value"])


def _best(reducer: reducers.top, value: Column, wanted: Column) -> Column:
    ranked = _in_order(F.collect_list(F.when(wanted, value)), lambda one, other: one[reducer.by] > other[reducer.by])
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
    # A struct is not null where its field is, so that no value counts as one, as in the event dialect.
    reducers.distinct: lambda _, value, time, wanted: F.size(F.collect_set(F.when(wanted, F.struct(value)))),
    reducers.approx_distinct: lambda _, value, time, wanted: F.approx_count_distinct(value, SKETCH_ERROR),
    reducers.collect: lambda _, value, time, wanted: _collected(value, time, wanted),
}
"""Each reducer in Spark's functions: of itself, the values and times of the rows it takes (null for others), and which these
are.
"""
