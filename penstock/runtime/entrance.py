"""Events that enter a stage from a source: decoded, or kept as dead letters."""

from codecs import BOM_UTF8
from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from penstock.app.stream import Source
from penstock.kinds.coding import json_encoder
from penstock.kinds.moment_columns import all_microseconds
from penstock.runtime.events import EventBatch
from penstock.runtime.letters import shown
from penstock.runtime.lineage import NONE, LineageColumns
from penstock.runtime.places import Seen
from penstock.runtime.stage import Stage

_encode = json_encoder().encode
Fit = Callable[[dict[str, Any] | bytes], Any]
"""Makes an event from a message's values: a dict of Python values, or JSON."""


class Misfit(NamedTuple):
    """A row of a source that is known to be no event, and the reason."""

    row: Any
    reason: str


class Entrance:
    """Decodes the rows of one source into events and hands them to a stage; what fails becomes a dead letter."""

    def __init__(self, stage: Stage, source: Source[Any]) -> None:
        self.greatest_time = NONE
        """The greatest event time of the events that have entered here; microseconds since the epoch."""
        self._stage, self._source = stage, source
        self._codec = stage.wiring.codec(source.event_type)
        self._tally = stage.tally.source(source.name)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the source's events."""
        return self._codec.schema

    @property
    def grouped(self) -> bool:
        """Whether streams come to this group from others, or go to them."""
        return self._stage.wiring.grouped

    def note_taken(self, lineage: LineageColumns) -> None:
        """Count events that another group has handed on."""
        self._stage.tally.taken.setdefault(self._source.name, Seen()).add_handed(lineage)

    def take(self, rows: Any, kind: str, lineage: LineageColumns, read: Callable[[bytes, Fit], Any] | None = None) -> None:
        """Take rows of a kind (`penstock.connectors.source.RowKind`), or a record batch with the events' columns.

        Args:
            read: decodes framed messages; needed for these only.
        """
        if isinstance(rows, pa.RecordBatch):
            self.columns(rows, lineage)
        elif kind in ("lines", "json"):
            self.json(rows, lineage, lines=kind == "lines")
        elif kind == "messages":
            self.messages(rows, lineage)
        elif kind == "framed":
            assert read is not None
            self.framed(rows, lineage, read)
        elif kind == "texts":
            self.texts(rows, lineage)
        else:
            self.rows(rows, lineage)

    def json(self, payloads: list[bytes], lineage: LineageColumns, *, lines: bool = True) -> None:
        """Decode JSON events; those that fail become dead letters. Blank lines are skipped."""
        decode = self._codec.decode_json
        self._tally.rows += len(payloads)
        try:
            events = self._codec.in_utc(list(map(decode, payloads)))
        except Exception:
            payloads = [payload.removeprefix(BOM_UTF8) for payload in payloads]  # a file may begin with it
            whole = [row for row, payload in enumerate(payloads) if payload.strip() or not lines]
            self._tally.blank += len(payloads) - len(whole)
            self._decode_each([payloads[row] for row in whole], lineage.take(whole), decode, bytes)
        else:
            self._tally.accepted += len(events)
            self._enter(EventBatch(self._source, lineage, events=events))

    def given(self, events: list[Any], lineage: LineageColumns) -> None:
        """Take events as objects, or as JSON in bytes that must still be decoded."""
        kinds, codec = set(map(type, events)), self._codec
        if kinds <= {bytes}:
            self.json(events, lineage)
            return
        self._tally.rows += len(events)
        if kinds == {codec.event_type} and not codec.clocks:
            try:
                own = codec.decode_block(codec.encode_msgpack(events))
            except Exception:  # the faulty event is found below, one by one
                pass
            else:
                self._tally.accepted += len(events)
                self._enter(EventBatch(self._source, lineage, events=own))
                return

        def decode(event: Any) -> Any:
            return codec.decode_json(event) if isinstance(event, bytes) else codec.checked(event)

        self._decode_each(events, lineage, decode, lambda event: event if isinstance(event, bytes) else shown(event).encode())

    def messages(self, rows: list[dict[str, Any]], lineage: LineageColumns) -> None:
        """Decode JSON events some of whose fields stand beside the JSON, in a message's key and headers."""
        self._tally.rows += len(rows)
        decode = self._codec.from_message
        self._decode_each(rows, lineage, lambda row: decode(row["payload"], row["beside"]), lambda row: bytes(row["payload"]))

    def framed(self, rows: list[dict[str, Any]], lineage: LineageColumns, read: Callable[[bytes, Fit], Any]) -> None:
        """Decode messages whose schemas are in a registry; some fields may stand beside the payload."""
        self._tally.rows += len(rows)
        make = self._codec.from_values

        def decode(row: dict[str, Any]) -> Any:
            return read(row["payload"], lambda values: make(values, row.get("beside") or {}))

        self._decode_each(rows, lineage, decode, lambda row: bytes(row["payload"]))

    def texts(self, payloads: list[bytes], lineage: LineageColumns) -> None:
        """Decode events whose only field is a text, from lines in UTF-8."""
        self._tally.rows += len(payloads)
        decode = self._codec.from_line
        try:
            events = list(map(decode, payloads))
        except Exception:
            self._decode_each(payloads, lineage, decode, bytes)
        else:
            self._tally.accepted += len(events)
            self._enter(EventBatch(self._source, lineage, events=events))

    def rows(self, rows: list[Any], lineage: LineageColumns) -> None:
        """Decode events from text fields (CSV); each `Misfit` becomes a dead letter."""
        self._tally.rows += len(rows)
        decode = self._codec.from_text

        def fit(row: Any) -> Any:
            if isinstance(row, Misfit):
                raise ValueError(row.reason)
            return decode(row)

        self._decode_each(rows, lineage, fit, lambda row: _raw(row.row if isinstance(row, Misfit) else row))

    def columns(self, columns: pa.RecordBatch, lineage: LineageColumns) -> None:
        """Take events that come as typed columns (Parquet); their types were checked at the start."""
        self._tally.rows += columns.num_rows
        codec = self._codec
        if not codec.flat:  # Arrow types do not check, say, the members of an Enum or a least value
            rows = [columns.slice(index, 1) for index in range(columns.num_rows)]
            self._decode_each(rows, lineage, lambda row: codec.from_columns(row)[0], _shown_row)
            return
        self._tally.accepted += columns.num_rows
        required = [field.name for field in codec.schema if not field.nullable and columns.column(field.name).null_count]
        if required:
            columns, lineage = self._reject_nulls(columns, lineage, required)
        self._enter(EventBatch(self._source, lineage, columns=columns))

    def _decode_each(
        self, rows: list[Any], lineage: LineageColumns, decode: Callable[[Any], Any], raw: Callable[[Any], bytes]
    ) -> None:
        self._tally.accepted += len(rows)
        events, good = [], []
        for index, row in enumerate(rows):
            try:
                events += self._codec.in_utc([decode(row)])
                good.append(index)
            except Exception as error:  # invalid JSON, a wrong type, or JSON nested too deep, say
                self._stage.letters.reject(self._source, raw(row), error, lineage.row(index))
        self._enter(EventBatch(self._source, lineage.take(good), events=events))

    def _reject_nulls(
        self, columns: pa.RecordBatch, lineage: LineageColumns, required: list[str]
    ) -> tuple[pa.RecordBatch, LineageColumns]:
        bad = np.zeros(columns.num_rows, dtype=bool)
        for name in required:
            bad |= columns.column(name).is_null().to_numpy(zero_copy_only=False)
        for index in np.flatnonzero(bad).tolist():
            row = columns.slice(index, 1)
            missing = ", ".join(name for name in required if row.column(name).null_count)
            kind = self._source.event_type.__name__
            error = ValueError(f"Field {missing} is null, and {kind} does not make it optional")
            self._stage.letters.reject(self._source, _shown_row(row), error, lineage.row(index))
        good = np.flatnonzero(~bad)
        return columns.take(pa.array(good)), lineage.take(good)

    def _enter(self, batch: EventBatch) -> None:
        event_time = self._source.event_time
        if event_time is not None and len(batch):
            own_time = attrgetter(event_time.field)
            times = all_microseconds(list(map(own_time, batch.events(self._stage.wiring))))
            batch.lineage = batch.lineage._replace(time=times)
            self.greatest_time = max(self.greatest_time, int(times.max()))
            self._tally.newest_us = max(self._tally.newest_us, self.greatest_time)
        self._stage.greatest_time = max(self._stage.greatest_time, self.greatest_time)
        self._stage.route(batch)


def _raw(row: Any) -> bytes:
    return row.encode("utf-8", "backslashreplace") if isinstance(row, str) else msgspec.json.encode(row, enc_hook=str)


def _shown_row(row: pa.RecordBatch) -> bytes:
    return msgspec.json.encode(row.to_pylist()[0], enc_hook=str)
