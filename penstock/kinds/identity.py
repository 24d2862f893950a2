"""When two keys are one: values that Python holds equal are written in one way, whatever they are made of.

So -0.0 is 0.0, 1.00 is 1, one instant is one in any zone, and a dict's entries are in one order; NaN, which equals nothing, is one key.
"""

import typing
from collections.abc import Callable
from typing import Any

import msgspec

from penstock.kinds.annotations import kind_of, plain
from penstock.kinds.event import Event, field_types

Spell = Callable[[Any], Any]


def spelling(annotation: Any) -> Spell | None:
    """What writes all equal values of a type in one way; None where they are written so already."""
    spell = _present(annotation)
    return None if spell is None else lambda value: None if value is None else spell(value)


def _present(annotation: Any) -> Spell | None:
    """As `spelling`, of values that are not None."""
    kind = plain(annotation)
    if typing.get_origin(kind) is list:
        inner = spelling(typing.get_args(kind)[0])
        return None if inner is None else lambda values: list(map(inner, values))
    if typing.get_origin(kind) is dict:
        each = spelling(typing.get_args(kind)[1]) or (lambda value: value)
        return lambda values: {name: each(values[name]) for name in sorted(values)}
    if isinstance(kind, type) and issubclass(kind, Event):
        return _of_event(kind)
    scalar = kind_of(annotation)
    return None if scalar is None else scalar.identity


def _of_event(kind: type[Event]) -> Spell | None:
    fields = {name: spell for name, annotation in field_types(kind).items() if (spell := spelling(annotation))}
    if not fields:
        return None
    return lambda event: msgspec.structs.replace(
        event, **{name: spell(getattr(event, name)) for name, spell in fields.items()}
    )
