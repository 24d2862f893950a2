"""What cannot be right in an aggregate, a window, a join or a lookup is refused where it is declared, and nothing else."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Literal
from uuid import UUID

import msgspec
import pytest

from penstock import App, Count, Event, Session, Sliding, Tumbling
from penstock import reducers as R
from penstock.errors import ConfigurationError, TopologyError
from penstock.testing import TopologyDriver

START = datetime(2026, 1, 1, tzinfo=UTC)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Place(Event):
    name: str


class Ranked(Event, order=True):
    rank: int


class Holding(Event):
    names: list[str]


class Row(Event):
    key: str
    at: datetime
    i: int = 0
    f: float = 0.0
    d: Decimal = Decimal(0)
    b: bool = False
    s: str = ""
    colour: Colour = Colour.RED
    level: Level = Level.LOW
    place: Place = Place("")
    ranked: Ranked = Ranked(0)
    holding: Holding = msgspec.field(default_factory=lambda: Holding([]))
    some: int | None = None
    list_of: list[int] = []
    table: dict[str, int] = {}


def declared(kind, reducer, *, key="key", key_type=str, **spans):
    out = type("Out", (Event,), {"__annotations__": {key: key_type, **spans, "v": kind}})
    app = App("a")
    rows, outs = app.source("Rows", Row, event_time="at"), app.stream("Outs", out)
    app.aggregate(rows, key=key, window=Tumbling("10 s"), into=outs, v=reducer)
    app.sink("Out", outs)
    app.topology()
    return app


RIGHT = [
    (int, R.count()),
    (float, R.count()),
    (int | None, R.sum("i")),
    (float, R.sum("f")),
    (Decimal, R.sum("d")),
    (float, R.mean("i")),
    (float | None, R.mean("f")),
    (int | None, R.max("some")),
    (int, R.max("level")),
    (Level, R.min("level")),
    (str, R.first("s")),
    (Colour, R.last("colour")),
    (str, R.last("colour")),
    (Literal["", "a"], R.first("s")),
    (Place, R.last("place")),
    (Row, R.last()),
    (Row | None, R.first()),
    (list[Row], R.top(2, by="ranked")),
    (list[int], R.collect("i")),
    (list[list[int]], R.collect("list_of")),
    (list[int], R.max("list_of")),
    (Ranked, R.max("ranked")),
    (int, R.distinct("place")),
    (int, R.distinct("colour")),
    (datetime, R.max("at")),
]


@pytest.mark.parametrize(("kind", "reducer"), RIGHT, ids=str)
def test_what_can_be_right_is_taken_and_gives_results(kind, reducer):
    driver = TopologyDriver(declared(kind, reducer), dead_letters=True)
    driver.batch({"Rows": [Row("a", START), Row("a", START)]})
    driver.finish()
    assert (len(driver.output("Out")), driver.dead_letters) == (1, [])


class Sized(Enum):
    """Texts with an order of their own."""

    SMALL = "small"
    LARGE = "large"

    def __lt__(self, other):
        return self is Sized.SMALL and other is Sized.LARGE

    def __gt__(self, other):
        return other < self


class Ordering(Event):
    rank: int

    def __lt__(self, other):
        return self.rank < other.rank

    def __gt__(self, other):
        return self.rank > other.rank


class Hashing(Event):
    names: list[str]

    def __hash__(self):
        return hash(tuple(self.names))


class Special(Event):
    key: Annotated[str, msgspec.Meta(pattern="^[A-Z]{3}$")]
    at: datetime
    month: Annotated[int, msgspec.Meta(ge=1, le=12)]
    size: Sized
    ordering: Ordering
    hashing: Hashing


SPECIAL = [
    (Annotated[int, msgspec.Meta(ge=1, le=1000)], R.count()),
    (Annotated[float, msgspec.Meta(ge=1, le=12)], R.mean("month")),
    (Annotated[int, msgspec.Meta(ge=1, le=12)], R.max("month")),
    (Annotated[str, msgspec.Meta(pattern="^[A-Z]{3}$")], R.last("key")),
    (Literal["EUR", "USD"], R.first("key")),
    (Literal[7, 8], R.first("month")),
    (Annotated[int, msgspec.Meta(ge=5, le=100)], R.fold(5, lambda state, row: state)),
    (Sized, R.max("size")),
    (Ordering, R.min("ordering")),
    (int, R.distinct("hashing")),
    (int, R.fold(0, lambda state, row: 1, kind=int | str)),
]


@pytest.mark.parametrize(("kind", "reducer"), SPECIAL, ids=str)
def test_what_some_values_fit_is_taken(kind, reducer):
    out = type("Out", (Event,), {"__annotations__": {"key": Annotated[str, msgspec.Meta(pattern="^[A-Z]{3}$")], "v": kind}})
    app = App("a")
    rows, outs = app.source("Rows", Special, event_time="at"), app.stream("Outs", out)
    app.aggregate(rows, key="key", window=Tumbling("10 s"), into=outs, v=reducer)
    app.sink("Out", outs)
    driver = TopologyDriver(app, dead_letters=True)
    row = Special("EUR", START, 7, Sized.LARGE, Ordering(1), Hashing(["a"]))
    driver.batch({"Rows": [row, msgspec.structs.replace(row, size=Sized.SMALL, ordering=Ordering(2))]})
    driver.finish()
    assert (len(driver.output("Out")), driver.dead_letters) == (1, [])


@pytest.mark.parametrize("kind", [UUID, date, Decimal, datetime, Colour, Literal["a", "b"]], ids=str)
def test_a_text_may_be_the_text_of_another_type(kind):
    declared(kind, R.first("s"))


@pytest.mark.parametrize(
    ("kind", "reducer"),
    [
        (str, R.count()),
        (int, R.mean("i")),
        (str, R.max("i")),
        (list[str], R.collect("i")),
        (int, R.last()),
        (int, R.last("place")),
        (bool, R.sum("i")),
        (datetime, R.sum("i")),
        (Colour, R.first("i")),
        (list[int], R.top(1, by="i")),
        (Place, R.distinct("s")),
    ],
    ids=str,
)
def test_a_field_that_no_result_fits_is_refused(kind, reducer):
    with pytest.raises(TopologyError, match=r"Out.v is of type .*, and what .* gives is of type .*; declare the field as that"):
        declared(kind, reducer)


def test_keys_and_spans_of_another_type_are_refused():
    with pytest.raises(TopologyError, match="Out.key is of type int, and the key of Rows is of type str"):
        declared(int, R.count(), key_type=int)
    with pytest.raises(TopologyError, match="Out.start is of type int, and the span of a window is of type datetime"):
        declared(int, R.count(), start=int)
    declared(int, R.count(), start=datetime, end=datetime)


@pytest.mark.parametrize("field", ["colour", "place", "holding", "table"])
@pytest.mark.parametrize("make", [R.min, R.max, lambda field: R.top(2, by=field)], ids=["min", "max", "top"])
def test_values_without_an_order_are_not_put_in_order(field, make):
    with pytest.raises(TopologyError, match="of Row, where values have no order"):
        declared(str, make(field))


@pytest.mark.parametrize("field", ["holding", "list_of", "table"])
def test_values_that_no_set_takes_are_not_counted(field):
    with pytest.raises(TopologyError, match="name a field of single values"):
        declared(int, R.distinct(field))


@pytest.mark.parametrize("reducer", [R.first, R.last, R.collect])
@pytest.mark.parametrize("field", [["i"], {}, "nothing", 5], ids=repr)
def test_a_field_of_a_reducer_is_a_name(reducer, field):
    with pytest.raises(TopologyError, match="Row has no field"):
        declared(int, reducer(field))


def test_a_reducer_is_not_called_as_the_key():
    app = App("a")
    out = type("Out", (Event,), {"__annotations__": {"i": int, "v": int}})
    outs = app.stream("Outs", out)
    with pytest.raises(TopologyError, match="i is both of the key and a reducer"):
        app.aggregate(
            app.source("Rows", Row, event_time="at"), key="i", window=Tumbling("1 min"), into=outs, v=R.count(), i=R.sum("i")
        )


# --- durations -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [-1, "banana", float("nan"), "-1 s", "99999999 d", 10**400])
@pytest.mark.parametrize(
    "make", [lambda allowed: Session("10 s", allowed=allowed), lambda allowed: Tumbling("10 s", allowed=allowed)]
)
def test_a_lateness_that_is_none_is_refused_at_once(bad, make):
    with pytest.raises(ConfigurationError):
        make(bad)


@pytest.mark.parametrize("make", [Tumbling, Session, lambda size: Sliding(size, "1 day")])
def test_a_window_beyond_all_times_is_refused(make):
    with pytest.raises(ConfigurationError, match="give 1,000 years at most"):
        make("99999999 d")


def test_an_interval_of_timedeltas_reaches_back():
    class Other(Event):
        key: str
        at: datetime

    app = App("a")
    rows, others = app.source("Rows", Row, event_time="at"), app.source("Others", Other, event_time="at")
    pairs = app.stream("Pairs", Other)

    @app.join(rows, others, key="key", within=(timedelta(seconds=-5), timedelta(seconds=1)), emits=pairs)
    def pair(row, other):
        yield pairs(row.key, other.at)

    app.sink("Out", pairs)
    driver = TopologyDriver(app)
    driver.batch({"Rows": [Row("a", START)], "Others": [Other("a", START + timedelta(seconds=s)) for s in (-6, -5, 1, 2)]})
    assert [(pair.at - START).total_seconds() for pair in driver.output("Out")] == [-5, 1]


def test_an_optional_field_is_looked_up(tmp_path):
    class Known(Event):
        some: int
        name: str

    (tmp_path / "t.csv").write_text("some,name\n1,one\n")
    app = App("a")
    rows, named = app.source("Rows", Row), app.stream("Named", Place)

    @app.lookup(rows, f"csv:{tmp_path}/t.csv", key="some", row=Known, emits=named)
    def look(row, known):
        yield named("nobody" if known is None else known.name)

    app.sink("Out", named)
    driver = TopologyDriver(app)
    driver.batch({"Rows": [Row("a", START, some=1), Row("a", START, some=None)]})
    assert driver.output("Out") == [Place("one"), Place("nobody")]


# --- what depends on the cut ------------------------------------------------------------------------------------------


class Version(Event):
    key: str
    at: datetime
    v: int


class Counted(Event):
    key: str
    start: datetime
    end: datetime
    n: int


class Made(Event):
    start: datetime
    v: int | None


def joined(way, field):
    """An application with a join, or a removal of duplicates, behind windows; it goes by one end of these."""
    app = App("a")
    rows, versions = app.source("Rows", Row, event_time="at"), app.source("Versions", Version, event_time="at")
    counted, made = app.stream("Counted", Counted), app.stream("Made", Made)
    app.aggregate(rows, key="key", window=Tumbling("10 s"), into=counted, n=R.count())
    if way == "latest":

        @app.join_latest(counted, versions, key="key", at=[field, None], emits=made, name="Behind")
        def latest(window, version):
            yield made(window.start, version and version.v)

        app.sink("Out", made)
    elif way == "interval":

        @app.join(counted, versions, key="key", within=("-2 s", "2 s"), how="left", at=[field, None], emits=made, name="Behind")
        def near(window, version):
            yield made(window.start, version and version.v)

        app.sink("Out", made)
    else:
        apart = app.stream("Apart", Counted)
        app.distinct(counted, key="key", within="15 s", at=field, into=apart, name="Behind")
        app.sink("Out", apart)
        app.sink("Versions", versions)
    return app


INPUT = [(1, 0), (12, 7), (16, 9), (17, 15), (22, 22), (33, 33)]


def run(app, cuts):
    driver = TopologyDriver(app, dead_letters=True)
    for first, end in zip([0, *cuts], [*cuts, len(INPUT)], strict=True):
        part = INPUT[first:end]
        driver.batch(
            {
                "Rows": [Row("a", START + timedelta(seconds=at)) for at, _ in part],
                "Versions": [Version("a", START + timedelta(seconds=at), first + n) for n, (_, at) in enumerate(part)],
            }
        )
    driver.finish()
    return sorted(map(repr, driver.output("Out"))), driver.elements["Behind"].late_in_part, len(driver.dead_letters)


@pytest.mark.parametrize("way", ["latest", "interval", "distinct"])
def test_what_comes_too_late_for_a_join_behind_windows_is_counted(way):
    """It goes by when its windows began, and may have dropped by then what that time needs."""
    for field, expected in (("start", 3), ("end", 0)):
        whole, cut = run(joined(way, field), []), run(joined(way, field), [1, 2, 3, 4, 5])
        assert (whole[1:], cut[1:]) == ((0, 0), (expected, 0))
        assert (cut[0] != whole[0]) == (field == "start")


def test_what_comes_late_for_a_join_and_misses_nothing_is_matched():
    """Two windows close at once, and the results are of before the watermark."""

    class Other(Counted):
        pass

    app = App("a")
    rows = app.source("Rows", Row, event_time="at")
    one, other, made = app.stream("One", Counted), app.stream("Another", Other), app.stream("Made", Made)
    app.aggregate(rows, key="key", window=Tumbling("10 s"), into=one, n=R.count(), name="First")
    app.aggregate(rows, key="key", window=Tumbling("10 s"), into=other, n=R.sum("i"), name="Second")

    @app.join(one, other, key="key", within=("0 s", "0 s"), at=["start", "start"], emits=made)
    def both(left, right):
        yield made(left.start, right.n)

    app.sink("Out", made)
    driver = TopologyDriver(app, dead_letters=True)
    for second in range(0, 60, 3):
        driver.batch({"Rows": [Row("a", START + timedelta(seconds=second), i=1)]})
    driver.finish()
    assert len(driver.output("Out")) == 6
    assert driver.dead_letters == []


class Priced(Event):
    key: str
    at: datetime
    price: Decimal
    paid: bool


class Total(Event):
    key: str
    total: Decimal


LARGE = Decimal("12345678901234567890123456789.123")


@pytest.mark.parametrize("window", [Session("4 s"), Sliding("10 s", "5 s")], ids=str)
@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_sum_of_decimals_is_exact_however_its_parts_merge(window, cut):
    app = App("a")
    rows, totals = app.source("Rows", Priced, event_time="at", lateness=100), app.stream("Totals", Total)
    app.aggregate(rows, key="key", window=window, into=totals, total=R.sum("price").where(lambda row: row.paid))
    app.sink("Out", totals)
    events = [
        Priced("a", START + timedelta(seconds=second), LARGE if paid else Decimal(1), paid)
        for second, paid in ((0, True), (6, False), (3, False))
    ]
    driver = TopologyDriver(app)
    for part in (events[:cut], events[cut:]):
        driver.batch({"Rows": part})
    driver.finish()
    assert {total.total for total in driver.output("Out")} <= {LARGE, Decimal(0)}
    assert LARGE in {total.total for total in driver.output("Out")}


class Keyed(Event):
    key: Decimal
    at: datetime


class Seen(Event):
    key: Decimal
    n: int


@pytest.mark.parametrize("window", [Tumbling("10 s"), Count(2)], ids=str)
@pytest.mark.parametrize("cut", [0, 1, 2])
def test_a_key_is_written_in_one_way(window, cut):
    app = App("a")
    rows, seen = app.source("Rows", Keyed, event_time="at"), app.stream("Seen", Seen)
    app.aggregate(
        rows, key="key", window=window, into=seen, n=R.count(), results="both" if isinstance(window, Tumbling) else "final"
    )
    app.sink("Out", seen)
    events = [Keyed(Decimal("1.00"), START), Keyed(Decimal("1.0"), START)]
    driver = TopologyDriver(app)
    for part in (events[:cut], events[cut:]):
        driver.batch({"Rows": part})
    driver.finish()
    assert {str(each.key) for each in driver.output("Out")} == {"1"}


# --- names -----------------------------------------------------------------------------------------------------------


class Other(Event):
    key: str
    at: datetime


class Named(Event):
    key: str
    v: int


@pytest.mark.parametrize("name", ["x\0y", "\ud800", "a b", "a/b", ".."], ids=ascii)
@pytest.mark.parametrize("kind", ["aggregate", "distinct", "join", "pattern"])
def test_a_name_that_cannot_be_one_is_refused_where_it_is_declared(kind, name):
    app = App("names")
    rows, others = app.source("Rows", Row, event_time="at"), app.source("More", Other, event_time="at")
    made = app.stream("Named", Named)
    declare = {
        "aggregate": lambda: app.aggregate(rows, key="key", window=Tumbling("1 s"), into=made, name=name, v=R.count()),
        "distinct": lambda: app.distinct(rows, key="key", within="1 s", into=app.stream("Once", Row), name=name),
        "join": lambda: app.join(rows, others, key="key", within=("-1 s", "1 s"), emits=made, name=name)(
            lambda row, other: None
        ),
        "pattern": lambda: app.pattern(
            rows, key="key", within="1 s", emits=made, name=name, then=[lambda row: row.i > 0, lambda row: row.i > 1]
        )(lambda first, second: None),
    }
    with pytest.raises(TopologyError, match=r"The element name '.*' (holds a character other than|consists of dots)"):
        declare[kind]()
