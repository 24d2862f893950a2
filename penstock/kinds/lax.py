"""Converts values of which some may be texts of others, as columns of CSV and SQLite hold them."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from penstock.kinds.coding import convert
from penstock.kinds.event import Event, field_types
from penstock.kinds.fields import encoded_names, may_read_null


def lax_converter(event_type: type[Event]) -> Callable[[Mapping[str, Any]], Any]:
    """Return a function that makes an event of values by the fields' names in JSON.

    A lax conversion takes the text null for None, also where a choice has that name, or where it is Base64; here it stays.
    """
    names = encoded_names(event_type)
    may = {name: kind for name, kind in field_types(event_type, annotated=True).items() if may_read_null(kind)}

    def converted(values: Mapping[str, Any]) -> Any:
        event = convert(values, event_type, strict=False)
        for name, annotation in may.items():
            value = values.get(names[name])
            if value is not None and (not isinstance(value, str) or value.lower() == "null"):
                with suppress(msgspec.ValidationError):  # within it is another value that is a text
                    event = msgspec.structs.replace(event, **{name: convert(value, annotation)})
        return event

    return converted
