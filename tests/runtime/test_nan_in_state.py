"""State with NaN, which equals nothing, is kept like any other; and what is of a subclass is still refused."""

import math
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import App, Event, ProcessingElement, Tumbling
from penstock import reducers as R
from penstock.runtime.kept import is_same
from penstock.testing import TopologyDriver

START = datetime(2026, 1, 1, tzinfo=UTC)


class Row(Event):
    key: str
    at: datetime = START
    user: int = 0
    v: float = 0.0
    d: Decimal = Decimal(0)
    tags: list[str] = []


class Out(Event):
    key: str
    users: int
    high: float | None = None
    last: Decimal | None = None


def driver_of(**reducers):
    app = App("a")
    rows, outs = app.source("Rows", Row, event_time="at"), app.stream("Outs", Out)
    app.aggregate(rows, key="key", window=Tumbling("1 min"), into=outs, **reducers)
    app.sink("Out", outs)
    return TopologyDriver(app, dead_letters=True)


def reducers(**others):
    return {"users": R.distinct("user"), "high": R.max("v"), "last": R.last("d"), **others}


@pytest.mark.parametrize("user", [(0, 32, 40, 64), (64, 40, 32, 0), (1, 2, 3, 4)])
@pytest.mark.parametrize("odd", [math.nan, 1.0])
@pytest.mark.parametrize("number", ["NaN", "sNaN", "1"])
@pytest.mark.parametrize("each", [1, 4])
def test_an_aggregate_with_nan_loses_nothing(user, odd, number, each):
    driver = driver_of(**reducers())
    rows = [Row("a", START, one, odd, Decimal(number)) for one in user]
    for first in range(0, 4, each):
        driver.batch({"Rows": rows[first : first + each]})
    driver.finish()
    assert driver.dead_letters == []
    [out] = driver.output("Out")
    assert (out.users, str(out.last)) == (4, number)


def test_an_element_with_nan_of_its_own_loses_nothing():
    app = App("a")
    rows, outs = app.source("Rows", Row), app.stream("Outs", Out)

    @app.element(rows, key="key", emits=outs)
    class Mine(ProcessingElement):
        total: float = 0
        last: float = math.nan
        users: set[int] = set()
        odd: list[tuple[float, int]] = []

        def on_event(self, row):
            self.users.add(row.user)
            self.odd.append((math.nan, row.user))
            yield outs(self.key, len(self.users))

    app.sink("Out", outs)
    driver = TopologyDriver(app, dead_letters=True)
    for users in ((0, 32), (40, 64)):
        driver.batch({"Rows": [Row("a", user=user) for user in users]})
    assert driver.dead_letters == []
    assert [out.users for out in driver.output("Out")] == [1, 2, 3, 4]


@dataclass
class Pair:
    one: float
    other: object


class Held(msgspec.Struct, frozen=True):
    one: float
    more: tuple[float, ...] = ()


class Derived(Held, frozen=True):
    pass


scalars = st.one_of(st.integers(), st.floats(), st.text(), st.none(), st.booleans(), st.decimals(), st.binary())
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner),
        st.tuples(inner, inner),
        st.dictionaries(st.text(), inner),
        st.builds(Pair, st.floats(), inner),
        st.builds(Held, st.floats(), st.tuples(st.floats())),
        st.lists(inner).map(deque),
        st.frozensets(st.one_of(st.integers(), st.floats(), st.tuples(st.floats(), st.text()))),
    ),
    max_leaves=12,
)


def anew(value):
    """A value that is equal, of other objects: of NaN, too."""
    if isinstance(value, float):
        return float(repr(value))
    if isinstance(value, Decimal):
        return Decimal(str(value))
    if isinstance(value, dict):
        return {name: anew(inner) for name, inner in value.items()}
    if isinstance(value, frozenset):
        return frozenset(map(anew, reversed([*value])))
    if isinstance(value, Pair):
        return Pair(anew(value.one), anew(value.other))
    if isinstance(value, Held):
        return Held(anew(value.one), anew(value.more))
    return type(value)(map(anew, value)) if isinstance(value, list | tuple | deque) else value


@given(values)
def test_a_value_is_the_same_when_it_is_made_anew(value):
    assert is_same(value, anew(value))


@given(values, values)
def test_values_that_differ_are_not_the_same(one, other):
    if repr(one) != repr(other) and not _equal(one, other):
        assert not is_same(one, other) or "nan" in repr(one).lower()


def _equal(one, other):
    try:
        return one == other
    except ArithmeticError:
        return False


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (math.nan, 1.0),
        (math.nan, Decimal("NaN")),
        (Decimal("NaN"), Decimal("sNaN")),
        ([math.nan], [math.nan, math.nan]),
        ({math.nan, 1}, {math.nan, 2}),
        ({"a": math.nan}, {"b": math.nan}),
        (Held(math.nan), Derived(math.nan)),
        (Pair(math.nan, 1), Pair(math.nan, 2)),
        ((math.nan,), [math.nan]),
    ],
)
def test_nan_does_not_make_all_things_the_same(one, other):
    assert not is_same(one, other)
    assert not is_same(other, one)
