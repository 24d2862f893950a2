"""Codecs: events of one type as JSON, as MessagePack, and as Arrow columns."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
import pyarrow as pa

from penstock.kinds.annotations import demanding, optional, plain
from penstock.kinds.arrow import arrow_schema, refuse_beyond
from penstock.kinds.coding import convert, json_decoder, json_encoder, msgpack_decoder, msgpack_encoder
from penstock.kinds.event import Event, field_types
from penstock.kinds.fields import (
    encoded_names,
    event_to_encoded,
    floats_of,
    in_order,
    is_flat,
    is_nested,
    is_writable,
    nothing_of,
    refuse_numbers,
    times_of,
    to_column,
)

MARK = "\ufeff"


class Codec:
    """Reads and writes the events of one type.

    JSON is what enters and leaves; MessagePack, which keeps every value exactly, is what travels
    between stages; columns are what the batch dialect and Parquet work on.
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
        """As `schema`, of what waits to be loaded into a database: where it differs, it holds more values."""
        self.flat = all(map(is_flat, fields.values())) and not demanding(event_type)
        """Whether every field is a plain scalar, of which any value of its type will do."""
        self._fits = _fitting(fields) if self.flat else None
        self._to_column = {name: to_column(annotation) for name, annotation in fields.items()}
        self._to_staged = {name: to_column(annotation, staged=True) for name, annotation in fields.items()}
        self._to_encoded = event_to_encoded(event_type)
        self._of_fields = in_order(event_type)
        self.floats = floats_of(event_type)
        """The fields that hold floats, and whether each may be None."""
        self.names = encoded_names(event_type)
        """What JSON calls the fields."""
        self._nested = {name: json_decoder(kind).decode for name, kind in fields.items() if is_nested(kind)}
        self._nothing, self._times = nothing_of(event_type, encoded=True), times_of(event_type)

    def checked(self, event: Any) -> Any:
        """An event whose values are of its fields' types, as Python does not see to by itself.

        One that holds lists, dicts or events is copied, so that what an element does to them later
        does not change what it has emitted.

        Raises
        ------
        msgspec.ValidationError: a value is not of its field's type; names the field.
        """
        if self._fits is not None and self._fits(event):
            return event
        return self.decode_msgpack(self.encode_msgpack(event))

    def to_columns(self, events: list[Any], *, staged: bool = False) -> pa.RecordBatch:
        """Events as a record batch of `schema`, or of `staged`."""
        schema, changes = (self.staged, self._to_staged) if staged else (self.schema, self._to_column)
        columns = []
        for field in schema:
            values, change = [getattr(event, field.name) for event in events], changes[field.name]
            try:
                columns.append(pa.array(values if change is None else list(map(change, values)), field.type))
                refuse_beyond(columns[-1])
            except (pa.ArrowException, OverflowError, ValueError) as error:
                raise ValueError(f"Field {field.name} does not fit into a column of {field.type} ({error})") from error
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def from_columns(self, batch: pa.RecordBatch) -> list[Any]:
        """The events of a record batch whose columns are those of `schema`.

        Raises
        ------
        msgspec.ValidationError: the type does not allow one of them; of flat events that is not asked.
        """
        if self.flat:
            return list(map(self._of_fields, *self._lists(batch)))
        return self.from_rows(self._by_field(batch))

    def from_rows(self, rows: Iterable[dict[str, Any]]) -> list[Any]:
        """The events of rows by the names of their fields, as tables give them back.

        Raises
        ------
        msgspec.ValidationError: the type does not allow one of them.
        """
        return [convert(self.encoded(row), self.event_type, strict=False) for row in rows]

    def shown(self, batch: pa.RecordBatch, row: int) -> Any:
        """One event of a record batch, for a dead letter: the values of its fields, where they make none."""
        one = batch.slice(row, 1)
        try:
            return self.from_columns(one)[0]
        except Exception:
            return one.to_pylist(maps_as_pydicts="strict")[0]

    def to_json(self, batch: pa.RecordBatch) -> list[bytes]:
        """The rows of a record batch as JSON, whether or not they make events: who reads them will ask."""
        return list(map(self.encode_json, self.rows(batch)))

    def rows(self, batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
        """The rows of a record batch, by the names that JSON has for fields."""
        return map(self.encoded, self._by_field(batch))

    def encoded(self, row: dict[str, Any]) -> dict[str, Any]:
        """A row by the names of fields, by those that JSON has for them."""
        return row if self._to_encoded is None else self._to_encoded(row)

    def _by_field(self, batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
        return (dict(zip(self.schema.names, values, strict=True)) for values in zip(*self._lists(batch), strict=True))

    def _lists(self, batch: pa.RecordBatch) -> list[list[Any]]:
        return [batch.column(name).to_pylist(maps_as_pydicts="strict") for name in self.schema.names]

    def from_line(self, line: bytes) -> Any:
        """An event whose only field is a text, from its UTF-8, without the mark that a file may begin with.

        Raises
        ------
        UnicodeDecodeError, msgspec.ValidationError: it is no UTF-8, or the type does not allow it.
        """
        text = line.decode()
        if text[:1] == MARK:
            text = text[1:]
        if self.flat:
            return self._of_fields(text)
        [name] = self.names.values()
        return convert({name: text}, self.event_type)

    def from_text(self, row: dict[str, str | None]) -> Any:
        """An event from text fields, as a CSV line has them; an empty field is a missing one.

        Raises
        ------
        msgspec.ValidationError: names the field whose text does not read as its type.
        """
        given = {name: value for name, value in row.items() if value is not None}
        refuse_numbers(given, self._times)
        return convert(self._nothing | self._opened(given), self.event_type, strict=False)

    def _opened(self, texts: dict[str, Any]) -> dict[str, Any]:
        """Texts by the names that JSON has for fields; of lists, dicts and events they are JSON."""
        return {
            self.names.get(name, name): self._nested[name](text) if name in self._nested else text
            for name, text in texts.items()
        }

    def from_message(self, payload: bytes, beside: dict[str, bytes | None]) -> Any:
        """An event from JSON, and the texts of fields beside it, which replace what the JSON says of them.

        Raises
        ------
        msgspec.DecodeError, UnicodeDecodeError: it is no JSON, or of other types; names the field.
        """
        texts = self._of_texts(beside)
        if not is_writable(texts):  # which JSON does not have
            return convert(msgspec.json.decode(payload) | texts, self.event_type)
        values: dict[str, Any] = {**open_json(payload)}
        return self.decode_json(self.encode_json(values | texts))

    def from_values(self, values: dict[str, Any] | bytes, beside: dict[str, bytes | None]) -> Any:
        """An event from values in Python's own types, or from JSON, and the texts of fields beside it.

        Raises
        ------
        As `from_message`.
        """
        if isinstance(values, bytes):
            return self.from_message(values, beside) if beside else self.decode_json(values)
        return convert(self._nothing | values | self._of_texts(beside), self.event_type)

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
            return convert(texts[name], annotation, strict=False)
        except msgspec.ValidationError as error:
            raise msgspec.ValidationError(f"{error} - at `$.{name}`") from error


SCHEMA_ID = 5
"""The bytes, of which the first is 0, by which producers with a schema registry begin what they write."""

open_json = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
"""The fields of a JSON object, themselves undecoded."""


def _fitting(fields: dict[str, Any]) -> Callable[[Any], bool]:
    """Whether a flat event fits as it stands, by its values' types.

    Each event that is emitted is asked, so the question is compiled, as one would write it for these fields: a loop over them
    takes five times as long.
    """
    kinds = {f"type_of_{name}": plain(annotation) for name, annotation in fields.items()}
    tests = [
        f"(type(event.{name}) is type_of_{name}{f' or event.{name} is None' if optional(annotation) else ''})"
        for name, annotation in fields.items()
    ]
    fits: Callable[[Any], bool] = eval(f"lambda event: {' and '.join(tests)}", kinds)
    return fits
