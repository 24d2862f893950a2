"""What a state holds behaves alike wherever micro-batches end, or it is a dead letter at once."""

from collections import Counter, OrderedDict, defaultdict
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import StrEnum
from zoneinfo import ZoneInfo

import msgspec
import pytest

from penstock import App, Event, ProcessingElement, Session, Tumbling, reducers
from penstock.testing import TopologyDriver


class Item(Event):
    k: str
    n: int


class Told(Event):
    what: str


class Colour(StrEnum):
    RED = "red"


class Point(msgspec.Struct):
    values: list[int] = []


class Dated(msgspec.Struct):
    at: datetime


EAST = timezone(timedelta(hours=9))
KEPT = {
    "dict": (dict[str, int], lambda: {"a": 1}, lambda held, n: held.update({str(n): n})),
    "time": (datetime, lambda: datetime(2026, 1, 1, tzinfo=UTC), None),
    "a zone that is UTC": (datetime, lambda: datetime(2026, 1, 1, tzinfo=ZoneInfo("UTC")), None),
    "naive": (datetime, lambda: datetime(2026, 1, 1), None),
    "whole offset": (time, lambda: time(1, tzinfo=EAST), None),
    "enum": (Colour, lambda: Colour.RED, None),
    "set": (set[int], lambda: {1}, lambda held, n: held.add(n)),
    "struct": (Point, lambda: Point([1]), lambda held, n: held.values.append(n)),
    "lists": (list[list[int]], lambda: [[0], [0]], lambda held, n: held[0].append(n)),
    "tuples": (tuple[int, ...], lambda: (0, 1), None),
    "one list": (list[list[str]], lambda: [["a"]] * 2, None),
    "events": (list[Item], lambda: [Item("a", 1)] * 2, None),
}
REFUSED = {
    "Counter": (dict[str, int], Counter, lambda held, n: held.update([str(n)]), "a Counter comes back as dict"),
    "defaultdict": (dict[str, int], lambda: defaultdict(int), lambda held, n: held[str(n)], "a defaultdict comes back"),
    "OrderedDict": (dict[str, int], lambda: OrderedDict(a=1, b=2), lambda held, n: held.move_to_end("a"), "a OrderedDict"),
    "offset": (datetime, lambda: datetime(2026, 1, 1, tzinfo=EAST), None, "the time 2026-01-01 00:00:00+09:00 comes back"),
    "within": (list[datetime], lambda: [datetime(2026, 1, 1, tzinfo=EAST)], None, "the time 2026-01-01 00:00:00+09:00 comes"),
    "named zone": (time, lambda: time(1, tzinfo=ZoneInfo("Asia/Tokyo")), None, "the time 01:00:00 comes back as 01:00:00"),
    "odd offset": (
        time,
        lambda: time(1, tzinfo=timezone(timedelta(seconds=3601))),
        None,
        "the time 01:00:00+01:00:01 comes back as",
    ),
    "text": (str, lambda: Colour.RED, None, "a Colour comes back as str"),
    "texts": (dict[str, str], lambda: {Colour.RED: "a"}, None, "a Colour comes back as str"),
    "set of texts": (set[str], lambda: {Colour.RED}, None, "a Colour in a set comes back as another class"),
    "time in a set": (set[datetime], lambda: {datetime(2026, 1, 1, tzinfo=EAST)}, None, "in a set comes back with another"),
    "in structs": (list[Dated], lambda: [Dated(datetime(2026, 1, 1, tzinfo=EAST))], None, "the time 2026-01-01 00:00:00+09:00"),
    "deep": (dict[str, list[str]], lambda: {"a": ["b", Colour.RED]}, None, "a Colour comes back as str"),
    "tuple": (list[int], lambda: (0, 1), None, "a tuple comes back as list"),
}


def driven(kind, made, change, cuts):
    class Keeps(ProcessingElement):
        held: kind | None = None

        def on_event(self, item):
            if self.held is None:
                self.held = made()
            if change is not None:
                change(self.held, item.n)
            yield told(repr(getattr(self.held, "hour", self.held)))

    app = App("cut")
    items, told = app.source("Items", Item), app.stream("Told", Told)
    app.element(items, key="k", emits=told)(Keeps)
    app.sink("Out", told)
    driver = TopologyDriver(app, dead_letters=True)
    for batch in cuts:
        driver.batch({"Items": [Item("a", n) for n in batch]})
    return [one.what for one in driver.output("Out")], [letter["error"] for letter in driver.dead_letters]


CUTS = ([[0, 1, 2, 3]], [[0], [1], [2], [3]], [[0, 1], [2, 3]])


@pytest.mark.parametrize("name", KEPT)
def test_what_is_kept_behaves_alike(name):
    results = [driven(*KEPT[name], cuts) for cuts in CUTS]
    assert results[0] == results[1] == results[2]
    assert (len(results[0][0]), results[0][1]) == (4, [])


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_come_back_as_something_else_is_a_dead_letter_at_once(name):
    kind, made, change, says = REFUSED[name]
    for cuts in CUTS:
        results, letters = driven(kind, made, change, cuts)
        assert results == []
        assert len(letters) == 4
        assert all(says in letter for letter in letters)


def test_an_integer_stands_for_another_number():
    for cuts in CUTS:
        assert driven(set[float], lambda: {1}, None, cuts)[1] == []
    for kind in (float, Decimal):
        for cuts in CUTS:
            results, letters = driven(kind, lambda: 0, None, cuts)
            assert letters == []
            assert {float(one.strip("Decimal()'")) for one in results} == {0.0}


@pytest.mark.parametrize("window", [Tumbling("10 s"), Session("10 s")])
def test_reducers_may_keep_the_list_of_one_event(window):
    class Tagged(Event):
        k: str
        tags: list[str]
        at: datetime

    class Both(Event):
        k: str
        first: list[str]
        last: list[str]

    app = App("both")
    tagged = app.source("Tagged", Tagged, event_time="at")
    both = app.stream("Both", Both)
    app.aggregate(tagged, key="k", window=window, into=both, first=reducers.first("tags"), last=reducers.last("tags"))
    app.sink("Out", both)
    driver = TopologyDriver(app)
    for second in range(3):
        driver.batch({"Tagged": [Tagged("a", [str(second)], datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC))]})
    driver.finish()
    assert driver.output("Out") == [Both("a", ["0"], ["2"])]
