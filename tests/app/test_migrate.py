"""State that today's code cannot read goes on through the element's `migrate`: a grid of shapes, in the driver."""

import enum
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from penstock import App, Event, ProcessingElement, Tumbling
from penstock.errors import IncompatibleStateError, StateError, TopologyError
from penstock.testing import TopologyDriver

AT = datetime(2026, 1, 1, 12, 30, tzinfo=UTC)


class Asked(Event):
    k: str
    put: int = 0


class Told(Event):
    k: str
    held: str


class Place(Event):
    zip: int
    town: str = ""


class Site(Event):
    code: str
    town: str = ""


@dataclass
class Size:
    wide: int
    high: int


class Old(enum.Enum):
    RED = 1
    GREEN = 2


class New(enum.Enum):
    GREEN = "green"
    RED = "red"


def version(fields: dict[str, tuple[Any, Any]], migrate: Any = None, put: Any = None, **config: Any) -> App:
    """An application with one element, which tells its state of every event, and has it put in where that asks so."""
    app = App("app")
    asked, told = app.source("Asked", Asked), app.stream("Told", Told)

    def on_event(self: Any, event: Asked) -> Any:
        if event.put:
            for name, value in put.items():
                setattr(self, name, value)
        return told(self.key, repr([getattr(self, name) for name in fields]))

    space: dict[str, Any] = {"__module__": __name__, "on_event": on_event}
    space["__annotations__"] = {name: kind for name, (kind, _) in fields.items()}
    space |= {name: default for name, (_, default) in fields.items()}
    if migrate is not None:
        space["migrate"] = classmethod(migrate)
    prototype = type(ProcessingElement)("Keeps", (ProcessingElement,), space, **config)
    app.element(asked, key="k", emits=told, name="E")(prototype)
    app.sink("Out", told)
    return app


def renamed(to: str, of: str) -> Any:
    return lambda cls, old: cls(**{to: old[of]})


CASES: dict[str, tuple[tuple[Any, Any, Any], tuple[str, Any, Any], Any, Any]] = {
    "renamed": ((int, 0, 7), ("y", int, 0), renamed("y", "x"), 7),
    "int to text": ((int, 0, 7), ("x", str, ""), lambda cls, old: cls(x=f"{old['x']:03d}"), "007"),
    "text to int": ((str, "", "7"), ("x", int, 0), lambda cls, old: cls(x=int(old["x"])), 7),
    "float to int": ((float, 0.0, 7.6), ("x", int, 0), lambda cls, old: cls(x=round(old["x"])), 8),
    "seconds to a duration": (
        (int, 0, 90),
        ("x", timedelta | None, None),
        lambda cls, old: cls(x=timedelta(seconds=old["x"])),
        timedelta(seconds=90),
    ),
    "a time to a number": (
        (datetime | None, None, AT),
        ("x", float, 0.0),
        lambda cls, old: cls(x=old["x"].timestamp()),
        AT.timestamp(),
    ),
    "a time renamed": ((datetime | None, None, AT), ("at", datetime | None, None), renamed("at", "x"), AT),
    "a duration renamed": (
        (timedelta | None, None, timedelta(hours=1, microseconds=1)),
        ("y", timedelta | None, None),
        renamed("y", "x"),
        timedelta(hours=1, microseconds=1),
    ),
    "a decimal to cents": (
        (Decimal, Decimal(0), Decimal("1.25")),
        ("x", int, 0),
        lambda cls, old: cls(x=int(Decimal(old["x"]) * 100)),
        125,
    ),
    "a UUID to text": (
        (UUID | None, None, UUID(int=5)),
        ("x", str, ""),
        lambda cls, old: cls(x=str(old["x"])),
        str(UUID(int=5)),
    ),
    "bytes to text": ((bytes, b"", b"abc"), ("x", str, ""), lambda cls, old: cls(x=old["x"].decode()), "abc"),
    "None, no longer allowed": (
        (int | None, 5, None),
        ("x", int, 0),
        lambda cls, old: cls(x=-1 if old["x"] is None else old["x"]),
        -1,
    ),
    "an enumeration in another order": (
        (Old | None, None, Old.GREEN),
        ("x", New | None, None),
        lambda cls, old: cls(x=New[Old(old["x"]).name]),
        New.GREEN,
    ),
    "a list to its sum": (
        (list[int], [], [1, 2, 3]),
        ("x", float | str, 0.0),
        lambda cls, old: cls(x=float(sum(old["x"]))),
        6.0,
    ),
    "a list to a set": ((list[int], [], [2, 1, 2]), ("x", set[int], set()), lambda cls, old: cls(x=set(old["x"])), {1, 2}),
    "a set to a list": ((set[int], set(), {2, 1}), ("x", list[int], []), lambda cls, old: cls(x=sorted(old["x"])), [1, 2]),
    "a dict to pairs": (
        (dict[str, int], {}, {"a": 1}),
        ("x", list[tuple[str, int]], []),
        lambda cls, old: cls(x=list(old["x"].items())),
        [("a", 1)],
    ),
    "an event to another": (
        (Place | None, None, Place(8001, "Z")),
        ("x", Site | None, None),
        lambda cls, old: cls(x=Site(str(old["x"]["zip"]), old["x"]["town"])),
        Site("8001", "Z"),
    ),
    "events in a list": (
        (list[Place], [], [Place(1), Place(2)]),
        ("x", list[Site], []),
        lambda cls, old: cls(x=[Site(str(one["zip"])) for one in old["x"]]),
        [Site("1"), Site("2")],
    ),
    "a data class to a tuple": (
        (Size | None, None, Size(2, 3)),
        ("x", tuple[int, int], (0, 0)),
        lambda cls, old: cls(x=(old["x"]["wide"], old["x"]["high"])),
        (2, 3),
    ),
    "gone": ((int, 0, 7), ("y", int, 1), lambda cls, old: cls(), 1),
}


def told(driver: TopologyDriver, *keys: str) -> list[str]:
    before = len(driver.output("Out"))
    driver.batch({"Asked": [Asked(key) for key in keys]})
    return [event.held for event in driver.output("Out")[before:]]


@pytest.mark.parametrize("by_place", [False, True], ids=["by name", "by place"])
@pytest.mark.parametrize("case", CASES)
def test_state_of_another_shape_is_migrated(case: str, by_place: bool) -> None:
    (kind, default, value), (name, now, plain), migrate, expected = CASES[case]
    old = version({"x": (kind, default)}, put={"x": value}, array_like=by_place)
    driver = TopologyDriver(old, partitions=1)
    driver.batch({"Asked": [Asked("a", 1), Asked("b", 1)]})
    if not (by_place and case == "renamed"):
        with pytest.raises(IncompatibleStateError, match=r"^Element E: .*migrate\(old\).*--fresh"):
            driver.upgraded(version({name: (now, plain)}, array_like=by_place))
    later = driver.upgraded(version({name: (now, plain)}, migrate, array_like=by_place))
    assert told(later, "a", "new") == [repr([expected]), repr([plain])]
    assert told(later, "a", "b") == [repr([expected])] * 2


def test_what_lay_untouched_over_several_versions_is_migrated_from_what_it_was() -> None:
    first = version({"x": (int, 0)}, put={"x": 7})
    second = version({"text": (str, "")}, lambda cls, old: cls(text=str(old["x"])))
    third = version({"texts": (list[str], [])}, lambda cls, old: cls(texts=[str(old["x"] if "x" in old else old["text"])]))
    driver = TopologyDriver(first, partitions=1)
    driver.batch({"Asked": [Asked("a", 1), Asked("b", 1)]})
    driver = driver.upgraded(second)
    assert told(driver, "a") == ["['7']"]
    driver = driver.upgraded(second).upgraded(third)  # a start of the same code in between is no migration
    assert told(driver, "a", "b", "c") == ["[['7']]", "[['7']]", "[[]]"]
    with pytest.raises(
        IncompatibleStateError, match=r"may still lie as Keeps.*migrate\(old\)"
    ):  # some may lie as the first has stored them
        driver.upgraded(version({"texts": (list[str], [])}))
    back = driver.upgraded(version({"x": (int, 0)}, lambda cls, old: cls(x=int(old["texts"][0]))))
    assert told(back, "a", "b") == ["[7]", "[7]"]


def test_a_field_that_fits_comes_as_its_type() -> None:
    old = version({"size": (Size | None, None), "x": (int, 0)}, put={"size": Size(1, 2), "x": 3})
    seen: list[Any] = []

    def migrate(cls: Any, old: Any) -> Any:
        seen.append(old)
        return cls(size=old["size"], y=old["x"])

    driver = TopologyDriver(old, partitions=1)
    driver.batch({"Asked": [Asked("a", 1)]})
    assert told(driver.upgraded(version({"size": (Size | None, None), "y": (int, 0)}, migrate)), "a") == [repr([Size(1, 2), 3])]
    assert seen == [{"size": Size(1, 2), "x": 3}]


@pytest.mark.parametrize(
    ("migrate", "said"),
    [
        (lambda cls, old: old["gone"], "KeyError: 'gone'"),
        (lambda cls, old: old, "return a Keeps"),
        (lambda cls, old: cls(y="three"), "Expected `int`"),
        (lambda cls, old: None, "it returned None"),
    ],
)
def test_a_migration_that_fails_stops_the_run_and_leaves_the_state(migrate: Any, said: str) -> None:
    driver = TopologyDriver(version({"x": (int, 0)}, put={"x": 7}), partitions=1, dead_letters=True)
    driver.batch({"Asked": [Asked("a", 1)]})
    later = driver.upgraded(version({"y": (int, 0)}, migrate))
    with pytest.raises(StateError, match=f"key 'a'.*{said}"):
        told(later, "a")
    assert later.dead_letters == []
    assert told(later, "b") == ["[0]"]
    assert told(driver.upgraded(version({"y": (int, 0)}, renamed("y", "x"))), "a") == ["[7]"]


def test_what_was_to_be_migrated_is_migrated_even_where_it_would_fit_by_now() -> None:
    def migrate(cls: Any, old: Any) -> Any:
        return cls(y=old["x"])

    driver = TopologyDriver(version({"x": (int, 0)}, put={"x": 7}), partitions=1)
    driver.batch({"Asked": [Asked("a", 1), Asked("b", 1)]})
    driver = driver.upgraded(version({"y": (int, 0)}, migrate))
    assert told(driver, "a") == ["[7]"]
    with pytest.raises(IncompatibleStateError, match="may still lie as"):
        driver.upgraded(version({"y": (int, 0), "x": (int, 0)}))
    assert told(driver.upgraded(version({"y": (int, 0), "x": (int, 0)}, migrate)), "a", "b") == ["[7, 0]", "[7, 0]"]


def test_defaults_that_were_left_out_are_there_and_tags_are_not() -> None:
    left_out = TopologyDriver(version({"x": (int, 5), "z": (int, 0)}, put={"z": 2}, omit_defaults=True), partitions=1)
    tagged = TopologyDriver(version({"x": (str, "")}, put={"x": "seven"}, array_like=True, tag=True), partitions=1)
    named = TopologyDriver(version({"x": (str, "")}, put={"x": "seven"}, tag=True), partitions=1)
    seen: list[Any] = []

    def migrate(cls: Any, old: Any) -> Any:
        seen.append(old)
        return cls()

    for driver, fields, config in (
        (left_out, {"x": (int, 9), "z": (int, 0)}, {"omit_defaults": True}),
        (tagged, {"y": (int, 0)}, {"array_like": True, "tag": True}),
        (named, {"y": (int, 0)}, {}),
    ):
        driver.batch({"Asked": [Asked("a", 1)]})
        told(driver.upgraded(version(fields, migrate, **config)), "a")
    assert seen == [{"x": 5, "z": 2}, {"x": "seven"}, {"x": "seven"}]


def test_what_cannot_be_read_without_its_type_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cell(Event, frozen=True):
        row: int

    old = version({"cells": (dict[Cell, int], {}), "n": (int, 0)}, put={"cells": {Cell(1): 2}, "n": 3})
    driver = TopologyDriver(old, partitions=1)
    driver.batch({"Asked": [Asked("a", 1)]})
    later = driver.upgraded(version({"m": (int, 0)}, lambda cls, old: cls(m=old["n"] + ("cells" in old))))
    assert told(later, "a") == ["[3]"]


def test_too_large_a_state_is_refused_before_it_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = TopologyDriver(version({"x": (int, 0)}, put={"x": 7}), partitions=1)
    driver.batch({"Asked": [Asked("a", 1)]})
    monkeypatch.setattr("penstock.runtime.earlier.LARGEST_STATE", 100)
    with pytest.raises(StateError, match="at most 100 are kept"):
        told(driver.upgraded(version({"y": (str, "")}, lambda cls, old: cls(y="y" * 200))), "a")


def test_what_has_expired_is_not_migrated() -> None:
    def kept(field: str, migrate: Any = None) -> App:
        app = App("app")
        asked, out = app.source("Asked", Asked), app.stream("Told", Told)
        space: dict[str, Any] = {
            "__module__": __name__,
            "__annotations__": {field: int},
            field: 0,
            **({} if migrate is None else {"migrate": classmethod(migrate)}),
            "on_event": lambda self, event: out(self.key, str(getattr(self, field))),
        }
        app.element(asked, key="k", emits=out, name="E", expires="1 min")(
            type(ProcessingElement)("Kept", (ProcessingElement,), space)
        )
        app.sink("Out", out)
        return app

    driver = TopologyDriver(kept("x"), partitions=1)
    driver.batch({"Asked": [Asked("a")]})
    later = driver.upgraded(kept("y", lambda cls, old: old["gone"]))
    later.advance(1000)
    assert told(later, "a") == ["0"]


@pytest.mark.parametrize("how", [{"window": Tumbling("10 s")}, {"ordered": True}], ids=["window", "ordered"])
def test_one_that_would_never_be_called_is_refused(how: Any) -> None:
    class Timed(Event):
        k: str
        at: datetime

    app = App("app")

    class Keeps(ProcessingElement):
        x: int = 0

        @classmethod
        def migrate(cls, old: Any) -> Any:
            return cls()

        def on_event(self, event: Timed) -> None:
            self.x += 1

    with pytest.raises(TopologyError, match="migrate, which would never be called"):
        app.element(app.source("Timed", Timed, event_time="at"), key="k", name="E", **how)(Keeps)


def test_one_that_is_no_classmethod_is_refused() -> None:
    app = App("app")

    class Keeps(ProcessingElement):
        x: int = 0

        def on_event(self, event: Asked) -> None:
            self.x += 1

        def migrate(self, old: Any) -> Any:  # type: ignore[override]
            return self

    with pytest.raises(TopologyError, match=r"migrate makes an instance.*@classmethod"):
        app.element(app.source("Asked", Asked), key="k", name="E")(Keeps)


def test_timers_and_expiry_of_old_instances_stand() -> None:
    def waiting(field: str, migrate: Any = None) -> App:
        app = App("app")
        asked, out = app.source("Asked", Asked), app.stream("Told", Told)

        def on_event(self: Any, event: Asked) -> None:
            setattr(self, field, event.put)
            self.set_timer(after="10 s")

        def on_timer(self: Any) -> Any:
            return out(self.key, str(getattr(self, field)))

        space = {"__module__": __name__, "__annotations__": {field: int}, field: 0, "on_event": on_event, "on_timer": on_timer}
        space |= {} if migrate is None else {"migrate": classmethod(migrate)}
        app.element(asked, key="k", emits=out, name="E", expires="1 min")(
            type(ProcessingElement)("Waits", (ProcessingElement,), space)
        )
        app.sink("Out", out)
        return app

    driver = TopologyDriver(waiting("x"), partitions=1)
    driver.batch({"Asked": [Asked("a", 5), Asked("b", 6)]})
    later = driver.upgraded(waiting("y", renamed("y", "x")))
    later.advance(11)
    later.batch()
    assert sorted(event.held for event in later.output("Out")) == ["5", "6"]
    later.advance(100)
    later.batch({"Asked": [Asked("c", 1)]})
    later.batch()
    assert later.elements["E"].instances == {0: 1}
