"""A schema as registries keep it, and what every format can do with one."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from importlib import import_module
from keyword import iskeyword
from types import ModuleType, new_class
from typing import Any, Literal

import msgspec

from penstock.extras import needs
from penstock.kinds.event import Event

Kind = Literal["AVRO", "PROTOBUF", "JSON"]
"""A format, as registries call it."""

FORMATS: dict[str, Kind] = {"avro": "AVRO", "protobuf": "PROTOBUF", "json": "JSON"}
"""As users call them."""

Values = dict[str, Any]
"""What a message says of an event's fields, in Python's own types."""

_MODULES = {"AVRO": "avro", "PROTOBUF": "protobuf", "JSON": "json_schema"}


class Schema(msgspec.Struct, frozen=True):
    """A schema.

    Parameters
    ----------
    text: of an Avro schema or a JSON Schema, JSON; of Protobuf, a ``.proto`` file, whose first message is meant.
    parts: names and texts of the schemas that it refers to, each after those that it refers to itself.
    """

    kind: Kind
    text: str
    parts: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, event_type: type[Event], kind: Kind) -> "Schema":
        """The schema of an event type.

        Raises
        ------
        EventSchemaError: the format has nothing for a field's type.
        MissingExtraError: what reads the format is not installed.
        """
        text: str = _format(kind).text_of(event_type)
        return cls(kind, text)

    def event_type(self) -> type[Event]:
        """An event type whose events are the schema's.

        Raises
        ------
        EventSchemaError: it has something that no event can carry, or is no such schema.
        MissingExtraError: what reads the format is not installed.
        """
        made: type[Event] = _format(self.kind).event_type_of(self)
        return made

    def reader(self) -> Callable[[bytes], Values | bytes]:
        """What reads a message's payload (without what registries put before it); where it is JSON, that remains to be done.

        The reader raises what its library does where the payload is of another schema.

        Raises
        ------
        As `event_type`.
        """
        made: Callable[[bytes], Values | bytes] = _format(self.kind).reader_of(self)
        return made

    def writer(self) -> Callable[[Any], bytes]:
        """What writes an event as a payload; ``ValueError`` where the schema has no place for it.

        Raises
        ------
        As `event_type`.
        """
        made: Callable[[Any], bytes] = _format(self.kind).writer_of(self)
        return made


def _format(kind: Kind) -> ModuleType:
    with needs():
        return import_module(f"penstock.schemas.{_MODULES[kind]}")


def made_type(name: str, fields: Iterable[tuple[str, Any, Any]]) -> type[Event]:
    """An event type of fields, types and defaults (``msgspec.NODEFAULT`` for none); Python's own words get an underscore."""
    ordered = sorted(fields, key=lambda field: field[2] is not msgspec.NODEFAULT)  # those with defaults last
    names = {field: f"{field}_" if iskeyword(field) else field for field, _, _ in ordered}
    body: dict[str, Any] = {
        names[field]: default for field, _, default in ordered if default is not msgspec.NODEFAULT
    }  # of an empty list or dict, msgspec gives each event its own
    body |= {"__annotations__": {names[field]: kind for field, kind, _ in ordered}, "__module__": __name__}
    renamed = {python: field for field, python in names.items() if python != field}
    return new_class(name, (Event,), {"rename": renamed or None}, lambda namespace: namespace.update(body))


def zoned(moment: datetime) -> datetime:
    """A time with a zone: one without is of UTC, as it is in columns."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
