"""Codecs: convert events of one type to and from JSON, MessagePack, Arrow columns and text fields."""

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, time
from operator import attrgetter
from typing import Any

import msgspec
import pyarrow as pa

from penstock.kinds.annotations import optional, plain
from penstock.kinds.arrow import arrow_schema, refuse_beyond
from penstock.kinds.coding import convert, json_decoder, json_encoder, msgpack_decoder, msgpack_encoder
from penstock.kinds.event import Event, field_types
from penstock.kinds.fields import (
    encoded_names,
    event_to_encoded,
    filler_of,
    floats_of,
    holds,
    in_order,
    is_flat_event,
    is_nested,
    is_writable,
    may_read_null,
    nothing_of,
    refuse_numbers,
    scalars_in,
    times_of,
    to_column,
)
from penstock.kinds.lax import lax_converter
from penstock.kinds.moment_columns import timestamps
from penstock.kinds.table import OFFSET, on_the_minute

MARK = "\ufeff"

Append = Callable[[Any], None]


class Codec:
    """Reads and writes the events of one type.

    Sources and sinks use JSON. Stages exchange MessagePack, which keeps every value exactly. The batch dialect and Parquet use
    columns.
    """

    def __init__(self, event_type: type[Event]) -> None:
        self.event_type = event_type
        self.decode_json = json_decoder(event_type).decode
        self.encode_json = json_encoder().encode
        self.decode_msgpack = msgpack_decoder(event_type).decode
        self.decode_block = msgpack_decoder(list[event_type]).decode  # type: ignore[valid-type]
        self.encode_msgpack = msgpack_encoder().encode
        self._fields = fields = field_types(event_type)
        self.schema = arrow_schema(event_type)
        self.staged = arrow_schema(event_type, staged=True)
        """The schema of columns staged for a database: like `schema`, but some types hold more values."""
        self.flat = is_flat_event(event_type)
        """Whether every field is a plain scalar without further constraints on its values."""
        self._fits: Callable[[Any], bool] | None = None
        self._puts: Callable[[Append, Callable[[Any], Any]], Append] | None = None
        if self.flat:
            test, names = _fitting(event_type)
            self._fits = eval(f"lambda event: {test}", names)
            self._puts = eval(f"lambda append, checked: lambda event: append(event if {test} else checked(event))", names)
        self._elsewhere = _elsewhere(event_type)
        self._to_column = {name: to_column(annotation) for name, annotation in fields.items()}
        self._to_staged = {name: to_column(annotation, staged=True) for name, annotation in fields.items()}
        self._to_encoded = event_to_encoded(event_type)
        self._of_fields = in_order(event_type)
        self.floats = floats_of(event_type)
        """The fields that hold floats, and whether each may be None."""
        self.names = encoded_names(event_type)
        """The names of the fields in JSON, by field."""
        self._nested = {name: json_decoder(kind).decode for name, kind in fields.items() if is_nested(kind)}
        self._nothing, self._times = nothing_of(event_type, encoded=True), times_of(event_type)
        self._filled = filler_of(event_type)
        self._may_read_null = {name for name, kind in fields.items() if may_read_null(kind)}
        self._converted = lax_converter(event_type)
        self.clocks = any(holds(kind, time) for kind in fields.values())
        """Whether events may hold times of day, of which not all can be encoded."""

    def checked(self, event: Any) -> Any:
        """Check that an event's values have the types of its fields, which Python itself does not check.

        Returns the event. An event with lists, dicts or events in it is copied, so that an element cannot change it after
        emitting it.

        Raises:
            msgspec.ValidationError: a value does not have its field's type; names the field.
        """
        if self._fits is not None and self._fits(event):
            return event
        if self.clocks:
            for value in scalars_in(event):
                if type(value) is time and not on_the_minute(value):
                    raise msgspec.ValidationError(f"{value!r} is refused: {OFFSET}")
        return self.decode_msgpack(self.encode_msgpack(event))

    def appending(self, events: list[Any]) -> Append:
        """Return a function that appends to ``events`` what `checked` returns for an event, with fewer calls."""
        if self._puts is not None:
            return self._puts(events.append, self.checked)
        return lambda event: events.append(self.checked(event))

    def in_utc(self, events: list[Any]) -> list[Any]:
        """Return events with their times in UTC, as events are that were stored or sent on; the same list where all are."""
        if self._elsewhere is None or not self._elsewhere(events):
            return events
        moved: list[Any] = self.decode_block(self.encode_msgpack(events))
        return moved

    def to_columns(self, events: list[Any], *, staged: bool = False) -> pa.RecordBatch:
        """Return events as a record batch with the schema `schema`, or `staged`."""
        schema, changes = (self.staged, self._to_staged) if staged else (self.schema, self._to_column)
        columns = []
        for field in schema:
            values, change = list(map(attrgetter(field.name), events)), changes[field.name]
            try:
                if change is None and pa.types.is_timestamp(field.type):
                    columns.append(timestamps(values, field.type))
                else:
                    columns.append(pa.array(values if change is None else list(map(change, values)), field.type))
                refuse_beyond(columns[-1])
            except (pa.ArrowException, OverflowError, ValueError) as error:
                raise ValueError(f"Field {field.name} does not fit into a column of {field.type} ({error})") from error
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def from_columns(self, batch: pa.RecordBatch) -> list[Any]:
        """Return the events of a record batch that has the columns of `schema`.

        Raises:
            msgspec.ValidationError: a row is no valid event; not checked where the type is `flat`.
        """
        if self.flat:
            return list(map(self._of_fields, *self._lists(batch)))
        return self.from_rows(self._by_field(batch))

    def from_rows(self, rows: Iterable[dict[str, Any]]) -> list[Any]:
        """Return the events of rows, which are dicts by the names of fields, such as tables return.

        Raises:
            msgspec.ValidationError: a row is no valid event.
        """
        return [self._converted(self.encoded(row)) for row in rows]

    def shown(self, batch: pa.RecordBatch, row: int) -> Any:
        """Return one row of a record batch for a dead letter: as an event, or as a dict where it is no valid event."""
        single = batch.slice(row, 1)
        try:
            return self.from_columns(single)[0]
        except Exception:
            return single.to_pylist(maps_as_pydicts="strict")[0]

    def to_json(self, batch: pa.RecordBatch) -> list[bytes]:
        """Return the rows of a record batch as JSON. They are not validated; that is left to the reader."""
        return list(map(self.encode_json, self.rows(batch)))

    def rows(self, batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
        """Return the rows of a record batch as dicts by the fields' names in JSON."""
        return map(self.encoded, self._by_field(batch))

    def encoded(self, row: dict[str, Any]) -> dict[str, Any]:
        """Rename the keys of a row from the names of fields to their names in JSON."""
        return row if self._to_encoded is None else self._to_encoded(row)

    def _by_field(self, batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
        return (dict(zip(self.schema.names, values, strict=True)) for values in zip(*self._lists(batch), strict=True))

    def _lists(self, batch: pa.RecordBatch) -> list[list[Any]]:
        return [batch.column(name).to_pylist(maps_as_pydicts="strict") for name in self.schema.names]

    def from_line(self, line: bytes) -> Any:
        """Return an event whose only field is the text of a line in UTF-8, without a leading byte order mark.

        Raises:
            UnicodeDecodeError, msgspec.ValidationError: the line is not UTF-8, or the field does not allow the text.
        """
        text = line.decode()
        if text[:1] == MARK:
            text = text[1:]
        if self.flat:
            return self._of_fields(text)
        [name] = self.names.values()
        return convert({name: text}, self.event_type)

    def from_text(self, row: dict[str, str | None]) -> Any:
        """Return an event from text fields, such as those of a CSV line; a field that is None counts as missing.

        Raises:
            msgspec.ValidationError: a text does not convert to its field's type; names the field.
        """
        present = {name: value for name, value in row.items() if value is not None}
        refuse_numbers(present, self._times)
        return self._converted(self._nothing | self._opened(present))

    def _opened(self, texts: dict[str, Any]) -> dict[str, Any]:
        """Return texts by the fields' names in JSON; texts of lists, dicts and events are decoded from JSON."""
        return {
            self.names.get(name, name): self._nested[name](text) if name in self._nested else text
            for name, text in texts.items()
        }

    def from_message(self, payload: bytes, beside: dict[str, bytes | None]) -> Any:
        """Return an event from JSON and from texts of fields beside it, which take precedence over the JSON.

        Raises:
            msgspec.DecodeError, UnicodeDecodeError: the payload is no JSON, or a value has another type; names the field.
        """
        texts = self._of_texts(beside)
        if not is_writable(texts):  # they hold values that JSON lacks, such as NaN
            return convert(msgspec.json.decode(payload) | texts, self.event_type)
        values: dict[str, Any] = {**open_json(payload)}
        return self.decode_json(self.encode_json(values | texts))

    def from_values(self, values: dict[str, Any] | bytes, beside: dict[str, bytes | None]) -> Any:
        """Return an event from a dict of Python values, or from JSON, and from texts of fields beside it.

        Raises:
            msgspec.DecodeError, UnicodeDecodeError: the payload is no JSON, or a value has another type; names the field.
        """
        if isinstance(values, bytes):
            whole = self._nothing.keys() - beside.keys()
            if whole and whole - (present := open_json(values)).keys():  # a schema may let them be absent
                values = self.encode_json(self._nothing | present)
            return self.from_message(values, beside) if beside else self.decode_json(values)
        return convert(self._filled(values) | self._of_texts(beside), self.event_type)

    def _of_texts(self, beside: dict[str, bytes | None]) -> dict[str, Any]:
        return {self.names[name]: self._of_text(name, text) for name, text in beside.items() if text is not None}

    def _of_text(self, name: str, text: bytes) -> Any:
        annotation = self._fields[name]
        if plain(annotation) is bytes:
            return text
        try:
            if name in self._nested:
                return self._nested[name](text)
            if len(text) > SCHEMA_ID and text[:1] == b"\0":
                raise msgspec.ValidationError(
                    "Expected a text, got bytes that begin with the number of a schema: its producer uses a schema registry "
                    "for it"
                )
            texts = {name: text.decode()}
            refuse_numbers(texts, self._times)
            return convert(texts[name], annotation, strict=name in self._may_read_null)
        except msgspec.ValidationError as error:
            raise msgspec.ValidationError(f"{error} - at `$.{name}`") from error


SCHEMA_ID = 5
"""The length of the header, a zero byte and a schema id, with which producers that use a schema registry begin a value."""

open_json = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
"""Splits a JSON object into its fields, whose values stay undecoded."""


def _fitting(event_type: type[Event]) -> tuple[str, dict[str, Any]]:
    """Return an expression that tells whether a flat ``event`` has this type, and its values their fields' types; and the names
    in it.

    It is compiled for these fields, as it runs for each emitted event, and a loop over the fields takes five times as long.
    """
    fields = field_types(event_type)
    kinds = {f"type_of_{name}": plain(annotation) for name, annotation in fields.items()}
    tests = [
        f"(type(event.{name}) is type_of_{name}{ZONED.format(name) if plain(annotation) in (datetime, time) else ''}"
        f"{f' or event.{name} is None' if optional(annotation) else ''})"
        for name, annotation in fields.items()
    ]
    names = {"own_type": event_type, "utc": UTC, "on_the_minute": on_the_minute}
    return " and ".join(["type(event) is own_type", *tests]), kinds | names


ZONED = " and (event.{0}.tzinfo is utc or on_the_minute(event.{0}))"


def _elsewhere(event_type: type[Event]) -> Callable[[list[Any]], list[Any]] | None:
    """Return a function that returns those of many events that may have times in a zone other than UTC; None where none can.

    It is compiled for the same reason as that of `_fitting`.
    """
    own = times_of(event_type)
    if any(holds(annotation, datetime) for name, annotation in field_types(event_type).items() if name not in own):
        return lambda events: events  # in lists, dicts, or events within them
    if not own:
        return None
    test = " or ".join(f"(event.{name} is not None and event.{name}.tzinfo not in known)" for name in own)
    elsewhere: Callable[[list[Any]], list[Any]] = eval(
        f"lambda events: [event for event in events if {test}]", {"known": (UTC, None)}
    )
    return elsewhere
