"""The Python source of event types that were made from schemas, as an author would write it."""

import typing
from collections.abc import Iterator
from itertools import count
from typing import Any, Literal

import msgspec

from penstock.kinds.annotations import optional, plain
from penstock.kinds.event import Event, field_types

BUILT_IN = (bool, int, float, str, bytes)


def source_code(event_type: type[Event]) -> str:
    """Return the source of a module that declares an event type: imports, nested event types, and the type itself."""
    imported: dict[str, set[str]] = {}  # names by module, to which `_class` adds
    names: dict[type[Event], str] = {}
    bodies: dict[str, str] = {}
    for kind in _within(event_type):
        # Types of one name and the same fields are one class; of those with others the later ones get a number.
        for number in count(1):
            name = kind.__name__ if number == 1 else f"{kind.__name__}{number}"
            body = _class(kind, name, names, imported)
            if bodies.get(name, body) == body and (name != event_type.__name__ or kind is event_type):
                break
        bodies[name], names[kind] = body, name
    imports = [f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(imported.items())]
    head = "".join(f"{line}\n" for line in [*imports, *([""] if imports else []), "from penstock import Event"])
    return head + "\n\n" + "\n\n".join(bodies.values())


def _within(event_type: type[Event]) -> Iterator[type[Event]]:
    for annotation in field_types(event_type).values():
        for kind in _kinds(annotation):
            if isinstance(kind, type) and issubclass(kind, Event):
                yield from _within(kind)
    yield event_type


def _kinds(annotation: Any) -> Iterator[Any]:
    kind = plain(annotation)
    if typing.get_origin(kind) in (list, dict):
        yield from _kinds(typing.get_args(kind)[-1])
    else:
        yield kind


def _class(kind: type[Event], name: str, names: dict[type[Event], str], found: dict[str, set[str]]) -> str:
    annotations = field_types(kind)
    lines = []
    renamed = {}
    for info in msgspec.structs.fields(kind):
        default = "" if info.required else f" = {_default(info, found)}"
        lines.append(f"    {info.name}: {_spelled(annotations[info.name], names, found)}{default}\n")
        if info.name != info.encode_name:
            renamed[info.name] = info.encode_name
    bases = f"Event, rename={renamed!r}" if renamed else "Event"
    return f"class {name}({bases}):\n{''.join(lines)}"


def _default(info: msgspec.structs.FieldInfo, found: dict[str, set[str]]) -> str:
    if info.default_factory is not msgspec.NODEFAULT:
        return repr(info.default_factory())
    kind = type(info.default)
    if kind.__module__ not in ("builtins",):
        found.setdefault(kind.__module__, set()).add(kind.__name__)
    return repr(info.default).removeprefix("datetime.")


def _spelled(annotation: Any, names: dict[type[Event], str], found: dict[str, set[str]]) -> str:
    kind = plain(annotation)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is list:
        spelled = f"list[{_spelled(arguments[0], names, found)}]"
    elif origin is dict:
        spelled = f"dict[str, {_spelled(arguments[1], names, found)}]"
    elif origin is Literal:
        found.setdefault("typing", set()).add("Literal")
        spelled = f"Literal[{', '.join(map(repr, arguments))}]"
    else:
        spelled = names.get(kind, kind.__name__)
        if kind not in BUILT_IN and not issubclass(kind, Event):
            found.setdefault(kind.__module__, set()).add(kind.__name__)
    return f"{spelled} | None" if optional(annotation) else spelled
