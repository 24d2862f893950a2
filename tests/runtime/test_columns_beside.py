"""What an element reads of its events is sent beside them in columns; it comes to what the events themselves would."""

import linecache
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import count, product
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import outcome_of

from penstock import App, Event, Session, Sliding, Tumbling, reducers
from penstock.runtime import arrivals, delivery, wire, wiring
from penstock.runtime.batch import Batch, ColumnBatch
from penstock.runtime.compiling.source import NotCompiledError
from penstock.runtime.container import Container
from penstock.runtime.kept import FEW_NUMBERS, surely_kept
from penstock.runtime.key import KeyReader
from penstock.runtime.lineage import LineageColumns
from penstock.runtime.together import windows
from penstock.runtime.together.columns import Coded, SentColumn, column, joined
from penstock.runtime.together.explanation import executions
from penstock.runtime.together.predicates import compile_predicate
from penstock.runtime.together.reading import Reads, kinds_of
from penstock.testing import TopologyDriver

T0 = datetime(2026, 1, 1, tzinfo=UTC)


class Reading(Event):
    key: str
    other: int
    at: datetime
    own: datetime
    number: int
    value: float
    text: str | None
    flag: bool


class Known(Event):
    start: datetime
    n: int
    few: int
    most: int
    total: int
    low: int | None
    high: float | None
    mean: float | None
    sum: float
    first: str | None
    last: float | None
    texts: int
    numbers: int
    all: list[int]
    least_text: str | None


class Count(Event):
    key: str
    n: int


class OfText(Known):
    key: str


class OfNumber(Known):
    other: int


class OfBoth(Known):
    key: str
    other: int


class OfFloat(Known):
    value: float


LIMIT = 7

STATISTICS = {
    "n": reducers.count(),
    "few": reducers.count().where(lambda reading: -3 <= reading.number < LIMIT and not (reading.flag and reading.text == "x")),
    "most": reducers.count().where(lambda reading: reading.value > 0.5 or reading.flag),
    "total": reducers.sum("number"),
    "low": reducers.min("number"),
    "high": reducers.max("value").where(lambda reading: reading.number != 0),
    "mean": reducers.mean("number"),
    "sum": reducers.sum("value"),
    "first": reducers.first("text"),
    "last": reducers.last("value"),
    "texts": reducers.distinct("text"),
    "numbers": reducers.distinct("number").where(lambda reading: reading.text in ("x", "y")),
    "all": reducers.collect("number"),
    "least_text": reducers.min("text"),
}
RAISES = {**STATISTICS, "few": reducers.count().where(lambda reading: reading.text < "y")}  # for which None is no text
KEYS = {OfText: "key", OfNumber: "other", OfBoth: ("key", "other"), OfFloat: "value"}
WINDOWS = [
    Tumbling("10 s"),
    Tumbling("7 s", at="own", allowed="20 s"),
    Sliding("10 s", "2 s"),
    Sliding("10 s", "3 s"),
    Session("4 s"),
    Session("4 s", allowed="15 s", at="own"),
]
NUMBERS = st.integers(-9, 9) | st.sampled_from([2**62, 2**63 - 1, -(2**63)])
FLOATS = st.sampled_from([0.0, -0.0, 0.1, 0.5, -2.5, 1e308, float("nan"), float("inf")])
TEXTS = st.sampled_from([None, "", "x", "y", "\ud800"])


def readings(strange: bool) -> st.SearchStrategy[Any]:
    """Batches of readings, roughly in the order of their times."""
    reading = st.tuples(
        st.sampled_from("abc"),
        st.integers(0, 2),
        st.integers(-300, 30),
        st.integers(-100, 30),
        NUMBERS if strange else st.integers(-9, 9),
        FLOATS if strange else st.floats(-5, 5).filter(bool),
        TEXTS if strange else st.sampled_from([None, "x", "y"]),
        st.booleans(),
    )
    return st.lists(st.lists(reading, max_size=50), min_size=1, max_size=4)


def application(window: Any, of: type[Event], results: str, statistics: Mapping[str, Any] = STATISTICS) -> App:
    app = App("statistics")
    source = app.source("Readings", Reading, event_time="at", lateness=8)
    known = app.stream("Known", of)
    app.aggregate(source, key=KEYS[of], window=window, into=known, name="E", results=results, **statistics)
    app.sink("Out", known)
    return app


def outcome(app: App, batches: list[list[Any]]) -> Any:
    events = (
        [
            Reading(key, other, T0 + timedelta(seconds=at + late / 10), T0 + timedelta(seconds=at + own / 10), *values)
            for key, other, late, own, *values in batch
        ]
        for at, batch in zip(range(0, 15 * len(batches), 15), batches, strict=True)
    )
    return outcome_of(app, "Readings", "E", events)


def no_columns(*_: Any) -> Any:
    raise NotCompiledError("this test wants the events")


@pytest.mark.parametrize("of", KEYS, ids=lambda of: of.__name__)
@pytest.mark.parametrize("window", WINDOWS, ids=str)
@settings(max_examples=8)
@given(data=st.data())
def test_columns_are_events(window: Any, of: type[Event], data: st.DataObject) -> None:
    batches = data.draw(readings(data.draw(st.booleans())))
    results = data.draw(st.sampled_from(["final", "updates", "both"]))
    app = application(window, of, results, data.draw(st.sampled_from([STATISTICS, RAISES])))
    limits = arrivals.Limits(data.draw(st.sampled_from([1, 10, 500])), 0, 500)
    with pytest.MonkeyPatch.context() as patch:
        # A sum may be beyond 64 bits after one delivery, and not after the next one: the same ones in all three.
        patch.setattr(arrivals, "IN_COLUMNS", limits)
        patch.setattr(arrivals, "DECODED", limits)
        patch.setattr(wire, "EVENTS_PER_BLOCK", data.draw(st.sampled_from([3, 100])))
        patch.setattr(windows, "FEW", 10**9)
        one_by_one = outcome(app, batches)
        patch.setattr(windows, "FEW", 0)
        patch.setattr(windows, "MOST", data.draw(st.sampled_from([1, 17, 200])))
        assert outcome(app, batches) == one_by_one
        patch.setattr(wiring, "reads_of", no_columns)
        assert outcome(app, batches) == one_by_one


def test_events_are_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the comparison above compares two ways, and not one with itself."""
    batch = [("abc"[n % 3], n, n, n, n % 7, 0.5 + n, "xyz"[n % 3], n % 2 == 0) for n in range(60)]
    decoded: list[Any] = []
    whole = delivery.BlockEvents.events.func
    monkeypatch.setattr(delivery.BlockEvents, "events", property(lambda self: decoded.append(self) or whole(self)))
    for window in WINDOWS:
        assert outcome(application(window, OfText, "both"), [batch, batch])[0]
        assert not decoded, window
    monkeypatch.setattr(wiring, "reads_of", no_columns)
    outcome(application(WINDOWS[0], OfText, "both"), [batch, batch])
    assert decoded


def test_a_late_event_alone_is_decoded_for_its_dead_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = [("a", 1, n, n, n, 0.5, "x", True) for n in range(40)]
    late = [("b", 1, -900, 0, 77, 0.5, "late", True), *batch]
    decoded, raw = list[Any](), delivery.BlockPart.raw
    monkeypatch.setattr(delivery.BlockEvents, "events", property(lambda self: decoded.append(self)))
    monkeypatch.setattr(delivery.BlockPart, "raw", lambda self, row: decoded.append(row) or raw(self, row))
    _, letters, counts = outcome(application(Tumbling("10 s"), OfText, "final"), [batch, batch, late])
    assert counts[0] == len(letters) == 1
    assert "'number': 77" in letters[0] or '"number":77' in letters[0]
    assert decoded
    assert {*decoded} == {0}


def test_an_event_that_changes_itself_is_taken_as_an_object() -> None:
    """For it does so each time that it is decoded."""

    class Doubled(Event):
        key: str
        at: datetime
        number: int

        def __post_init__(self) -> None:
            msgspec.structs.force_setattr(self, "number", self.number * 2)

    app = App("doubled")
    source, counts = app.source("Readings", Doubled, event_time="at"), app.stream("Counts", Count)
    app.aggregate(source, key="key", window=Tumbling("1 min"), into=counts, name="E", n=reducers.sum("number"))
    [execution] = executions(app.topology())
    assert "Doubled has a __post_init__" in execution.why


def test_an_event_that_cannot_be_sent_costs_no_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are then tried one by one, to find it."""
    made, whole = list[int](), Reads.columns
    monkeypatch.setattr(Reads, "columns", lambda self, events: made.append(len(events)) or whole(self, events))
    batch = [("a", 1, n, n, n, 0.5, "x", True) for n in range(40)]
    app = App("lone")
    source, passed = app.source("Readings", Reading, event_time="at"), app.stream("Passed", Reading)
    known = app.stream("Counts", Count)

    @app.element(source, emits=passed)
    def spoil(reading: Reading) -> Any:
        return passed.emit(msgspec.structs.replace(reading, text="\ud800")) if reading.number == 7 else passed.emit(reading)

    app.aggregate(passed, key="key", window=Tumbling("10 s", at="at"), into=known, name="E", n=reducers.count())
    app.sink("Out", known)
    _, letters, _ = outcome(app, [batch])
    assert len(letters) == 1
    assert sum(made) <= 2 * 40


def test_deliveries_are_larger_where_columns_came() -> None:
    """And of the ordinary size where a sender could make none."""
    app = application(WINDOWS[0], OfText, "final")
    at = wiring.Wiring(app.topology(), 1, (), "dead-letter")
    [element] = at.keyed
    events = [Reading("a", 1, T0, T0, n, 0.5, "x", True) for n in range(1000)]
    beside = at.reads(element).columns(events)
    for sent, expected in ((beside, 1), (None, 5)):
        arrived = arrivals.ArrivedBlocks(at)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(wire, "EVENTS_PER_BLOCK", 100)
            patch.setattr(arrivals, "DECODED", arrivals.Limits(200, 0, 200))
            lineage = LineageColumns.read(*np.tile(np.arange(1000), (3, 1)))
            zeros = np.zeros(1000, np.int64)
            for block in wire.Outbox().pack(
                0, zeros, lineage, lambda rows: msgspec.msgpack.encode([events[row] for row in rows]), sent
            ):
                arrived.add(block.content)
            assert [len(each) for each in arrived.deliveries(element)] == [1000 // expected] * expected


# Conditions --------------------------------------------------------------------------------------------------------------

numbers = count()


def made(source: str) -> Any:
    """A function from its source, which can be looked up as that of a module can."""
    file = f"<condition {next(numbers)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    names: dict[str, Any] = {"TEN": 10, "NAME": "x", "HALF": 0.5, "NOT": None, "LIST": [1]}
    exec(compile(source, file, "exec"), names)
    return names["wanted"]


OPERANDS = st.sampled_from(["e.number", "e.other", "e.value", "e.text", "e.flag", "e.key"])
PLAIN = ["0", "-3", "7", "2.5", "-0.0", "9007199254740993", "1e300", "9223372036854775808", "'x'", "''", "None", "True"]
CONSTANTS = st.sampled_from([*PLAIN, "TEN", "NAME", "HALF", "NOT", "LIST", "GONE"])
COMPARED = st.sampled_from(["<", "<=", ">", ">=", "==", "!=", "is", "is not", "in", "not in"])
TUPLES = st.lists(CONSTANTS, min_size=1, max_size=3).map(lambda parts: f"({', '.join(parts)},)")


@st.composite
def comparisons(draw: Any) -> str:
    parts = [draw(OPERANDS | CONSTANTS)]
    for _ in range(draw(st.integers(1, 2))):
        op = draw(COMPARED)
        parts += [op, draw(TUPLES if "in" in op else OPERANDS | CONSTANTS)]
    return " ".join(parts)


CONDITIONS = st.recursive(
    comparisons() | OPERANDS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda parts: f"({' '.join(parts)})"),
        inner.map(lambda part: f"(not {part})"),
    ),
    max_leaves=4,
)
EVENTS = st.builds(
    Reading,
    st.sampled_from(["x", "y", ""]),
    st.integers(-3, 10),
    st.just(T0),
    st.just(T0),
    NUMBERS | st.sampled_from([9007199254740993, 9007199254740992]),
    FLOATS | st.sampled_from([9007199254740992.0, 7.0, 2.5]),
    st.sampled_from([None, "", "x", "y"]),
    st.booleans(),
)


@pytest.mark.filterwarnings("ignore:.*with a literal:SyntaxWarning")
@settings(max_examples=400)
@given(CONDITIONS, st.booleans(), st.lists(EVENTS, min_size=1, max_size=8))
def test_compiled_conditions_are_pythons(condition: str, as_def: bool, events: list[Reading]) -> None:
    """Where they can be compiled, and nothing is raised: then, events go one by one."""
    source = f"def wanted(e):\n    '''Asked.'''\n    return {condition}\n" if as_def else f"wanted = lambda e: {condition}\n"
    wanted, kinds = made(source), kinds_of(Reading)
    try:
        predicate = compile_predicate(wanted, kinds)
    except NotCompiledError:
        return
    columns = {name: column(kinds[name], [getattr(event, name) for event in events]) for name in predicate.fields}
    try:
        found = predicate.holds(columns).tolist()
    except Exception:
        return
    assert found == [bool(wanted(event)) for event in events], condition


@pytest.mark.parametrize(
    "condition",
    [
        "e.number < 10",
        "-3 <= e.number < TEN",
        "e.value > 2.5 and not e.flag",
        "e.text == NAME or e.text is None",
        "e.number in (1, 2, 3)",
        "e.key not in {'x', 'y'}",
        "e.number < e.other",
        "e.number < e.value",
        "e.number < 2.5",
        "e.number in (1, 2.5)",
        "e.value",
        "e.text is not None",
        "e.text is not None and e.text < 'y'",
        "e.text is None or e.text < 'y' or e.flag",
        "not (e.text is None or e.text > 'y')",
    ],
)
def test_conditions_that_are_compiled(condition: str) -> None:
    wanted = made(f"wanted = (lambda x: x.other > 1), (lambda e: {condition})\n")[1]
    events = [Reading("x", 2, T0, T0, n, n / 2, [None, "x", "z"][n % 3], n % 2 == 0) for n in range(12)]
    kinds = kinds_of(Reading)
    predicate = compile_predicate(wanted, kinds)
    columns = {name: column(kinds[name], [getattr(event, name) for event in events]) for name in predicate.fields}
    assert predicate.holds(columns).tolist() == [bool(wanted(event)) for event in events]


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("wanted = lambda e: e.number % 2 == 0", "more than comparisons"),
        ("wanted = lambda e: e.at < e.own", "reads at"),
        ("wanted = lambda e: e.value in (1.0, 2.0)", "more than comparisons"),
        ("wanted = lambda e: 'x' in e.key", "more than comparisons"),
        ("wanted = lambda e: e.number in (1, True)", "compares number with True"),
        ("wanted = lambda e: e.value == 9007199254740993", "compares value with 9007199254740993"),
        ("wanted = lambda e, other=1: e.number < other", "takes more than the event"),
        ("def wanted(e):\n    print(e)\n    return e.flag", "does more than return"),
        ("wanted = __import__('operator').attrgetter('flag')", "no plain function"),
        ("exec('wanted = lambda e: e.number == 4711')", "source"),
    ],
)
def test_conditions_that_are_not(source: str, why: str) -> None:
    with pytest.raises(NotCompiledError, match=why):
        compile_predicate(made(source + "\n"), kinds_of(Reading))


@pytest.mark.parametrize("condition", ["e.text < 'y'", "e.flag or e.text < 'y'", "not (e.number < 5 and e.text < 'y')"])
def test_a_condition_raises_where_python_does(condition: str) -> None:
    """That is where it comes to the comparison of None with a text."""
    wanted = made(f"wanted = lambda e: {condition}\n")
    for text, number, flag in product([None, "x", "z"], [1, 9], [True, False]):
        event = Reading("x", 2, T0, T0, number, 0.5, text, flag)
        predicate = compile_predicate(wanted, kinds_of(Reading))
        columns = {name: column(kinds_of(Reading)[name], [getattr(event, name)]) for name in predicate.fields}
        try:
            expected = [bool(wanted(event))]
        except TypeError:
            with pytest.raises(TypeError):
                predicate.holds(columns)
        else:
            assert predicate.holds(columns).tolist() == expected


@pytest.mark.parametrize("condition", ["e.number == 9007199254740992.0", "e.number <= e.value", "e.value < e.number"])
def test_integers_that_are_no_floats_are_compared_by_python(condition: str) -> None:
    predicate = compile_predicate(made(f"wanted = lambda e: {condition}\n"), kinds_of(Reading))
    floats = column("float", [9007199254740992.0])
    for number, fits in ((2**53, True), (2**53 + 1, False), (-(2**53) - 1, False), (-(2**63), False)):
        columns = {"number": column("int", [number]), "value": floats}
        if fits:
            assert predicate.holds(columns).tolist() == ["<=" in condition or "==" in condition]
        else:
            with pytest.raises(TypeError):
                predicate.holds(columns)


def test_names_that_a_class_mangles_and_other_code_are_asked_of_the_events() -> None:
    mangled = made("__limit, _Of__limit = 1, 6\nclass Of:\n    asked = lambda e: e.number < __limit\nwanted = Of.asked\n")
    changed = made("wanted = lambda e: e.number < 1\n")
    columns = {"number": column("int", [0, 5, 10])}
    predicates = [compile_predicate(wanted, kinds_of(Reading)) for wanted in (mangled, changed)]
    changed.__code__ = made("wanted = lambda e: e.number < 6\n").__code__
    for predicate in predicates:
        with pytest.raises(TypeError):
            predicate.holds(columns)


def test_a_variable_has_the_value_that_it_has_at_present() -> None:
    source = "def maker():\n    limit = 1\n    def set(to):\n        nonlocal limit\n        limit = to\n"
    wanted, change = made(source + "    return (lambda e: e.number < limit), set\nwanted = maker()\n")
    predicate = compile_predicate(wanted, kinds_of(Reading))
    columns = {"number": column("int", [0, 5, 10])}
    assert predicate.holds(columns).tolist() == [True, False, False]
    change(6)
    assert predicate.holds(columns).tolist() == [True, True, False]
    change([6])
    with pytest.raises(TypeError):
        predicate.holds(columns)


def test_a_condition_that_columns_cannot_answer_is_asked_of_the_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """And they are still taken at once: an array would not compare itself with a decimal number as Python does."""
    half, singly = Decimal("2.5"), list[int]()
    app = App("asked")
    source, counts = app.source("Readings", Reading, event_time="at"), app.stream("Counts", Count)
    below = reducers.count().where(lambda reading: reading.number < half)
    app.aggregate(source, key="key", window=Tumbling("1 min"), into=counts, name="E", n=below)
    app.sink("Out", counts)
    [execution] = executions(app.topology())
    assert execution.by == "many events at once, in columns"
    with monkeypatch.context() as patch:
        patch.setattr(Container, "_apply_each", lambda self, batch, rows: singly.extend(rows))
        driver = TopologyDriver(app)
        driver.batch({"Readings": [Reading("k", 1, T0, T0, n, 0.5, None, True) for n in range(40)]})
    driver.finish()
    assert not singly
    assert [result.n for result in driver.output("Out")] == [3]


def test_a_condition_that_raises_for_one_event_fails_that_one() -> None:
    app = App("failing")
    source = app.source("Readings", Reading, event_time="at")

    counts = app.stream("Counts", Count)
    app.aggregate(
        source, key="key", window=Tumbling("1 min"), into=counts, n=reducers.count().where(lambda reading: reading.text > "a")
    )
    app.sink("Out", counts)
    driver = TopologyDriver(app, dead_letters=True)
    driver.batch({"Readings": [Reading("k", 1, T0, T0, n, 0.5, None if n == 9 else "xa"[n % 2], True) for n in range(40)]})
    driver.finish()
    [letter] = driver.dead_letters
    assert "TypeError" in letter["error"]
    assert [result.n for result in driver.output("Out")] == [20]


# Columns -----------------------------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from([None, "", "x", "yz"])), st.lists(st.sampled_from([None, "x", "q"])))
def test_coded_columns(one: list[str | None], other: list[str | None]) -> None:
    parts = [column("str", values) for values in (one, other)]
    sent = [msgspec.msgpack.decode(msgspec.msgpack.encode(SentColumn.of(part)), type=SentColumn).read() for part in parts]
    whole = joined(sent)
    assert isinstance(whole, Coded)
    assert whole.listed() == one + other


@pytest.mark.parametrize(("kind", "values"), [("int", [1, True]), ("int", [2**63]), ("float", [1.0, 1]), ("str", ["\ud800"])])
def test_values_that_are_in_no_column(kind: Any, values: list[Any]) -> None:
    with pytest.raises((TypeError, OverflowError, UnicodeEncodeError)):
        column(kind, values)


class Last(Event):
    key: str
    n: Reading | None


class Latest(Event):
    key: str
    n: datetime | None


@pytest.mark.parametrize(
    ("into", "reducer", "by", "why"),
    [
        (Count, reducers.count(), "many events at once, in columns", "windows and reducers"),
        (Last, reducers.last(), "many events at once", "takes whole events"),
        (Latest, reducers.max("at"), "many events at once", "reads a field that is in no column"),
        (Count, reducers.count().where(lambda reading: len(reading.key) > 1), "many events at once", "more than comparisons"),
    ],
)
def test_what_is_read_in_columns_is_explained(into: type[Event], reducer: Any, by: str, why: str) -> None:
    app = App("explained")
    source, counts = app.source("Readings", Reading, event_time="at"), app.stream("Counts", into)
    app.aggregate(source, key="key", window=Tumbling("1 min"), into=counts, n=reducer)
    [execution] = executions(app.topology())
    assert execution.by == by
    assert why in execution.why


@pytest.mark.parametrize("fields", [("other",), ("key",), ("key", "other"), ("value",)], ids=str)
def test_instances_are_the_same_by_columns_and_by_events(fields: tuple[str, ...]) -> None:
    of = next(each for each, key in KEYS.items() if key == (fields[0] if len(fields) == 1 else fields))
    [element] = application(Tumbling("10 s"), of, "final").topology().elements
    events = [Reading("abc"[n % 3], n % 4, T0, T0, n, [0.0, -0.0, 1.5][n % 3], None, True) for n in range(30)]
    key = KeyReader(fields, Reading, 7)
    reads = Reads(element, key)
    columns = reads.columns(events)
    assert reads.buckets(columns).tolist() == key.buckets(events).tolist()
    places = reads.places(columns)
    assert [places.identities[at] for at in places.at.tolist()] == key.identities(events)
    assert places.identities == list(dict.fromkeys(key.identities(events)))
    assert [key.identities(events).index(identity) for identity in places.identities] == places.first.tolist()


def test_a_batch_in_columns_says_what_one_of_events_says() -> None:
    [element] = application(Tumbling("10 s", at="own"), OfBoth, "final").topology().elements
    events = [Reading("abc"[n % 3], n % 4, T0, T0 + timedelta(seconds=n), n, n / 2, None, True) for n in range(30)]
    key = KeyReader(("key", "other"), Reading, 7)
    reads = Reads(element, key)
    delivered: Any = type("Delivered", (SimpleNamespace,), {"__len__": lambda self: len(self.events)})
    given = delivered(events=events, columns=reads.columns(events))
    for late in (set[int](), {0, 4, 12, 16, 28}):
        one, other = Batch(key, given, late), ColumnBatch(key, given, late, reads)
        assert other.identities == one.identities
        assert list(map(list, other.places)) == list(map(list, one.places))
        assert other.hottest() == one.hottest()
        assert set(other.on_time()) == set(one.on_time())
        assert list(other.last_rows().items()) == list(one.last_rows().items())
    part = slice(7, 19)
    time_of = element.body.time_of
    assert other.rows(part, time_of).times().tolist() == one.rows(part, time_of).times().tolist()
    assert [*other.rows(part, time_of).values("number")] == [*one.rows(part, time_of).values("number")]


def test_large_sets_are_encoded_before_they_are_kept() -> None:
    """So that one that is too large is refused; the members of small ones need not be looked at."""
    [element] = sets_of_numbers().topology().elements
    kept, part = surely_kept(element.body), element.body.body()
    state = SimpleNamespace(open={0: SimpleNamespace(state=part)})
    [(name, _)] = element.body.body.states
    setattr(part, name, set(range(1000)))
    assert kept(state)
    setattr(part, name, set(range(FEW_NUMBERS)))
    assert not kept(state)


def sets_of_numbers() -> App:
    app = App("sets")
    source, counts = app.source("Readings", Reading, event_time="at"), app.stream("Counts", Count)
    app.aggregate(source, key="key", window=Tumbling("1 min"), into=counts, n=reducers.distinct("number"))
    return app
