"""The names of types in schemas, by which formats tell them apart."""

from collections.abc import Callable
from typing import Any

from penstock.errors import EventSchemaError


def is_defined(kind: type, kinds: dict[str, type], definition: Callable[[type], Any]) -> bool:
    """Return whether a schema has a type already, and note that it has it from now on.

    Args:
        kinds: the schema's types by name.
        definition: returns what a schema says of a type, to compare two of one name.

    Raises:
        EventSchemaError: another type has that name.
    """
    first = kinds.get(kind.__name__)
    if first is None:
        kinds[kind.__name__] = kind
        return False
    if first is not kind and definition(first) != definition(kind):
        raise EventSchemaError(
            f"Two types are named {kind.__name__}, and a schema tells types apart by their names: {first.__module__}."
            f"{first.__qualname__} and {kind.__module__}.{kind.__qualname__}; give one of them another name."
        )
    return True
