"""The Python source of event types that were made from schemas, as an author would write it."""

import math
import typing
from collections.abc import Iterator
from datetime import date, time
from itertools import count
from typing import Any, Literal

import msgspec

from penstock.kinds.annotations import optional, plain
from penstock.kinds.event import Event, field_types


def source_code(event_type: type[Event]) -> str:
    """Return the source of a module that declares an event type: imports, nested event types, and the type itself."""
    kinds = list(_within(event_type))
    names = _Names({name for kind in kinds for name in kind.__struct_fields__}, {kind.__name__ for kind in kinds})
    bodies: dict[str, str] = {}
    for kind in kinds:
        # Types of one name and the same fields are one class; of those with others the later ones get a number.
        for number in count(1):
            name = kind.__name__ if number == 1 else f"{kind.__name__}{number}"
            body = _class(kind, name, names)
            is_free = kind is event_type or name not in names.fields | {event_type.__name__}
            if is_free and bodies.get(name, body) == body:
                break
        bodies[name], names.events[kind] = body, name
    imports = [f"from {module} import {', '.join(sorted(imported))}" for module, imported in sorted(names.imported.items())]
    base = "from penstock import Event" if names.base == "Event" else f"from penstock import Event as {names.base}"
    head = "".join(f"{line}\n" for line in [*imports, *([""] if imports else []), base])
    return head + "\n\n" + "\n\n".join(bodies.values())


class _Names:
    """How types are called in the source, where the name of a field hides that of a type within its class.

    Args:
        fields, classes: the names of all fields and of all classes.
    """

    def __init__(self, fields: set[str], classes: set[str]) -> None:
        self.fields, self._taken = fields, fields | classes
        self.base = self._free("Event")
        """The name of the base of all classes."""
        self.events: dict[type[Event], str] = {}
        self.imported: dict[str, set[str]] = {}
        """What is imported, by module."""

    def of(self, kind: Any) -> str:
        """Return the name of a type, and note that it is imported."""
        if kind in self.events:
            return self.events[kind]
        module, name = str(kind.__module__), str(kind.__name__)
        alias = self._free(name)
        if module != "builtins" or alias != name:
            self.imported.setdefault(module, set()).add(name if alias == name else f"{name} as {alias}")
        return alias

    def _free(self, name: str) -> str:
        while name in self._taken:
            name += "_"
        return name


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


def _class(kind: type[Event], name: str, names: _Names) -> str:
    annotations = field_types(kind)
    lines = []
    renamed = {}
    for info in msgspec.structs.fields(kind):
        default = "" if info.required else f" = {_default(info, names)}"
        lines.append(f"    {info.name}: {_spelled(annotations[info.name], names)}{default}\n")
        if info.name != info.encode_name:
            renamed[info.name] = info.encode_name
    bases = f"{names.base}, rename={renamed!r}" if renamed else names.base
    return f"class {name}({bases}):\n" + "".join(lines or ["    pass\n"])


def _default(info: msgspec.structs.FieldInfo, names: _Names) -> str:
    if info.default_factory is msgspec.NODEFAULT:
        return _value(info.default, names)
    value = info.default_factory()
    return f"{names.of(msgspec.field)}(default_factory=lambda: {_value(value, names)})" if value else repr(value)


def _value(value: Any, names: _Names) -> str:
    """Return the source of a default, or of a part of it."""
    kind = type(value)
    if isinstance(value, Event):
        parts = (f"{name}={_value(getattr(value, name), names)}" for name in value.__struct_fields__)
        return f"{names.of(kind)}({', '.join(parts)})"
    if isinstance(value, list):
        return f"[{', '.join(_value(part, names) for part in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_value(key, names)}: {_value(part, names)}' for key, part in value.items())}}}"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{names.of(float)}({str(value)!r})"
    if kind.__module__ == "builtins":
        return repr(value)
    if isinstance(value, date | time):
        return f"{names.of(kind)}.fromisoformat({value.isoformat()!r})"
    return names.of(kind) + repr(value).removeprefix("datetime.").removeprefix(kind.__name__)


def _spelled(annotation: Any, names: _Names) -> str:
    kind = plain(annotation)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is list:
        spelled = f"{names.of(list)}[{_spelled(arguments[0], names)}]"
    elif origin is dict:
        spelled = f"{names.of(dict)}[{names.of(str)}, {_spelled(arguments[1], names)}]"
    elif origin is Literal:
        spelled = f"{names.of(Literal)}[{', '.join(map(repr, arguments))}]"
    else:
        spelled = names.of(kind)
    return f"{spelled} | None" if optional(annotation) else spelled
