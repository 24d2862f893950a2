"""Types that ask more of their values than a kind: what does not fit is a dead letter wherever it comes from. In memory."""

from datetime import UTC, datetime
from typing import Annotated

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from penstock import App, Event, ProcessingElement
from penstock.errors import StateError
from penstock.kinds.annotations import demanding
from penstock.runtime.codec import Codec
from penstock.runtime.entrance import Entrance
from penstock.runtime.lineage import LineageColumns
from penstock.runtime.output import LETTERS, MemoryOutput
from penstock.runtime.stage import Stage
from penstock.runtime.wiring import Wiring
from penstock.testing import TopologyDriver

Natural = Annotated[int, msgspec.Meta(ge=0)]


class Number(Event):
    n: int


class Counted(Event):
    n: Natural


class MaybeCounted(Event):
    n: Natural | None


class Checked(Event):
    n: int

    def __post_init__(self):
        if self.n < 0:
            raise ValueError("n must not be negative")


class Seen(Event):
    times: int = 0


class Keyed(Event):
    key: str
    n: int


class Short(Event):
    text: Annotated[str, msgspec.Meta(max_length=3)]


DEMANDING = [Counted, MaybeCounted, Checked]


def one_by_one(app, numbers, into):
    @app.element(numbers, emits=into)
    def relay(event):
        yield into(event.n)


def of_keys(app, numbers, into):
    @app.element(numbers, key="n", emits=into)
    class Relay(ProcessingElement):
        def on_event(self, event):
            yield into(event.n)


def in_columns(app, numbers, into):
    @app.batch(numbers, emits=into)
    def relay(batch):
        return batch


def in_keyed_columns(app, numbers, into):
    @app.batch(numbers, key="n", state=Seen, emits=into)
    def relay(batch, positions, states):
        return batch


@pytest.mark.parametrize("kind", DEMANDING)
@pytest.mark.parametrize("relay", [one_by_one, of_keys, in_columns, in_keyed_columns])
def test_what_an_element_emits_is_asked_before_anybody_is_handed_it(kind, relay):
    app = App("demands")
    numbers, middle, out = app.source("Numbers", Number), app.stream("Middle", kind), app.stream("Seen", Number)
    app.sink("Out", out)
    relay(app, numbers, middle)

    @app.element(middle, key="n", emits=out)
    class Last(ProcessingElement):
        def on_event(self, event):
            yield out(event.n)

    driver = TopologyDriver(app, partitions=2, dead_letters=True)
    driver.batch({"Numbers": [Number(3), Number(-1), Number(5)]})
    driver.batch({"Numbers": [Number(0), Number(-2)]})
    assert sorted(event.n for event in driver.output("Out")) == [0, 3, 5]
    assert [letter["event"] for letter in driver.dead_letters] == [{"n": -1}, {"n": -2}]
    assert {letter["element"] for letter in driver.dead_letters} == {"relay" if relay is not of_keys else "Relay"}


def entered(kind, enter):
    """The events that enter a stage, and the number of dead letters."""
    app = App("entrances")
    source = app.source("In", kind)
    app.sink("Out", source)
    output = MemoryOutput()
    stage = Stage(Wiring(app.topology(), 1, (), "dead-letter"), 0, 0, output)
    enter(Entrance(stage, source), lambda rows: LineageColumns.read(*np.zeros((3, rows), np.int64)))
    stage.finish()
    tally, events, letters = stage.tally.sources["In"], output.lines["Out"], output.lines[LETTERS]
    assert tally.rows == tally.accepted == len(events) + len(letters)
    return list(map(msgspec.json.decode, events)), len(letters)


@pytest.mark.parametrize("kind", DEMANDING)
def test_columns_that_enter_are_asked(kind):
    rows = pa.record_batch({"n": [3, -1, 5]}, schema=Codec(kind).schema)
    events, letters = entered(kind, lambda entrance, lineage: entrance.columns(rows, lineage(3)))
    assert (events, letters) == ([{"n": 3}, {"n": 5}], 1)


def test_lines_of_text_that_enter_are_asked():
    events, letters = entered(Short, lambda entrance, lineage: entrance.texts([b"one", b"three", b"\xff"], lineage(3)))
    assert (events, letters) == ([{"text": "one"}], 2)


def test_state_that_asks_more_than_its_kinds_is_asked_too():
    app = App("states")
    numbers, out = app.source("Numbers", Keyed), app.stream("Sums", Number)
    app.sink("Out", out)

    @app.element(numbers, key="key", emits=out)
    class Sum(ProcessingElement):
        sum: Natural = 0

        def on_event(self, event):
            self.sum += event.n

        def on_batch(self):
            yield out(self.sum)

    driver = TopologyDriver(app, dead_letters=True)
    driver.batch({"Numbers": [Keyed("a", 1), Keyed("a", -5), Keyed("a", 2)]})
    driver.batch({"Numbers": [Keyed("a", 4)]})
    assert [event.n for event in driver.output("Out")] == [3, 7]
    [letter] = driver.dead_letters
    assert letter["event"] == {"key": "a", "n": -5}
    assert "cannot be kept" in letter["error"]


def test_state_in_arrays_cannot_ask_more_and_says_so():
    app = App("arrays")
    numbers, out = app.source("Numbers", Number), app.stream("Seen", Number)
    with pytest.raises(StateError, match="Counted asks more of its fields than their types"):
        app.batch(numbers, key="n", state=Counted, emits=out)(lambda batch, positions, states: batch)


class Plain(Event):
    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    n: int | None = None


@pytest.mark.parametrize(
    ("kind", "asks"), [(Plain, False), (Number, False), (Short, True), *((kind, True) for kind in DEMANDING)]
)
def test_which_types_ask_more(kind, asks):
    assert demanding(kind) is asks
    assert Codec(kind).flat is not asks
