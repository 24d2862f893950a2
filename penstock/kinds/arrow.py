"""Columns of events: the Arrow types of their fields."""

import typing
from typing import Any

import pyarrow as pa

from penstock.kinds.annotations import optional, plain, scalar_of
from penstock.kinds.event import Event, field_types


def arrow_schema(event_type: type[Event], *, staged: bool = False) -> pa.Schema:
    """The columns of an event type.

    Parameters
    ----------
    staged: of what waits to be loaded into a database, which holds values that columns do not.
    """
    annotations = field_types(event_type, annotated=True)
    return pa.schema([_field(name, annotation, staged) for name, annotation in annotations.items()])


def _field(name: str, annotation: Any, staged: bool) -> pa.Field:
    return pa.field(name, _type(annotation, staged), nullable=optional(annotation))


def _type(annotation: Any, staged: bool) -> pa.DataType:
    kind = plain(annotation)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is list:
        return pa.list_(_type(arguments[0], staged))
    if origin is dict:
        return pa.map_(pa.string(), _type(arguments[1], staged))
    if isinstance(kind, type) and issubclass(kind, Event):
        # Spark cannot cast to a nested field that is never null; from_columns refuses a null in one that needs a value.
        fields = field_types(kind, annotated=True).items()
        return pa.struct([_field(name, inner, staged).with_nullable(True) for name, inner in fields])
    scalar = scalar_of(annotation)
    return ((staged and scalar.staged) or scalar.arrow)()
