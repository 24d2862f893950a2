"""What can be said in which dialect, and run where: each feature is tried, in each dialect that has words for it."""

from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from typing import Any

from penstock import App, Count, Event, Global, ProcessingElement, Session, Sliding, Tumbling, reducers
from penstock.errors import PenstockError
from penstock.runtime.modes import refuse_in_memory, refuse_in_real_time


class Reading(Event):
    key: str
    at: datetime
    number: int = 0


class Other(Event):
    key: str
    at: datetime


class Total(Event):
    key: str
    number: int


class Known(Event):
    number: int = 0


class Counter(ProcessingElement):
    number: int = 0

    def on_event(self, event: Any) -> None:
        self.number += 1


class Closing(Counter):
    def on_close(self) -> None:
        pass


class Timed(Counter):
    def on_timer(self) -> None:
        pass


class Regular(Counter):
    def on_interval(self) -> None:
        pass


class Patient(ProcessingElement):
    async def on_event(self, event: Any) -> None:
        pass


def nothing(*given: Any) -> None:
    return None


async def awaited(event: Any) -> None:
    return None


class Parts:
    """An application, and streams to declare elements with."""

    def __init__(self, dialect: str) -> None:
        self.app = App("app")
        self.dialect: Any = dialect
        self._late: Any = "drop" if dialect == "query" else "dead-letter"

    @cached_property
    def readings(self) -> Any:
        return self.app.source("Readings", Reading, event_time="at", late=self._late)

    @cached_property
    def others(self) -> Any:
        return self.app.source("Others", Other, event_time="at", late=self._late)

    @cached_property
    def same(self) -> Any:
        return self.app.stream("Same", Reading)

    @cached_property
    def totals(self) -> Any:
        return self.app.stream("Totals", Total)


Declared = Callable[[Parts], Any]


def elements(**how: Any) -> Declared:
    """An element of the event dialect."""
    body = how.pop("body", Counter)
    return lambda parts: parts.app.element(parts.readings, key="key", emits=parts.totals, **how)(body)


def in_columns(**how: Any) -> Declared:
    """One of the batch dialect, with a key."""
    return lambda parts: parts.app.batch(parts.readings, key="key", state=Known, emits=parts.totals, **how)(nothing)


def aggregates(window: Any, reducer: Any = None, **how: Any) -> dict[str, Declared]:
    """An aggregate, in the event and the query dialect."""

    def declare(parts: Parts) -> Any:
        number = reducers.count() if reducer is None else reducer
        return parts.app.aggregate(
            parts.readings, key="key", window=window, into=parts.totals, dialect=parts.dialect, number=number, **how
        )

    return {"event": declare, "query": declare}


def joins(**how: Any) -> dict[str, Declared]:
    """An interval join, in both."""

    def declare(parts: Parts) -> Any:
        pair = parts.app.join(
            parts.readings, parts.others, key="key", within=("0 s", "10 s"), emits=parts.totals, dialect=parts.dialect, **how
        )
        return pair(nothing)

    return {"event": declare, "query": declare}


FEATURES: dict[str, dict[str, Declared]] = {
    "a function of events": {
        "event": lambda parts: parts.app.element(parts.readings, emits=parts.totals, name="E")(nothing),
        "batch": lambda parts: parts.app.batch(parts.readings, emits=parts.totals, name="E")(nothing),
        "query": lambda parts: parts.app.query(parts.readings, emits=parts.totals, name="E")(nothing),
    },
    "several inputs": {
        "event": lambda parts: parts.app.element([parts.readings, parts.others], emits=parts.totals, name="E")(nothing),
        "batch": lambda parts: parts.app.batch([parts.readings, parts.others], emits=parts.totals, name="E")(nothing),
        "query": lambda parts: parts.app.query([parts.readings, parts.others], emits=parts.totals, name="E")(nothing),
    },
    "a key, and state of it": {"event": elements(), "batch": in_columns(name="E")},
    "timers": {"event": elements(body=Timed), "batch": in_columns(name="E", on_timer=nothing)},
    "timers on event time": {
        "event": elements(body=Timed, timers="event"),
        "batch": in_columns(name="E", on_timer=nothing, timers="event"),
    },
    "`every=`": {"event": elements(body=Regular, every="1 s")},
    "`expires=`": {"event": elements(expires="1 h"), "batch": in_columns(name="E", expires="1 h")},
    "`ordered=True`": {"event": elements(ordered=True)},
    "asynchronous functions": {"event": lambda parts: parts.app.element(parts.readings, emits=parts.totals)(awaited)},
    "asynchronous classes": {"event": elements(body=Patient)},
    "a class with windows": {"event": elements(body=Closing, window=Tumbling("10 s"))},
    "aggregates: tumbling windows": aggregates(Tumbling("10 s")),
    "sliding windows": aggregates(Sliding("10 s", "2 s")),
    "sessions": aggregates(Session("10 s")),
    "windows by count": aggregates(Count(10)),
    "one window for all": aggregates(Global(every="10 s")),
    "windows of a time zone": aggregates(Tumbling("1 d", zone="Europe/Zurich")),
    "`allowed=`": aggregates(Tumbling("10 s", allowed="1 min")),
    "results of open windows": aggregates(Tumbling("10 s"), results="updates"),
    "`where`, as a function": aggregates(Tumbling("10 s"), reducers.count().where(lambda reading: reading.number > 3)),
    "`fold`": aggregates(Tumbling("10 s"), reducers.fold(0, lambda state, event: state + 1, kind=int)),
    "joins within a time": joins(),
    "outer joins within a time": joins(how="left"),
    "`join_latest`": {
        "event": lambda parts: parts.app.join_latest(
            parts.readings, parts.others, key="key", within="1 min", emits=parts.totals
        )(nothing)
    },
    "`distinct`": {"event": lambda parts: parts.app.distinct(parts.readings, key="key", within="1 min", into=parts.same)},
    "`pattern`": {
        "event": lambda parts: parts.app.pattern(
            parts.readings, key="key", then=[bool, bool], within="1 min", emits=parts.totals
        )(nothing)
    },
}
DIALECTS = ("event", "batch", "query")


def declared(dialect: str, declare: Declared) -> Any:
    """The topology of an application with a feature; None where it is refused."""
    parts = Parts(dialect)
    try:
        declare(parts)
        parts.app.sink("Out", parts.app._elements[-1].emits[0])
        return parts.app.topology()
    except PenstockError:
        return None


def passes(refuse: Callable[[Any], None], topologies: list[Any]) -> str:
    """In which dialects of those that have a feature a mode runs it."""
    for_all = []
    for topology in topologies:
        try:
            refuse(topology)
            for_all.append(topology.elements[0].dialect)
        except PenstockError:
            continue
    return "yes" if topologies and len(for_all) == len(topologies) else ", ".join(for_all) or "no"


def table() -> str:
    """Feature by dialect and mode, as a Markdown table."""
    rows = ["| what | event | batch | query | `TopologyDriver` | `--real-time` |", "| --- | --- | --- | --- | --- | --- |"]
    for feature, ways in FEATURES.items():
        found = {dialect: declared(dialect, ways[dialect]) for dialect in DIALECTS if dialect in ways}
        cells = ["no" if found.get(dialect) is None else "yes" for dialect in DIALECTS]
        topologies = [topology for topology in found.values() if topology is not None]
        modes = [passes(refuse, topologies) for refuse in (refuse_in_memory, refuse_in_real_time)]
        rows.append(f"| {feature} | {' | '.join([*cells, *modes])} |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(table())
