"""Which changes of code a checkpoint survives: the table of `docs/how-to/failures.md`, a row a case."""

import enum
import json
from collections.abc import Callable
from dataclasses import make_dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, NamedTuple, Optional

import msgspec
import pytest

from penstock import App, Event, ProcessingElement
from penstock import reducers as R
from penstock.app.state import check_state_fits, describe_state
from penstock.app.window import Count, Global, Session, Sliding, Tumbling
from penstock.errors import IncompatibleStateError
from penstock.testing import TopologyDriver


class A(Event):
    k: int
    v: int
    at: datetime
    shop: str = ""
    also: datetime = datetime(2026, 1, 1, tzinfo=UTC)


class B(Event):
    k: int
    v: int
    at: datetime


class Out(Event):
    k: int
    n: int
    t: int


class Said(Event):
    said: str


def struct(base: type, name: str, fields: dict[str, Any], *, methods: dict[str, Any] | None = None, **config: Any) -> Any:
    """A class of fields: a type alone, or a type and a default."""
    hooks = {"on_event": lambda self, event: None} if base is ProcessingElement and methods is None else {}
    space: dict[str, Any] = {"__module__": "app", "__annotations__": {}, **hooks, **(methods or {})}
    for field, kind in fields.items():
        plain = not isinstance(kind, tuple)
        space["__annotations__"][field] = kind if plain else kind[0]
        if not plain:
            space[field] = kind[1]
    return type(base)(name, (base,), space, **config)


def holding(kind: Any, default: Any = None, **config: Any) -> App:
    """A keyed element whose state is a field of a type."""
    prototype = struct(ProcessingElement, "Keeps", {"x": (kind, default)}, **config)
    return by(prototype)


def by(prototype: Any, *, key: Any = "k", name: str = "E", **how: Any) -> App:
    app = App("app")
    events, said = app.source("As", A, event_time="at"), app.stream("Saids", Said)
    app.element(events, key=key, emits=said, name=name, **how)(prototype)
    app.sink("Out", said)
    return app


def keyed(kind: Any) -> App:
    """An element with a key of a type."""
    app = App("app")
    said = app.stream("Saids", Said)
    event = struct(Event, "Asked", {"k": kind})
    app.element(app.source("As", event), key="k", emits=said, name="E")(struct(ProcessingElement, "Keeps", {"n": (int, 0)}))
    app.sink("Out", said)
    return app


def also(app: App) -> App:
    """With another element."""
    events = app.source("Bs", B, event_time="at")
    said = app.stream("More", Said)
    app.element(events, key="k", emits=said, name="F")(struct(ProcessingElement, "F", {"n": (int, 0)}))
    app.sink("Others", said)
    return app


def more(event: type[Event]) -> Any:
    """An event with one field more."""
    return struct(event, event.__name__, {"last": (int, 0)})


def columns(state: Any) -> App:
    app = App("app")
    said = app.stream("Saids", Said)
    app.batch(app.source("As", A), key="k", state=state, emits=said, name="E")(lambda batch, at, states: None)
    app.sink("Out", said)
    return app


def kept(event: Any) -> App:
    """A window that keeps an event."""
    app = App("app")
    out = app.stream("O", struct(Event, "Result", {"k": int, "last": event | None}))
    events = app.source("As", event, event_time="at")
    app.aggregate(events, key="k", window=Tumbling("10 s"), into=out, name="E", last=R.last())
    app.sink("Out", out)
    return app


def tops(number: int) -> App:
    app = App("app")
    out = app.stream("O", struct(Event, "Result", {"k": int, "top": list[A]}))
    events = app.source("As", A, event_time="at")
    app.aggregate(events, key="k", window=Tumbling("10 s"), into=out, name="E", top=R.top(number, by="v"))
    app.sink("Out", out)
    return app


class One(Event):
    x: "One | None" = None
    one: int = 0


class Two(Event, tag="two"):
    x: "One | None" = None


def summed(window: Any, results: str = "final", dialect: str = "event", event: Any = None, **reducers: Any) -> App:
    app = App("app")
    events = app.source("As", event or A, event_time="at", **({"late": "drop"} if dialect == "query" else {}))
    out = app.stream(
        "O", struct(Event, "Result", {"k": int, **{name: reducer.gives(event or A) for name, reducer in reducers.items()}})
    )
    more = {"results": results} if not isinstance(window, Global) else {}
    app.aggregate(events, key="k", window=window, into=out, name="E", dialect=dialect, **more, **reducers)
    app.sink("Out", out)
    return app


def classed(window: Any, *hooks: str, fields: dict[str, Any] | None = None) -> App:
    methods = {hook: (lambda self, *given: None) for hook in ("on_event", "on_close", *hooks)}
    return by(struct(ProcessingElement, "Keeps", fields or {"n": (int, 0)}, methods=methods), window=window)


def joined(*kinds: type[Event], latest: bool = False, at: str = "at", within: str = "10 s") -> App:
    app = App("app")
    streams = [app.source(f"{kind.__name__}s", kind, event_time="at") for kind in kinds]
    said = app.stream("Saids", Said)
    if latest:
        app.join_latest(*streams, key="k", within="10 s", emits=said, name="E")(lambda one, other: None)
    else:
        app.join(*streams, key="k", within=("0 s", within), emits=said, name="E", at=(at, "at"))(lambda one, other: None)
    app.sink("Out", said)
    return app


def ordered(*kinds: type[Event], on: bool = True) -> App:
    app = App("app")
    streams = [app.source(f"{kind.__name__}s", kind, event_time="at") for kind in kinds]
    said = app.stream("Saids", Said)
    body = struct(ProcessingElement, "Keeps", {}, methods={"on_event": lambda self, event: None})
    app.element(streams, key="k", emits=said, name="E", ordered=on)(body)
    app.sink("Out", said)
    return app


def first(event: Any) -> bool:
    return event.v == 1


def second(event: Any) -> bool:
    return event.v == 2


def sequence(*steps: Callable[[Any], bool]) -> App:
    app = App("app")
    events, said = app.source("As", A, event_time="at"), app.stream("Saids", Said)
    app.pattern(events, key="k", then=list(steps), within="10 s", emits=said, name="E")(lambda *found: None)
    app.sink("Out", said)
    return app


def timed(hook: str, clock: str = "processing", **how: Any) -> App:
    methods = {"on_event": lambda self, event: None, hook: lambda self: None}
    return by(struct(ProcessingElement, "Keeps", {"n": (int, 0)}, methods=methods), timers=clock, **how)


def colours(*names: str, **values: int) -> Any:
    return enum.Enum("Colour", values or list(names), module="app")


class Pair(NamedTuple):
    x: int
    y: int


class Turned(NamedTuple):
    y: int
    x: int


Turned.__name__ = "Pair"


class Longer(NamedTuple):
    x: int
    y: int
    z: int = 0


PLACE = {"zip": (int, 0), "town": (str, "")}


def place(fields: Any = PLACE, name: str = "Place", **config: Any) -> Any:
    return struct(Event, name, fields, **config)


def tens(**reducers: Any) -> App:
    return summed(Sliding("10 s", "2 s"), **(reducers or {"n": R.count()}))


def either(*names: str) -> Any:
    """A union of tagged events."""
    kinds = {name: struct(Event, name, {"x": (int, 0)}, tag=tag) for name, tag in zip(names, "xyz", strict=False)}
    one, *rest = (kinds[name] for name in sorted(kinds))
    for other in rest:
        one = one | other
    return one | None


FITS = {
    "nothing changed": (holding(int, 0), holding(int, 0)),
    "Optional is | None": (holding(Optional[int]), holding(int | None)),  # noqa: UP045
    "int to float": (holding(int, 0), holding(float, 0.0)),
    "int to float | None": (holding(int, 0), holding(float | None)),
    "T to T | None": (holding(datetime, datetime(2026, 1, 1)), holding(datetime | None)),
    "an Event to the same | None": (holding(place(), place()()), holding(place() | None)),
    "list[int] to list[float]": (holding(list[int], []), holding(list[float], [])),
    "a new field with a default": (
        by(struct(ProcessingElement, "K", {"n": (int, 0)})),
        by(struct(ProcessingElement, "K", {"n": (int, 0), "m": (int, 5)})),
    ),
    "a new element": (holding(int, 0), also(holding(int, 0))),
    "fields in another order": (holding(place() | None), holding(place(dict(reversed(PLACE.items()))) | None)),
    "a nested field with a default": (holding(place() | None), holding(place({**PLACE, "more": (int, 1)}) | None)),
    "a nested class renamed": (holding(place() | None), holding(place(name="Site") | None)),
    "a member of an Enum": (holding(colours("RED", "GREEN") | None), holding(colours("RED", "GREEN", "BLUE") | None)),
    "a value of a Literal": (holding(Literal["a"] | None), holding(Literal["a", "b"] | None)),
    "a field at the end of a tuple": (holding(Pair | None), holding(Longer | None)),
    "a looser limit": (holding(Annotated[int, msgspec.Meta(ge=5)], 5), holding(int, 0)),
    "a reducer at the end": (tens(n=R.count()), tens(n=R.count(), t=R.sum("v"))),
    "allowed less": (
        summed(Tumbling("10 s", allowed="1 min"), n=R.count()),
        summed(Tumbling("10 s", allowed="1 s"), n=R.count()),
    ),
    "windows written otherwise": (summed(Tumbling("60 s"), n=R.count()), summed(Tumbling("1 min"), n=R.count())),
    "within of a join": (joined(A, B), joined(A, B, within="20 s")),
    "a limit that is looser": (holding(Annotated[int, msgspec.Meta(ge=5)], 5), holding(Annotated[int, msgspec.Meta(ge=0)], 5)),
    "a limit, and None": (holding(Annotated[int, msgspec.Meta(ge=5)], 5), holding(Annotated[int, msgspec.Meta(ge=5)] | None)),
    "any time, of one with a zone": (holding(Annotated[datetime, msgspec.Meta(tz=True)] | None), holding(datetime | None)),
    "a new member of an Enum in a key": (keyed(colours("RED", "GREEN")), keyed(colours("RED", "GREEN", "BLUE") | None)),
    "a field in columns encoded otherwise": (
        columns(struct(Event, "S", {"seen": (int, 0)})),
        columns(struct(Event, "S", {"seen": (int, 0)}, rename="upper")),
    ),
    "a field that no reducer of a query reads": (
        summed(Tumbling("10 s"), dialect="query", n=R.count()),
        summed(Tumbling("10 s"), dialect="query", event=more(A), n=R.count()),
    ),
    "a key that may be None": (keyed(int), keyed(int | None)),
    "a timer where there was none": (by(struct(ProcessingElement, "K", {"n": (int, 0)})), timed("on_timer")),
}

REFUSED = {
    "11 reducers in another order": (
        tens(n=R.count(), t=R.sum("v")),
        tens(t=R.sum("v"), n=R.count()),
        r"reducers: n=count\(\), t=sum\('v'\), and now has t=sum",
    ),
    "a reducer of another field": (tens(t=R.sum("v")), tens(t=R.sum("k")), r"t=sum\('v'\).*t=sum\('k'\)"),
    "a reducer of another kind": (tens(t=R.min("v")), tens(t=R.max("v")), r"t=min.*t=max"),
    "a reducer that is gone": (tens(n=R.count(), t=R.sum("v")), tens(n=R.count()), r"t=sum\('v'\), and now has n=count\(\):"),
    "a reducer in front": (tens(n=R.count()), tens(t=R.sum("v"), n=R.count()), "reducers"),
    "12 a key in another order": (
        by(struct(ProcessingElement, "K", {}), key=("k", "shop")),
        by(struct(ProcessingElement, "K", {}), key=("shop", "k")),
        r"keyed by k \(int\), shop \(str\) and is now keyed by shop \(str\), k",
    ),
    "13 allowed more, which takes another form": (
        tens(),
        summed(Sliding("10 s", "2 s", allowed="1 min"), n=R.count()),
        "parts that windows share.*each with a state",
    ),
    "13 early results, which take another form": (
        tens(),
        summed(Sliding("10 s", "2 s"), "both", n=R.count()),
        "parts that windows share",
    ),
    "13 a class without merge": (
        classed(Sliding("10 s", "2 s"), "merge"),
        classed(Sliding("10 s", "2 s")),
        "parts that windows share",
    ),
    "13 a class with on_batch": (
        classed(Sliding("10 s", "2 s"), "merge"),
        classed(Sliding("10 s", "2 s"), "merge", "on_batch"),
        "form",
    ),
    "allowed more": (summed(Tumbling("10 s"), n=R.count()), summed(Tumbling("10 s", allowed="1 s"), n=R.count()), "allowed"),
    "another length": (summed(Tumbling("10 s"), n=R.count()), summed(Tumbling("20 s"), n=R.count()), "10 s, and now has 20 s"),
    "a length a microsecond longer": (
        summed(Tumbling(1.234567), n=R.count()),
        summed(Tumbling(1.234568), n=R.count()),
        "1234567, and now has 1234568",
    ),
    "another offset": (summed(Tumbling("10 s"), n=R.count()), summed(Tumbling("10 s", offset="1 s"), n=R.count()), "windows"),
    "another zone": (summed(Tumbling("1 d"), n=R.count()), summed(Tumbling("1 d", zone="Asia/Tokyo"), n=R.count()), "windows"),
    "another kind of window": (summed(Tumbling("10 s"), n=R.count()), summed(Session("10 s"), n=R.count()), "form"),
    "a gap": (summed(Session("10 s"), n=R.count()), summed(Session("11 s"), n=R.count()), "windows"),
    "a window by count": (summed(Count(10), n=R.count()), summed(Count(20), n=R.count()), "windows"),
    "a window for ever": (summed(Global(after=10), n=R.count()), summed(Global(every="10 s"), n=R.count()), "form"),
    "another time": (
        summed(Tumbling("10 s"), n=R.count()),
        summed(Tumbling("10 s", at="also"), n=R.count()),
        "field of the time: at, and now has also",
    ),
    "14 inputs in another order": (ordered(A, B), ordered(B, A), "inputs: As, Bs, and now has Bs, As"),
    "order, where there was none": (ordered(A, on=False), ordered(A), "form"),
    "no order any more": (ordered(A), ordered(A, on=False), "form"),
    "a join of sides in another order": (joined(A, B), joined(B, A), "inputs"),
    "a join with the latest": (joined(A, B), joined(A, B, latest=True), "form"),
    "a join by another time": (joined(A, B), joined(A, B, at="also"), "fields of the times"),
    "steps in another order": (sequence(first, second), sequence(second, first), "steps"),
    "fewer steps": (sequence(first, second, first), sequence(first, second), "steps"),
    "15 a nested field renamed": (
        holding(place() | None),
        holding(place({"code": (int, 0), "town": (str, "")}) | None),
        "'zip'.*no longer has",
    ),
    "15 without a default": (
        holding(place() | None),
        holding(place({"code": int, **PLACE}) | None),
        "new field 'code'.*without a default",
    ),
    "15 in a list": (holding(list[place()], []), holding(list[place({"code": (int, 0)})], []), "'zip'"),
    "15 in a dict": (holding(dict[str, place()], {}), holding(dict[str, place({"code": (int, 0)})], {}), "'zip'"),
    "15 in an event that a join holds": (
        joined(struct(Event, "A", {"k": int, "at": datetime, "x": (int, 0)}), B),
        joined(struct(Event, "A", {"k": int, "at": datetime, "y": (int, 0)}), B),
        "'x'",
    ),
    "15 in an event held for its order": (
        ordered(struct(Event, "A", {"k": int, "at": datetime, "x": (int, 0)})),
        ordered(struct(Event, "A", {"k": int, "at": datetime, "y": (int, 0)})),
        "'x'",
    ),
    "15 in an event that a reducer keeps": (
        kept(struct(Event, "A", {"k": int, "at": datetime, "x": (int, 0)})),
        kept(struct(Event, "A", {"k": int, "at": datetime, "x": (str, "")})),
        r"x was stored as int and is now str",
    ),
    "15 another type of a nested field": (
        holding(place() | None),
        holding(place({"zip": (str, "")}) | None),
        r"zip was stored as int and is now str",
    ),
    "another type of what a reducer sums": (
        summed(Tumbling("10 s"), event=struct(Event, "A", {"k": int, "v": float, "at": datetime}), t=R.sum("v")),
        summed(Tumbling("10 s"), t=R.sum("v")),
        "the state of reducer t was stored as float and is now int",
    ),
    "how many of the top": (tops(1), tops(3), r"top\('v', 1\), and now has top=top\('v', 3\)"),
    "tags of classes by place": (
        holding(struct(Event, "X", {"a": (int, 0)}, tag="x", array_like=True) | None),
        holding(struct(Event, "X", {"a": (int, 0)}, array_like=True) | None),
        "tag|stored as",
    ),
    "a field in columns renamed": (
        columns(struct(Event, "S", {"seen": (int, 0)})),
        columns(struct(Event, "S", {"number": (int, 0)})),
        "'seen'",
    ),
    "times without a zone as a key": (
        keyed(Annotated[datetime, msgspec.Meta(tz=False)]),
        keyed(Annotated[datetime, msgspec.Meta(tz=True)]),
        "keyed by",
    ),
    "a reducer more in a query": (
        summed(Tumbling("10 s"), dialect="query", n=R.count()),
        summed(Tumbling("10 s"), dialect="query", n=R.count(), t=R.sum("v")),
        "known by its place",
    ),
    "another type of what a query reads": (
        summed(
            Tumbling("10 s"), dialect="query", event=struct(Event, "A", {"k": int, "v": float, "at": datetime}), t=R.sum("v")
        ),
        summed(Tumbling("10 s"), dialect="query", t=R.sum("v")),
        "known by its place",
    ),
    "a recursive type that goes elsewhere": (holding(One | None), holding(Two | None), "stored as"),
    "a field encoded by another name": (holding(place() | None), holding(place(rename="upper") | None), "'zip'"),
    "a default that is gone": (
        holding(place() | None),
        holding(place({"zip": int, "town": (str, "")}) | None),
        "had a default",
    ),
    "another tag": (holding(place(tag="a") | None), holding(place(tag="b") | None), "tag"),
    "closed events": (holding(place() | None), holding(place(forbid_unknown_fields=True) | None), "forbid_unknown_fields"),
    "another default, of those left out": (
        holding(place({"zip": (int, 0)}, omit_defaults=True) | None),
        holding(place({"zip": (int, 1)}, omit_defaults=True) | None),
        "omit_defaults",
    ),
    "16 an Enum in another order": (
        holding(colours("RED", "GREEN") | None),
        holding(colours("GREEN", "RED") | None),
        r"RED=1, GREEN=2.*GREEN=1, RED=2",
    ),
    "16 a member that is gone": (holding(colours("RED", "GREEN") | None), holding(colours("RED") | None), "GREEN"),
    "16 as a key": (keyed(colours("RED", "GREEN")), keyed(colours("GREEN", "RED")), "keyed by"),
    "16 in a nested event as a key": (keyed(place()), keyed(place(dict(reversed(PLACE.items())))), "keyed by"),
    "tuples turned round": (holding(Pair | None), holding(Turned | None), "by their place"),
    "a data class": (
        holding(make_dataclass("D", [("x", int, 0)]) | None),
        holding(make_dataclass("D", [("y", int, 0)]) | None),
        "'x'",
    ),
    "union members exchanged": (holding(either("X", "Y")), holding(either("Y", "X")), "tag|stored as"),
    "a tighter limit": (holding(int, 0), holding(Annotated[int, msgspec.Meta(ge=0)], 0), "ge=0"),
    "a value of a Literal that is gone": (holding(Literal["a", "b"] | None), holding(Literal["a"] | None), "stored as"),
    "a list to a set": (holding(list[int], []), holding(set[int], set()), r"list\[int\] and is now set\[int\]"),
    "float to int": (holding(float, 0.0), holding(int, 0), "stored as float and is now int"),
    "a field that is gone": (holding(int, 0), by(struct(ProcessingElement, "Keeps", {"y": (int, 0)})), r"field 'x' \(int\)"),
    "another key": (
        by(struct(ProcessingElement, "K", {})),
        by(struct(ProcessingElement, "K", {}), key="shop"),
        "keyed by k .int. and is now keyed by shop .str.",
    ),
    "int to float as a key": (keyed(int), keyed(float), "keyed by"),
    "no key any more": (holding(int, 0), by(lambda event: None, key=None), "no longer in the application, or keeps none"),
    "an element with another name": (
        holding(int, 0),
        by(struct(ProcessingElement, "Keeps", {"x": (int, 0)}), name="F"),
        "no longer",
    ),
    "timers by another clock": (timed("on_timer"), timed("on_timer", "event"), "processing, and now has event"),
    "a timer that is gone": (timed("on_timer"), by(struct(ProcessingElement, "Keeps", {"n": (int, 0)})), "clock of its timers"),
    "an interval where there was none": (
        by(struct(ProcessingElement, "K", {"n": (int, 0)})),
        timed("on_interval", every="1 s"),
        "on_interval",
    ),
    "a query's reducers": (
        summed(Tumbling("10 s"), dialect="query", n=R.count(), t=R.sum("v")),
        summed(Tumbling("10 s"), dialect="query", t=R.sum("v"), n=R.count()),
        "reducers",
    ),
    "a query's windows": (
        summed(Tumbling("10 s"), dialect="query", n=R.count()),
        summed(Tumbling("20 s"), dialect="query", n=R.count()),
        "10 s, and now has 20 s",
    ),
    "another dialect": (
        summed(Tumbling("10 s"), dialect="query", n=R.count()),
        summed(Tumbling("10 s"), n=R.count()),
        "kept its state by Spark and now keeps it in objects",
    ),
}


def stored(app: App) -> dict[str, Any]:
    """As the manifest keeps it."""
    schema: dict[str, Any] = json.loads(json.dumps(describe_state(app.topology())))
    return schema


@pytest.mark.parametrize("case", FITS)
def test_what_still_reads_right_goes_on(case: str) -> None:
    old, new = FITS[case]
    check_state_fits(stored(old), describe_state(new.topology()))


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_be_lost_or_taken_for_something_else_is_refused(case: str) -> None:
    old, new, said = REFUSED[case]
    with pytest.raises(IncompatibleStateError, match=said) as refused:
        check_state_fits(stored(old), describe_state(new.topology()))
    assert "--fresh" in str(refused.value)
    assert str(refused.value).startswith("Element E")


def handed_over(old: App, new: App, before: dict[str, Any], after: dict[str, Any]) -> list[Any]:
    """What new code makes of the state that old code has left."""
    one = TopologyDriver(old, partitions=1)
    one.batch(before)
    two = TopologyDriver(new, partitions=1)
    two._committed = one._committed
    two._committed.outputs.clear()
    two.batch(after)
    two.finish()
    return two.output("Out")


def at(second: float) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=second)


def test_what_is_refused_would_have_been_wrong() -> None:
    """Some of the refused, handed over all the same: what is stored is read, and means something else."""
    old, new, _ = REFUSED["11 reducers in another order"]
    [result, *_] = handed_over(old, new, {"As": [A(1, 100, at(1)), A(1, 200, at(1))]}, {"As": [A(1, 5, at(1))]})
    assert (result.n, result.t) != (3, 305)


def test_what_fits_is_read_right() -> None:
    old, new = FITS["a reducer at the end"]
    results = handed_over(old, new, {"As": [A(1, 100, at(1))]}, {"As": [A(1, 5, at(1))]})
    assert {(result.n, result.t) for result in results} == {(2, 5)}  # the sum counts from its beginning
