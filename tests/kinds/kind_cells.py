"""The two sides of the matrix of kinds and doors: what fields can hold, and the places that events pass through. In memory, no
Spark.
"""

import json
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from ipaddress import IPv4Address
from pathlib import Path
from types import new_class
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import pyarrow.parquet as pq

from penstock import App, Event, ProcessingElement, Sink, Stream, Tumbling
from penstock.app.states import array_kind
from penstock.app.table import Table
from penstock.connectors.registry import bind_sinks
from penstock.errors import PenstockError
from penstock.kinds import Kind, register
from penstock.kinds.annotations import kind_of
from penstock.kinds.fields import is_writable
from penstock.kinds.table import kinds
from penstock.kinds.text import key_of_path, key_text, text_of
from penstock.runtime.codec import Codec
from penstock.runtime.events import EventBatch
from penstock.runtime.lineage import LineageColumns
from penstock.runtime.output import LETTERS, FileOutput, SinkFiles
from penstock.runtime.stage import Stage
from penstock.runtime.wiring import Wiring
from penstock.schemas.schema import FORMATS, Schema
from penstock.testing import TopologyDriver

ADDRESSES = Kind(
    name="IPv4Address", python=IPv4Address, encode=str, decode=IPv4Address, samples=(IPv4Address("10.0.0.1"), IPv4Address(0))
)
"""A kind of field as an application adds one."""
register(ADDRESSES)


class Colour(Enum):
    RED = "red"
    BLUE = "sea blue"


class Level(Enum):
    LOW = 1
    HIGH = 2**40


@dataclass(frozen=True)
class Column:
    """One column of the matrix: a type of fields, and values of it."""

    name: str
    annotation: Any
    values: tuple[Any, ...]
    event_type: type[Event] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "event_type", carrier(self.annotation))

    @property
    def is_nested(self) -> bool:
        """Whether it is of lists, dicts or events."""
        return kind_of(self.annotation) is None

    @property
    def fits_array(self) -> bool:
        """Whether the state of the batch dialect can hold it."""
        kind = array_kind(self.annotation)
        return kind is not None and not kind.naive and self.name != "int beyond 64 bits"

    @property
    def events(self) -> list[Any]:
        """An event of each value, numbered."""
        return [self.event_type(number, value) for number, value in enumerate(self.values)]


def carrier(annotation: Any, name: str = "Carrier") -> type[Event]:
    """An event type with a number and a value."""
    body = {"__annotations__": {"n": int, "value": annotation}, "__module__": __name__}
    made = new_class(name, (Event,), {}, lambda namespace: namespace.update(body))
    globals()[name] = made  # msgspec looks annotations up there
    return made


def annotation_of(kind: Kind) -> Any:
    return Annotated[datetime, msgspec.Meta(tz=False)] if kind.naive else kind.python


def columns() -> list[Column]:
    """Each kind alone, possibly missing, and within what can hold one."""
    made = [
        Column("Enum of str", Colour, tuple(Colour)),
        Column("Enum of int", Level, tuple(Level)),
        Column("Literal", Literal["a", "b c"], ("a", "b c")),
    ]
    for kind in kinds():
        one, name = annotation_of(kind), kind.name
        made.append(Column(name, one, kind.samples))
        made.append(Column(f"{name} | None", one | None, (None, *kind.samples)))
        made.append(Column(f"list[{name}]", list[one], ([], list(kind.samples), *([each] for each in kind.samples))))
        by_name = {f"a{number}": each for number, each in enumerate(kind.samples)}
        made.append(Column(f"dict[str, {name}]", dict[str, one], ({}, by_name, dict(reversed(by_name.items())))))
        inner = carrier(one, "Inner")
        made.append(Column(f"event of {name}", inner, tuple(inner(1, each) for each in kind.samples)))
    made.append(Column("list[Enum]", list[Colour], ([], [Colour.RED])))
    made.append(Column("int beyond 64 bits", int, (2**63, -(2**63) - 1, 2**200)))
    made.append(Column("str that is no UTF-8", str, ("\ud800",)))
    return made


# --- what comes out of a door ------------------------------------------------------------------------


@dataclass
class Passed:
    """What has come of the events of a column: those that came through, and why the others did not."""

    events: dict[int, Any] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal and of one type; NaN is NaN."""
    if isinstance(one, msgspec.Struct):
        return type(one) is type(other) and all(
            same(getattr(one, name), getattr(other, name)) for name in one.__struct_fields__
        )
    if isinstance(one, list):
        return type(other) is list and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return type(other) is dict and one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if one != one:
        return type(one) is type(other) and other != other
    return type(one) is type(other) and one == other


@dataclass
class Outcome:
    """What a door does with a column: a sentence that refuses it, or the values that were dead letters, and those that are
    None.
    """

    refused: str | None = None
    letters: list[Any] = field(default_factory=list)
    nothing: list[Any] = field(default_factory=list)


def outcome(column: Column, door: Callable[..., Passed], directory: Path) -> Outcome:
    """Carry a column through a door.

    Raises:
        AssertionError: an event has come out as another one, or is gone without a word.
    """
    try:
        passed = door(column.event_type, column.events, directory)
    except PenstockError as error:
        return Outcome(refused=str(error))
    found = Outcome(None, [event.value for event in column.events if event.n in passed.errors])
    for event in column.events:
        if event.n in passed.errors:
            continue
        assert event.n in passed.events, f"{event} is gone"
        came = passed.events[event.n]
        if came.value is None and event.value is not None:
            found.nothing.append(event.value)
        else:
            assert same(event, came), f"{event} came out as {came}"
    return found


# --- doors -------------------------------------------------------------------------------------------


def each(events: list[Any], carry: Callable[[Any], Any]) -> Passed:
    """Events one by one through what raises for those that it does not take."""
    passed = Passed()
    for event in events:
        try:
            passed.events[event.n] = carry(event)
        except Exception as error:
            passed.errors[event.n] = f"{type(error).__name__}: {error}"
    return passed


def staged(uri: str, event_type: type[Event], events: list[Any], directory: Path, key: tuple[str, ...] = ()) -> Passed:
    """Events through a sink: written as a stage writes them, delivered, and read."""
    app = App("kinds")
    source = app.source("In", event_type)
    app.sink("Out", source)
    sink = bind_sinks([Sink("Out", Stream("Results", event_type), uri, key)], {}, directory / "output")["Out"]
    letters = SinkFiles("dead-letters", "jsonl", str(directory / "letters"), role="letters")
    sink.claim("run-1", ())
    output = FileOutput([sink.files, letters], "0-00000")
    stage = Stage(Wiring(app.topology(), 1, (sink.files, letters), "dead-letter"), 0, 0, output)
    rows = np.arange(len(events), dtype=np.int64)
    stage.route(EventBatch(source, LineageColumns.read(rows, rows, rows), events=events))
    stage.finish()
    files = stage.tally.files
    sink.deliver("main", 0, [file for file in files if file.sink != LETTERS])
    passed = Passed({event.n: event for event in sink.read()})
    for event in events if key else ():  # of equal keys the last one stays
        last = [other for other in events if equal(other.value, event.value)][-1]
        if last.n in passed.events:
            passed.events.setdefault(event.n, event)
    for file in files:
        if file.sink == LETTERS:
            for line in Path(file.staged).read_bytes().splitlines():
                letter = json.loads(line)
                number = (
                    letter["event"]["n"]
                    if isinstance(letter["event"], dict)
                    else int(letter["event"].split("n=")[1].split(",")[0])
                )
                passed.errors[number] = letter["error"]
    return passed


def sink_door(uri: str, key: tuple[str, ...] = ()) -> Callable[..., Passed]:
    def door(event_type: type[Event], events: list[Any], directory: Path) -> Passed:
        (directory / "lake").mkdir(exist_ok=True)
        return staged(uri.replace("DIR", str(directory)), event_type, events, directory, key)

    return door


ICEBERG = "iceberg:lake/results.values?catalog.uri=sqlite:///DIR/lake.sqlite&catalog.warehouse=file://DIR/lake"


def in_driver(app: App, events: list[Any], seen: list[Any], batches: int = 1) -> Passed:
    driver = TopologyDriver(app, dead_letters=True)
    for _ in range(batches):
        driver.batch({"In": events})
    passed = Passed({event.n: event for event in seen})
    for letter in driver.dead_letters:
        event = letter.get("event")
        number = event["n"] if isinstance(event, dict) else int(str(event).split("n=")[1].split(",")[0])
        passed.errors[number] = letter["error"]
    return passed


def hop_of_events(event_type: type[Event], events: list[Any], directory: Path) -> Passed:
    app, seen = App("events"), []
    source = app.source("In", event_type)

    @app.element(source, key="n")
    class Seer(ProcessingElement):
        def on_event(self, event):
            seen.append(event)

    return in_driver(app, events, seen)


def state_of_objects(event_type: type[Event], events: list[Any], directory: Path) -> Passed:
    app, seen = App("state"), []
    source = app.source("In", event_type)
    annotation = event_type.__annotations__["value"]

    def on_event(self, event):
        if self.held is not None or self.times:
            seen.append(event_type(event.n, self.held))
        self.held, self.times = event.value, self.times + 1

    body = {
        "__annotations__": {"held": annotation | None, "times": int},
        "held": None,
        "times": 0,
        "on_event": on_event,
        "__module__": __name__,
    }
    app.element(source, key="n")(new_class("Holder", (ProcessingElement,), {}, lambda namespace: namespace.update(body)))
    return in_driver(app, events, seen, batches=2)


def columns_of_a_batch(event_type: type[Event], events: list[Any], directory: Path) -> Passed:
    app, seen = App("columns"), []
    source = app.source("In", event_type)
    codec = Codec(event_type)

    @app.batch(source, emits=app.stream("Out", event_type))
    def look(batch):
        seen.extend(codec.from_columns(batch))
        return batch

    return in_driver(app, events, seen)


def state_in_columns(event_type: type[Event], events: list[Any], directory: Path) -> Passed:
    app, seen = App("states"), []
    source = app.source("In", event_type)
    codec = Codec(event_type)
    annotation = event_type.__annotations__["value"]
    default = (
        msgspec.field(default_factory=type(events[-1].value)) if isinstance(events[-1].value, list | dict) else events[-1].value
    )
    body = {"__annotations__": {"held": annotation, "times": int}, "held": default, "times": 0, "__module__": __name__}
    held = new_class("Held", (Event,), {}, lambda namespace: namespace.update(body))

    @app.batch(source, key="n", state=held, emits=app.stream("Out", event_type))
    def hold(batch, instance, states):
        values = codec.from_columns(batch)
        stored = codec.from_columns(
            batch.set_column(1, batch.schema.field(1), _column(states.held, batch.schema.field(1).type))
        )
        for event, before, times in zip(values, stored, states.times.tolist(), strict=True):
            if times:
                seen.append(event_type(event.n, before.value))
        states.held = np.array([_naive(event.value) for event in values], states.held.dtype)
        states.times += 1
        return batch

    return in_driver(app, events, seen, batches=2)


def _naive(value: Any) -> Any:
    return value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) and value.tzinfo else value


def _column(array: Any, kind: Any) -> Any:
    import pyarrow as pa

    made = pa.array(array)
    return made.cast(kind) if not pa.types.is_timestamp(kind) else made.cast(pa.timestamp("us")).cast(kind)


def key_of_objects(event_type: type[Event], events: list[Any], directory: Path) -> Passed:
    """As a key: equal values meet in one instance, which knows the key, and others do not."""
    return _keyed(event_type, events, ("value",))


def key_of_several(event_type: type[Event], events: list[Any], directory: Path) -> Passed:
    app_type = event_type
    return _keyed(app_type, events, ("value", "zero"))


def _keyed(event_type: type[Event], events: list[Any], key: tuple[str, ...]) -> Passed:
    annotation = event_type.__annotations__["value"]
    body = {"__annotations__": {"n": int, "value": annotation, "zero": int}, "zero": 0, "__module__": __name__}
    wider = new_class("Wider", (Event,), {}, lambda namespace: namespace.update(body))
    app, seen = App("keys"), {}
    source = app.source("In", wider)

    @app.element(source, key=key)
    class Instance(ProcessingElement):
        first: int = -1

        def on_event(self, event):
            if self.first < 0:
                self.first = event.n
            own = self.key if len(key) == 1 else self.key[0]
            seen[event.n] = (self.first, own)

    passed = in_driver(app, [wider(event.n, event.value) for event in events], [])
    return _by_instances(events, seen, passed)


def _by_instances(events: list[Any], seen: dict[int, tuple[int, Any]], passed: Passed) -> Passed:
    """See that events are of one instance just where their keys are equal."""
    taken = [event for event in events if event.n in seen]
    for event in taken:
        first, own = seen[event.n]
        meant = next(other.n for other in taken if equal(other.value, event.value))
        assert first == meant, f"{event.value!r} went to the instance of event {first}, not {meant}"
        assert equal(own, event.value), f"the instance of {event.value!r} has the key {own!r}"
        passed.events[event.n] = event
    return passed


def equal(one: Any, other: Any) -> bool:
    """As keys are: as Python has it, but that NaN is one key, wherever it stands."""
    if isinstance(one, msgspec.Struct):
        return all(equal(getattr(one, name), getattr(other, name)) for name in one.__struct_fields__)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[name], other[name]) for name in one)
    return one == other or (one != one and other != other)


def key_in_columns(event_type: type[Event], events: list[Any], directory: Path) -> Passed:
    app, seen = App("columns"), {}
    source = app.source("In", event_type)
    codec = Codec(event_type)

    class First(Event):
        first: int = -1

    @app.batch(source, key="value", state=First, emits=app.stream("Out", event_type))
    def look(batch, instance, states):
        numbers = batch["n"].to_pylist()
        for row, at in reversed(list(enumerate(instance.tolist()))):
            states.first[at] = numbers[row]
        keys = states.keys["value"]
        for row, at in enumerate(instance.tolist()):
            one = codec.from_columns(
                batch.slice(row, 1).set_column(1, batch.schema.field(1), keys.slice(at, 1).cast(batch.schema.field(1).type))
            )
            seen[numbers[row]] = (int(states.first[at]), one[0].value)
        return batch

    passed = in_driver(app, events, [])
    return _by_instances(events, seen, passed)


def key_of_a_window(event_type: type[Event], events: list[Any], directory: Path) -> Passed:
    annotation = event_type.__annotations__["value"]
    timed = new_class(
        "Timed",
        (Event,),
        {},
        lambda namespace: namespace.update(
            {"__annotations__": {"n": int, "value": annotation, "at": datetime}, "__module__": __name__}
        ),
    )
    counted = new_class(
        "Counted",
        (Event,),
        {},
        lambda namespace: namespace.update(
            {"__annotations__": {"value": annotation, "numbers": list[int]}, "__module__": __name__}
        ),
    )
    app, seen = App("windows"), {}
    source = app.source("In", timed, event_time="at")
    out = app.stream("Out", counted)

    @app.element(source, key="value", window=Tumbling("10 s"), emits=out)
    class Counter(ProcessingElement):
        numbers: list[int] = []

        def on_event(self, event):
            self.numbers.append(event.n)

        def on_close(self):
            for number in self.numbers:
                seen[number] = (self.numbers[0], self.key)

    driver = TopologyDriver(app, dead_letters=True)
    driver.batch({"In": [timed(event.n, event.value, datetime(2026, 1, 1, tzinfo=UTC)) for event in events]})
    driver.finish()
    passed = Passed(
        errors={
            letter["event"]["n"]
            if isinstance(letter["event"], dict)
            else int(letter["event"].split("n=")[1].split(",")[0]): letter["error"]
            for letter in driver.dead_letters
        }
    )
    return _by_instances(events, seen, passed)


def text_as_key(event_type: type[Event], events: list[Any], directory: Path) -> Passed:
    """As the text of a Kafka key, of a result's path and of a client's call: one for equal keys, and for them alone."""
    passed = each(events, lambda event: (key_text(event, ("value", "n")), key_text(event, ("value",))))
    texts = {number: text for number, (_, text) in passed.events.items()}
    for event in events:
        for other in events:
            if event.n in texts and other.n in texts:
                assert (texts[event.n] == texts[other.n]) == equal(event.value, other.value), (event, other, texts)
    for number, text in texts.items():
        assert key_of_path([text], event_type, ("value",)) == text
        passed.events[number] = events[number]
    return passed


def beside_a_message(event_type: type[Event], events: list[Any], directory: Path) -> Passed:
    codec = Codec(event_type)

    def carry(event: Any) -> Any:
        raw = event.value if isinstance(event.value, bytes) else None if event.value is None else text_of(event.value).encode()
        return codec.from_message(b'{"n":%d%s}' % (event.n, b"" if raw is not None else b',"value":null'), {"value": raw})

    return each(events, carry)


def fields_of_csv(event_type: type[Event], events: list[Any], directory: Path) -> Passed:
    """As the fields of a line; those without quotes that are empty are missing, and come as None."""
    codec = Codec(event_type)
    return each(
        events,
        lambda event: codec.from_text({"n": str(event.n), "value": None if event.value is None else text_of(event.value)}),
    )


def registry_door(kind: str) -> Callable[..., Passed]:
    def door(event_type: type[Event], events: list[Any], directory: Path) -> Passed:
        schema = Schema.of(event_type, FORMATS[kind])
        write, read, codec = schema.writer(), schema.reader(), Codec(event_type)
        return each(events, lambda event: codec.from_values(read(write(event)), {}))

    return door


def lookup_in_lines(event_type: type[Event], events: list[Any], directory: Path) -> Passed:
    codec = Codec(event_type)

    def carry(event: Any) -> Any:
        path = directory / f"{event.n}.jsonl"
        path.write_bytes(codec.encode_json(event))
        return _found(Table(f"jsonl:{path}", event_type, ("n",), 1), event)

    return each(events, carry)


def lookup_in_csv(event_type: type[Event], events: list[Any], directory: Path) -> Passed:
    def carry(event: Any) -> Any:
        path = directory / f"{event.n}.csv"
        value = "" if event.value is None else '"' + text_of(event.value).replace('"', '""') + '"'
        path.write_bytes(f"n,value\n{event.n},{value}\n".encode())
        return _found(Table(f"csv:{path}", event_type, ("n",), 1), event)

    return each(events, carry)


def lookup_in_parquet(event_type: type[Event], events: list[Any], directory: Path) -> Passed:
    codec = Codec(event_type)

    def carry(event: Any) -> Any:
        import pyarrow as pa

        path = directory / f"{event.n}.parquet"
        pq.write_table(pa.Table.from_batches([codec.to_columns([event])]), path)
        return _found(Table(f"parquet:{path}", event_type, ("n",), 1), event)

    return each(events, carry)


def lookup_in_sqlite(event_type: type[Event], events: list[Any], directory: Path) -> Passed:
    """Of the table that a sink has made."""
    passed = staged(f"sqlite:{directory}/t.sqlite?table=t", event_type, events, directory)
    sqlite3.connect(directory / "t.sqlite").close()
    table = Table(f"sqlite:{directory}/t.sqlite/t", event_type, ("n",), 1)
    table.follow()
    return Passed({event.n: table.get((event.n,)) for event in events if event.n not in passed.errors}, passed.errors)


def _found(table: Table, event: Any) -> Any:
    table.follow()
    return table.get((event.n,))


def looked_up_by(event_type: type[Event], events: list[Any], directory: Path) -> Passed:
    """As the key by which rows are looked up."""
    codec = Codec(event_type)
    path = directory / "rows.jsonl"
    written = [event for event in events if is_writable(event.value) and "\\ud800" not in ascii(event.value)]
    first = [event for event in written if next(other for other in written if equal(other.value, event.value)) is event]
    path.write_bytes(b"\n".join(map(codec.encode_json, first)))
    app, seen = App("lookup"), {}
    source = app.source("In", event_type)
    out = app.stream("Out", event_type)

    @app.lookup(source, f"jsonl:{path}", key="value", row=event_type, emits=out)
    def look(event, row):
        seen[event.n] = (-1 if row is None else row.n, event.value if row is None else row.value)

    passed = in_driver(app, written, [])
    passed.errors |= {event.n: "not in the table" for event in events if event not in written}
    return _by_instances(written, seen, passed)


DOORS: dict[str, Callable[..., Passed]] = {
    "JSON Lines": sink_door("jsonl:DIR/out"),
    "Parquet": sink_door("parquet:DIR/out"),
    "log": sink_door("log:DIR/log"),
    "SQLite": sink_door("sqlite:DIR/t.sqlite"),
    "Delta": sink_door("delta:DIR/table"),
    "Iceberg": sink_door(ICEBERG),
    "upsert in SQLite": sink_door("sqlite:DIR/u.sqlite", ("value",)),
    "upsert in Delta": sink_door("delta:DIR/upserted", ("value",)),
    "upsert in Iceberg": sink_door(ICEBERG.replace("values", "upserted"), ("value",)),
    "hop, event dialect": hop_of_events,
    "columns, batch dialect": columns_of_a_batch,
    "state, event dialect": state_of_objects,
    "state, batch dialect": state_in_columns,
    "key, event dialect": key_of_objects,
    "key of several fields": key_of_several,
    "key, batch dialect": key_in_columns,
    "key of a window": key_of_a_window,
    "key as text": text_as_key,
    "beside a message": beside_a_message,
    "CSV": fields_of_csv,
    "Avro": registry_door("avro"),
    "Protobuf": registry_door("protobuf"),
    "JSON Schema": registry_door("json"),
    "lookup in JSON Lines": lookup_in_lines,
    "lookup in CSV": lookup_in_csv,
    "lookup in Parquet": lookup_in_parquet,
    "lookup in SQLite": lookup_in_sqlite,
    "looked up by": looked_up_by,
}
