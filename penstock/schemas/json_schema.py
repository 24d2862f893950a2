"""JSON Schema: schemas and messages, which are plain JSON. Only the schemas need code of their own for reading."""

import json
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from penstock.errors import EventSchemaError
from penstock.kinds.annotations import optional
from penstock.kinds.coding import convert, json_encoder, to_builtins
from penstock.kinds.coding import json_schema as schema_of_event
from penstock.kinds.event import Event
from penstock.kinds.fields import encoded_names, floats_of, refuse_unwritable
from penstock.kinds.table import kinds
from penstock.schemas.schema import Schema, Values, absent_in, default_of, made_type, note_absent

DRAFT = "https://json-schema.org/draft/2020-12/schema"
SCALARS = {"string": str, "integer": int, "number": float, "boolean": bool}


def text_of(event_type: type[Event]) -> str:
    """Return the JSON Schema of an event type, as JSON."""
    whole = schema_of_event(event_type)
    parts = whole.pop("$defs", {})
    if "$ref" in whole:  # registries expect the type at the top level, not by a reference
        whole = parts.pop(whole["$ref"].rpartition("/")[2])
    return json.dumps({"$schema": DRAFT, **whole, **({"$defs": parts} if parts else {})})


def event_type_of(schema: Schema) -> type[Event]:
    """Return an event type for a schema, which must describe an object."""
    try:
        whole = json.loads(schema.text)
    except ValueError as error:
        raise EventSchemaError(f"This is no JSON Schema ({error}): {schema.text[:200]}") from error
    title = str(whole.get("title", "Made")) if isinstance(whole, dict) else "Made"
    kind = _Reading(whole, dict(schema.parts)).python(whole, title, ())
    if not (isinstance(kind, type) and issubclass(kind, Event)):
        raise EventSchemaError("The JSON Schema is no object with properties, which an event must be.")
    return kind


def reader_of(schema: Schema) -> Callable[[bytes], Values | bytes]:
    """Return a reader that returns payloads unchanged, as the event type decodes JSON itself."""
    return bytes


def writer_of(schema: Schema) -> Callable[[Any], bytes]:
    """Return a writer of events as JSON, with only the fields that the schema has."""
    made = event_type_of(schema)
    encode, floats = json_encoder().encode, floats_of(made)

    def write(event: Any) -> bytes:
        fitted = convert(to_builtins(event), made)
        refuse_unwritable(fitted, floats)
        return encode(_present(fitted))

    return write


def _present(value: Any) -> Any:
    """Return a value with its events as dicts, from which None is left out where the schema has no null."""
    if isinstance(value, Event):
        absent = absent_in(type(value))
        values = {encoded: getattr(value, name) for name, encoded in encoded_names(type(value)).items()}
        return {name: _present(value) for name, value in values.items() if value is not None or name not in absent}
    if isinstance(value, dict):
        return {key: _present(each) for key, each in value.items()}
    return [_present(each) for each in value] if isinstance(value, list) else value


class _Reading:
    """Translates one schema to annotations.

    Args:
        whole: the decoded schema.
        parts: the texts of other schemas that it refers to, by name.
    """

    def __init__(self, whole: Any, parts: dict[str, str]) -> None:
        self._whole, self._parts = whole, parts

    def python(self, kind: Any, name: str, inside: tuple[str, ...]) -> Any:
        """Return the annotation for a part; ``name`` is for an object's event type, ``inside`` the references that led here."""
        if not isinstance(kind, dict):  # `true` is a schema, too
            raise EventSchemaError(f"JSON Schema's {name} is {json.dumps(kind)[:60]}, which does not say of what type it is.")
        if "$ref" in kind:
            return self._referred(kind["$ref"], inside)
        if "enum" in kind or "const" in kind:
            return self._choice(kind["enum"] if "enum" in kind else [kind["const"]])
        for union in ("anyOf", "oneOf"):
            if union in kind:
                return self._union(kind[union], name, inside)
        form = kind.get("type")
        if isinstance(form, list):
            return self._union([{**kind, "type": each} for each in form], name, inside)
        if form == "object" or "properties" in kind:
            return self._object(kind, name, inside)
        if form == "array":
            return list[self.python(kind.get("items", {}), name, inside)]  # type: ignore[misc]
        if form == "string":
            return bytes if kind.get("contentEncoding") == "base64" else formatted(kind.get("format", ""))
        if form in SCALARS:
            return SCALARS[form]
        raise EventSchemaError(f"JSON Schema's {json.dumps(kind)[:100]} has no counterpart among the types of events.")

    def _referred(self, place: str, inside: tuple[str, ...]) -> Any:
        """Return the annotation for a reference, ``DOCUMENT#POINTER``; without a document, into the schema itself."""
        if place in inside:
            raise EventSchemaError(f"JSON Schema's {place} holds itself, which no event can.")
        document, _, pointer = place.partition("#")
        try:
            target = json.loads(self._parts[document]) if document else self._whole
            for step in filter(None, pointer.split("/")):
                target = target[step.replace("~1", "/").replace("~0", "~")]
        except (KeyError, ValueError, TypeError) as error:
            raise EventSchemaError(f"JSON Schema's {place} is not to be found.") from error
        own = _Reading(json.loads(self._parts[document]), self._parts) if document else self
        title = target.get("title") if isinstance(target, dict) else None
        return own.python(target, str(title or pointer.rpartition("/")[2] or "Made"), (*inside, place))

    def _choice(self, values: list[Any]) -> Any:
        kinds = {type(value) for value in values if value is not None}
        if len(kinds) != 1 or not kinds <= {str, int}:
            raise EventSchemaError(f"JSON Schema's enum {values} may hold only strings, or only integers, besides null.")
        choice: Any = Literal[tuple(value for value in values if value is not None)]
        return choice | None if None in values else choice

    def _union(self, kinds: list[Any], name: str, inside: tuple[str, ...]) -> Any:
        others = [kind for kind in kinds if not isinstance(kind, dict) or kind.get("type") != "null"]
        if len(others) != 1:
            raise EventSchemaError(f"JSON Schema's {name} is of several types; an event's field may have one type, or null.")
        python = self.python(others[0], name, inside)
        return python | None if len(kinds) > 1 else python

    def _object(self, kind: Any, name: str, inside: tuple[str, ...]) -> Any:
        if "properties" not in kind:
            more = kind.get("additionalProperties")
            if not isinstance(more, dict):
                raise EventSchemaError(f"JSON Schema's {name} has neither properties nor a schema as additionalProperties.")
            return dict[str, self.python(more, name, inside)]  # type: ignore[misc]
        required = set(kind.get("required", ()))
        fields, absent = list[tuple[str, Any, Any]](), set[str]()
        for field, described in kind["properties"].items():
            python = self.python(described, field.title(), inside)
            given = described.get("default") if isinstance(described, dict) else None
            default = msgspec.NODEFAULT if given is None else default_of(given, python)
            if field in required:
                fields.append((field, python, msgspec.NODEFAULT))
            elif default is not msgspec.NODEFAULT:
                fields.append((field, python, default))
            else:
                fields.append((field, python | None, None))
                if not optional(python):
                    absent.add(field)
        made = made_type("".join(part.title() if part.islower() else part for part in name.split()), fields)
        note_absent(made, absent)
        return made


def formatted(form: str) -> type:
    """Return the Python type for a string with a ``format`` in JSON Schema; `str` if the format is unknown."""
    return next((kind.python for kind in kinds() if form and kind.json_schema == form), str)
