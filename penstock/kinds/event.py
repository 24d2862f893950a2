"""Events: typed, immutable records; and the check that the type of every field is supported."""

import types
import typing
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any, dataclass_transform

import msgspec

from penstock.errors import EventSchemaError
from penstock.kinds.defaults import changeable_defaults
from penstock.kinds.table import kind_of_type, kinds


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class _EventMeta(msgspec.StructMeta):
    """Tells type checkers that every event is frozen, as `Event` makes it."""


class Event(msgspec.Struct, metaclass=_EventMeta, frozen=True):
    """A typed record; subclass it and annotate the fields.

    >>> class Word(Event):
    ...     text: str
    ...     length: int = 0
    >>> Word("stream")
    Word(text='stream', length=0)

    Events are immutable, because several elements may receive one event object.
    """


def field_types(event_type: type[Event], *, annotated: bool = False) -> dict[str, Any]:
    """Return the annotations of an event type's fields, by name, in declaration order.

    Args:
        annotated: whether to keep `Annotated` with its metadata.
    """
    hints = typing.get_type_hints(event_type, include_extras=annotated)
    return {name: hints[name] for name in event_type.__struct_fields__}


def check_event_type(event_type: Any) -> None:
    """Refuse a class that is no event type, or an event type with a field that no stream can carry.

    Raises:
        EventSchemaError: the class cannot be an event type; for a field, names it, its type, and the types allowed.
    """
    if not (isinstance(event_type, type) and issubclass(event_type, Event)):
        raise EventSchemaError(
            f"{event_type!r} is not an event type: write `class {_class_name(event_type)}(Event): ...` with typed fields."
        )
    if event_type.__struct_config__.array_like:
        raise EventSchemaError(
            f"Event {event_type.__name__} is array_like, but columns, keys and headers need named fields: leave array_like out."
        )
    try:
        fields = field_types(event_type)
    except (NameError, TypeError) as error:
        raise EventSchemaError(f"The fields of event {event_type.__name__} cannot be read: {error}.") from error
    if not fields:
        raise EventSchemaError(f"Event {event_type.__name__} has no fields: annotate at least one, as `text: str`.")
    for name, annotation in fields.items():
        for path, bad in _unsupported(annotation, f"{event_type.__name__}.{name}", (event_type,)):
            raise EventSchemaError(f"Field {path} has type {shown(bad)}; a field may be {allowed()}.")
    for name in changeable_defaults(event_type):
        raise EventSchemaError(
            f"Field {event_type.__name__}.{name} has a default that can be changed, and that all events would share: write "
            f"{name}: ... = msgspec.field(default_factory=...)."
        )


def allowed() -> str:
    """Return a list, in words, of the types that a field may have."""
    scalars = ", ".join(kind.python.__name__ for kind in kinds() if not kind.naive)
    choices = "an Enum or a Literal of texts or of whole numbers of 64 bits"
    return f"{scalars}, {choices}, a nested Event of another type, list[...], dict[str, ...] and `... | None`"


def _unsupported(annotation: Any, path: str, around: tuple[Any, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield the path and type of each part of an annotation that no stream can carry; ``around`` are the events around it."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        yield from _unsupported(arguments[0], path, around)
    elif origin in (typing.Union, types.UnionType):
        members = [member for member in arguments if member is not type(None)]
        if len(members) != 1:
            yield path, annotation
        else:
            yield from _unsupported(members[0], path, around)
    elif origin is typing.Literal:
        if not _are_choices(arguments):
            yield path, annotation
    elif origin is list:
        yield from _unsupported(arguments[0], f"{path}[]", around)
    elif origin is dict:
        if arguments[0] is not str:
            yield path, annotation
        yield from _unsupported(arguments[1], f"{path}{{}}", around)
    elif isinstance(annotation, type) and issubclass(annotation, Event):
        if annotation.__struct_config__.array_like or annotation in around:  # no column can hold an event within itself
            yield path, annotation
            return
        for name, inner in field_types(annotation).items():
            yield from _unsupported(inner, f"{path}.{name}", (*around, annotation))
    elif isinstance(annotation, type) and issubclass(annotation, Enum):
        if not _are_choices([member.value for member in annotation]):
            yield path, annotation
    elif not _is_scalar(annotation):
        yield path, annotation


def _are_choices(values: Sequence[Any]) -> bool:
    """Whether values can be those of an Enum or a Literal: all of them texts, or all of them whole numbers of 64 bits."""
    types = {type(value) for value in values}
    return types == {str} or (types == {int} and all(-(2**63) <= value < 2**63 for value in values))


def _is_scalar(annotation: Any) -> bool:
    """Whether there is a kind for a type itself; a class derived from such a type would come back as that."""
    kind = kind_of_type(annotation) if isinstance(annotation, type) else None
    return kind is not None and (kind.python is annotation or kind.encode is not None)


def shown(annotation: Any) -> str:
    """Return an annotation as it is written."""
    return annotation.__name__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")


def _class_name(thing: Any) -> str:
    return thing.__name__ if isinstance(thing, type) else "Name"
