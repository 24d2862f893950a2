"""Windows and joins that Spark plans, declared as in the event dialect; those that Spark cannot plan with equal results are
refused.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from penstock.app.element import Element
from penstock.app.reducers import BUILT_IN, Reducer, max, min, top
from penstock.app.stream import EventTime, Source, Stream
from penstock.app.window.windowing import Planned, Windowing
from penstock.errors import TopologyError
from penstock.kinds.annotations import kind_of, plain
from penstock.kinds.event import field_types
from penstock.kinds.kind import text_column

WordsOf = Literal["event", "query"]
"""The dialects in which windows and joins can be declared."""


@dataclass(frozen=True)
class WindowQuery:
    """An aggregation that Spark plans: it reduces the events of each window of a key to a row.

    Args:
        planned: the windows in Spark's terms.
        spans: which of ``start`` and ``end`` the result has.
    """

    time: EventTime
    window: Windowing
    planned: Planned
    key: tuple[str, ...]
    spans: tuple[str, ...]
    reducers: Mapping[str, Reducer[Any]]


@dataclass(frozen=True)
class JoinQuery:
    """A join that Spark plans: pairs of rows with equal keys, where the right one lies within an interval around the left one.

    Args:
        times: the event times of both sides.
        lower, upper: the interval, in microseconds.
        pair: makes the columns of a result, by name, from the columns of both sides.
    """

    times: tuple[EventTime, EventTime]
    key: tuple[str, ...]
    lower: int
    upper: int
    how: Literal["inner", "left", "full"]
    pair: Callable[[Any, Any], Mapping[str, Any]]


def window_query(
    name: str,
    source: Stream[Any],
    key: tuple[str, ...],
    window: Windowing,
    into: Stream[Any],
    reducers: Mapping[str, Reducer[Any]],
    results: str,
) -> Element:
    """Return an aggregation that Spark plans; the caller has checked the arguments that concern every dialect.

    Raises:
        TopologyError: Spark lacks the window or the reducer, or treats late events in another way; or the source has no event
            time, or does not drop late events.
    """
    event_dialect = "leave out dialect='query', for the event dialect has it"
    planned = window.planned()
    if isinstance(planned, str):
        raise TopologyError(f"Aggregate {name}: {planned}; {event_dialect}.")
    if window.allowed_us:
        raise TopologyError(
            f"Aggregate {name}: Spark forgets a window that has closed; leave out allowed=, or dialect='query'."
        )
    if results != "final":
        raise TopologyError(f"Aggregate {name}: Spark emits a window's result once, at its end; {event_dialect}.")
    for each, reducer in reducers.items():
        if type(reducer) not in BUILT_IN:
            kind = type(reducer).__name__
            raise TopologyError(f"Aggregate {name}: {each}={kind}(...) is Python, which Spark cannot plan; {event_dialect}.")
        field = reducer.by if isinstance(reducer, top) else reducer.field if isinstance(reducer, min | max) else None
        ordered = None if field is None else kind_of(plain(field_types(source.event_type)[field]))
        if ordered is not None and ordered.arrow is text_column and ordered.python not in (str, UUID):
            raise TopologyError(
                f"Aggregate {name}: {each}={type(reducer).__name__}(...) is over {field}, which Spark orders as a "
                f"text; {event_dialect}."
            )
    time = _time(f"Aggregate {name}", source, window.at)
    spans = tuple(span for span in ("start", "end") if span in into.event_type.__struct_fields__)
    spans = tuple(span for span in spans if span not in reducers and span not in key)
    body = WindowQuery(time, window, planned, key, spans, dict(reducers))
    return Element(name, body, "query", (source,), (into,), (), note=f"by {', '.join(key)}, {window}")


def join_query(
    name: str,
    pair: Any,
    sides: tuple[Stream[Any], ...],
    key: tuple[str, ...],
    at: tuple[str | None, ...],
    interval: tuple[int, int],
    how: Any,
    emits: Stream[Any] | Sequence[Stream[Any]],
    note: str,
) -> Element:
    """Return a join that Spark plans.

    Raises:
        TopologyError: it emits into several streams; or a side is not a source with an event time, does not drop late events,
            or lacks a field of the key.
    """
    streams = (emits,) if isinstance(emits, Stream) else tuple(emits)
    if len(streams) != 1:
        raise TopologyError(f"Join {name}: the query dialect emits into exactly one stream.")
    for side in sides:
        for part in key:
            if part not in side.event_type.__struct_fields__:
                raise TopologyError(f"Join {name} is by {part!r}, which is no field of {side.event_type.__name__}.")
    first, second = (_time(f"Join {name}", side, field) for side, field in zip(sides, at, strict=True))
    return Element(name, JoinQuery((first, second), key, *interval, how, pair), "query", sides, streams, (), note=note)


def _time(what: str, stream: Stream[Any], field: str | None) -> EventTime:
    """Return the event time of a source, which Spark's watermark follows; refuse a stream without one, or not late="drop"."""
    time = stream.event_time if isinstance(stream, Source) else None
    if time is None or field not in (None, time.field):
        raise TopologyError(
            f"{what}: in the query dialect Spark's watermark follows a source's event time: read {stream.name} from a source "
            "with event_time=, and use that field; or leave out dialect='query'."
        )
    if time.late != "drop":
        raise TopologyError(
            f"{what}: Spark drops late events, and only counts them: say late='drop' on source {stream.name}, or leave out "
            "dialect='query'."
        )
    return time
