"""Schemas as schema registries store them, and what can be done with a schema of any format."""

import re
from collections.abc import Callable, Iterable
from copy import deepcopy
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from keyword import iskeyword
from types import ModuleType, new_class
from typing import Any, Literal
from weakref import WeakKeyDictionary

import msgspec

from penstock.errors import EventSchemaError
from penstock.extras import needs
from penstock.kinds.coding import convert
from penstock.kinds.event import Event
from penstock.kinds.fields import is_immutable

Kind = Literal["AVRO", "PROTOBUF", "JSON"]
"""The formats of schemas, by the names that schema registries use."""

FORMATS: dict[str, Kind] = {"avro": "AVRO", "protobuf": "PROTOBUF", "json": "JSON"}
"""The formats by the names that users write."""

Values = dict[str, Any]
"""The values that a message has for an event's fields, by field, as Python objects."""

_MODULES = {"AVRO": "avro", "PROTOBUF": "protobuf", "JSON": "json_schema"}


class Schema(msgspec.Struct, frozen=True):
    """A schema of messages, in one of the formats.

    Args:
        text: JSON for Avro and JSON Schema; for Protobuf a ``.proto`` file, whose first message is the type of events.
        parts: names and texts of the schemas that it refers to; a schema comes after the ones that it refers to itself.
    """

    kind: Kind
    text: str
    parts: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, event_type: type[Event], kind: Kind) -> "Schema":
        """Return the schema of an event type.

        Raises:
            EventSchemaError: the format cannot represent a field's type.
            MissingExtraError: the library for the format is not installed.
        """
        text: str = _format(kind).text_of(event_type)
        return cls(kind, text)

    def event_type(self) -> type[Event]:
        """Return an event type for messages of the schema.

        Raises:
            EventSchemaError: the schema has a type that no event can hold, or is not valid in its format.
            MissingExtraError: the library for the format is not installed.
        """
        try:
            made: type[Event] = _format(self.kind).event_type_of(self)
        except EventSchemaError:
            raise
        except (TypeError, AttributeError, ValueError, LookupError, RecursionError) as error:  # of a part that has another form
            raise EventSchemaError(f"The schema has a part that is not of its format ({error!r}): {self.text[:200]}") from error
        return made

    def reader(self) -> Callable[[bytes], Values | bytes]:
        """Return a function that decodes a message's payload, without the header of a registry; JSON is returned undecoded.

        If a payload is of another schema, the function raises the error of the format's library.

        Raises:
            EventSchemaError: the schema has a type that no event can hold, or is not valid in its format.
            MissingExtraError: the library for the format is not installed.
        """
        made: Callable[[bytes], Values | bytes] = _format(self.kind).reader_of(self)
        return made

    def writer(self) -> Callable[[Any], bytes]:
        """Return a function that encodes an event as a payload; it raises ``ValueError`` if the event does not fit the schema.

        Raises:
            EventSchemaError: the schema has a type that no event can hold, or is not valid in its format.
            MissingExtraError: the library for the format is not installed.
        """
        made: Callable[[Any], bytes] = _format(self.kind).writer_of(self)
        return made


def _format(kind: Kind) -> ModuleType:
    with needs():
        return import_module(f"penstock.schemas.{_MODULES[kind]}")


def made_type(name: str, fields: Iterable[tuple[str, Any, Any]]) -> type[Event]:
    """Make an event type of names, types and defaults (or ``msgspec.NODEFAULT``).

    A name that Python does not take, such as a keyword or ``user-id``, stands in JSON only; the field has a similar one.
    """
    ordered = sorted(fields, key=lambda field: field[2] is not msgspec.NODEFAULT)  # msgspec wants required fields first
    names: dict[str, str] = {}
    for field, _, _ in sorted(ordered, key=lambda field: _similar(field[0]) != field[0]):  # those that can be stay
        python = _similar(field)
        while python in names.values():
            python += "_"
        names[field] = python
    body: dict[str, Any] = {
        names[field]: own_default(default) for field, _, default in ordered if default is not msgspec.NODEFAULT
    }
    body |= {"__annotations__": {names[field]: kind for field, kind, _ in ordered}, "__module__": __name__}
    renamed = {python: field for field, python in names.items() if python != field}
    return new_class(_similar(name), (Event,), {"rename": renamed or None}, lambda namespace: namespace.update(body))


def own_default(value: Any) -> Any:
    """Return a default of a field that is each event's own, where it is a list or a dict, or an event that holds one."""
    is_filled = isinstance(value, list | dict) and value  # msgspec copies empty ones itself
    is_shared = is_filled or (isinstance(value, Event) and not is_immutable(type(value)))
    return msgspec.field(default_factory=partial(deepcopy, value)) if is_shared else value


_ABSENT: WeakKeyDictionary[type[Event], frozenset[str]] = WeakKeyDictionary()


def note_absent(made: type[Event], names: Iterable[str]) -> None:
    """Note the encoded names of a made type's fields that are None only where a message lacks them, as they are never null."""
    _ABSENT[made] = frozenset(names)


def absent_in(kind: type[Event]) -> frozenset[str]:
    """Return the names that were noted for a type by `note_absent`."""
    return _ABSENT.get(kind, frozenset())


def default_of(given: Any, kind: Any) -> Any:
    """Return a schema's default as a value of a type; ``msgspec.NODEFAULT`` if it is of another type."""
    try:
        return convert(given, kind, strict=False)
    except msgspec.ValidationError:  # such as a number of days for a date
        return msgspec.NODEFAULT


def _similar(name: str) -> str:
    """Return the name itself where a field can have it, else a similar one that a field can have."""
    python = re.sub(r"\W", "_", name) or "field"
    if python[0].isdigit() or python.startswith("__"):
        python = f"field_{python.lstrip('_')}"
    return f"{python}_" if iskeyword(python) else python


def zoned(moment: datetime) -> datetime:
    """Return a time with a zone: UTC is added to a time without one, as in columns."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
