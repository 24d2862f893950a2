"""Event types whose encoding is another than their fields: through columns, texts and elements they come as they were. In
memory.
"""

from datetime import UTC, datetime
from enum import Enum
from typing import Annotated

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import App, Event, ProcessingElement
from penstock.app.stream import Source
from penstock.connectors.replay import ReplayedSequence
from penstock.errors import EventSchemaError
from penstock.runtime.codec import Codec
from penstock.testing import TopologyDriver

Natural = Annotated[int, msgspec.Meta(ge=0)]
MOMENT = datetime(2026, 11, 25, 12)


class Colour(Enum):
    RED = "red"


class Renamed(Event, rename={"user_id": "userId"}):
    user_id: int


class RenamedNatural(Event, rename={"user_id": "userId"}):
    user_id: Natural


class Camel(Event, rename="camel"):
    first_name: str
    favourite_colour: Colour


class Omitting(Event, omit_defaults=True):
    n: Natural = 0
    colour: Colour = Colour.RED


class Tagged(Event, tag=True):
    n: Natural


class Naive(Event):
    at: Annotated[datetime, msgspec.Meta(tz=False)]
    until: Annotated[datetime, msgspec.Meta(tz=False)] | None = None


Local = Annotated[datetime, msgspec.Meta(tz=False)]


class MaybeNaive(Event):
    at: Annotated[Local | None, msgspec.Meta(description="when")] = None


class Holding(Event):
    """Of another kind, whose encoding has what columns do not."""

    tagged: Tagged
    several: list[Tagged]


class Aware(Event):
    at: Annotated[datetime, msgspec.Meta(tz=True)]


class Nested(Event, rename={"who": "WHO"}):
    who: Renamed
    others: list[Camel]
    by_name: dict[str, Omitting | None]
    nobody: Renamed | None = None


class Described(Event):
    n: Annotated[int, msgspec.Meta(description="a number"), "and a note"]


class ByName(Event, kw_only=True):
    n: int
    text: str = ""


ADA, OMITTING = Camel("Ada", Colour.RED), Omitting()
EVENTS = [
    MaybeNaive(MOMENT),
    MaybeNaive(),
    Holding(Tagged(1), [Tagged(2)]),
    Renamed(1),
    RenamedNatural(2),
    ADA,
    OMITTING,
    Omitting(5),
    Tagged(3),
    Naive(MOMENT),
    Naive(MOMENT, MOMENT),
    Aware(MOMENT.replace(tzinfo=UTC)),
    Nested(Renamed(7), [ADA], {"a": OMITTING, "b": None}),
    Described(4),
    ByName(n=5, text="a"),
]


def of_columns(event):
    @(app := App("columns")).batch(app.source("In", type(event)), emits=(out := app.stream("Out", type(event))))
    def relay(batch):
        return batch

    app.sink("Results", out)
    return app


def of_events(event):
    @(app := App("events")).element(app.source("In", type(event)), emits=(out := app.stream("Out", type(event))))
    def relay(event):
        yield out.emit(event)

    app.sink("Results", out)
    return app


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_columns_hold_all_that_an_event_has(event):
    codec = Codec(type(event))
    columns = codec.to_columns([event, event])
    assert columns.schema.names == list(type(event).__struct_fields__)
    assert codec.from_columns(columns) == [event, event]
    assert [codec.decode_json(line) for line in codec.to_json(columns)] == [event, event]


@pytest.mark.parametrize("relayed", [of_columns, of_events])
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_elements_hand_them_on(event, relayed):
    driver = TopologyDriver(relayed(event), dead_letters=True)
    driver.batch({"In": [event, event]})
    assert (driver.output("Results"), driver.dead_letters) == ([event, event], [])


def test_texts_and_fields_beside_them_go_by_the_fields_names():
    codec = Codec(RenamedNatural)
    assert codec.from_text({"user_id": "7", "unknown": "1"}) == RenamedNatural(7)
    assert codec.from_message(b'{"userId": 1}', {"user_id": b"7"}) == RenamedNatural(7)
    assert codec.from_values({"userId": 1}, {"user_id": b"7"}) == RenamedNatural(7)

    class Line(Event, rename={"text": "TEXT"}):
        text: Annotated[str, msgspec.Meta(max_length=3)]

    assert Codec(Line).from_line(b"abc") == Line("abc")

    class LineByName(Event, kw_only=True):
        text: str

    assert Codec(LineByName).from_line(b"abc") == LineByName(text="abc")


def test_a_description_asks_nothing():
    assert Codec(Described).flat
    assert not Codec(Tagged).flat


def test_an_event_that_is_a_list_is_refused():
    class Listed(Event, array_like=True):
        n: int

    class HoldingList(Event):
        listed: Listed

    with pytest.raises(EventSchemaError, match="Listed is array_like"):
        App("listed").source("In", Listed)
    with pytest.raises(EventSchemaError, match=r"Field HoldingList\.listed"):
        App("listed").source("In", HoldingList)


def test_what_makes_no_event_any_more_is_a_dead_letter_with_its_values():
    """An element of the batch dialect that fails is handed columns; what is kept of them is no cause to fail again."""

    class Even(Event):
        n: int

        def __post_init__(self):
            assert self.n % 2 == 0

    columns = pa.record_batch({"n": [3]}, schema=Codec(Even).schema)
    assert Codec(Even).shown(columns, 0) == {"n": 3}
    assert Codec(Even).to_json(columns) == [b'{"n":3}']


def test_state_that_its_class_refuses_for_any_reason_is_a_dead_letter():
    class Change(Event):
        key: str
        n: int

    app = App("sums")
    numbers, out = app.source("Numbers", Change), app.stream("Out", Described)
    app.sink("Results", out)

    @app.element(numbers, key="key", emits=out)
    class Sum(ProcessingElement):
        sum: int = 0

        def __post_init__(self):
            assert self.sum >= 0

        def on_event(self, event):
            self.sum += event.n
            yield out(self.sum)

    driver = TopologyDriver(app, dead_letters=True)
    driver.batch({"Numbers": [Change("a", 1), Change("a", -5), Change("a", 2)]})
    assert [event.n for event in driver.output("Results")] == [1, 3]
    assert len(driver.dead_letters) == 1


def test_a_replayed_row_that_does_not_fit_is_for_the_source_to_refuse(tmp_path):
    """Or it would end the run at each start."""
    file = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"user_id": [2, -1], "when": [0.0, 0.1]}), file)
    rows = ReplayedSequence(Source("In", RenamedNatural), file, "when", 1.0)
    assert rows.read(0, 2, 0.0).payloads == [b'{"userId":2}', b'{"userId":-1}']


def test_a_mark_at_the_beginning_of_a_file_does_not_matter():
    class Line(Event):
        text: str

    assert Codec(Line).from_line(b"\xef\xbb\xbfabc") == Line("abc")
    driver = TopologyDriver(of_events(Line("a")), dead_letters=True)
    driver.batch({"In": [b'\xef\xbb\xbf{"text": "a"}', b'{"text": "b"}', b"\xef\xbb\xbf"]})
    assert (driver.output("Results"), driver.dead_letters) == ([Line("a"), Line("b")], [])


class Keyed(Event):
    name: str
    n: int = 0


def test_a_key_that_a_schema_stands_before_is_no_text():
    with pytest.raises(msgspec.ValidationError, match=r"uses a schema registry for it - at `\$.name`"):
        Codec(Keyed).from_message(b'{"n": 1}', {"name": b"\x00\x00\x00\x00\x01\x06abc"})
    assert Codec(Keyed).from_message(b'{"n": 1}', {"name": b"abcdef"}) == Keyed("abcdef", 1)


class At(Event):
    at: datetime


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59-01:00", "0001-01-01T00:00:00+01:00"])
def test_a_time_that_is_beyond_the_years_in_utc_goes_into_no_column(text):
    codec = Codec(At)
    with pytest.raises(ValueError, match="outside of the years 1 to 9999"):
        codec.to_columns([codec.decode_json(f'{{"at": "{text}"}}'.encode())])


def test_a_long_row_of_digits_is_looked_at_once():
    text = "1" * 100_000 + "x"
    with pytest.raises(msgspec.ValidationError):
        Codec(At).from_text({"at": text})
