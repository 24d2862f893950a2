"""The shape of a type's stored values, as complete JSON, and the check whether values of one shape can be read as another.

Values are stored as MessagePack by msgspec: the fields of events by name, those of tuples by position, an enumeration's member
by its value. Stored state is never rewritten as a whole, so a type must be able to read the values that any earlier version of
it has written.
"""

from collections.abc import Mapping
from typing import Any, cast

import msgspec
from msgspec import inspect

from penstock.kinds.table import kind_of_type

Shape = Any
"""JSON: the name of a scalar type, or a list that begins with the kind of shape, such as "list" or "struct"."""

WIDER = {("int", "float")}
"""Pairs of scalars: a stored value of the first can be read as the second, as in Python."""

SCALARS: Mapping[type[inspect.Type], str] = {
    inspect.AnyType: "any",
    inspect.NoneType: "none",
    inspect.BoolType: "bool",
    inspect.IntType: "int",
    inspect.FloatType: "float",
    inspect.StrType: "str",
    inspect.BytesType: "bytes",
    inspect.ByteArrayType: "bytes",
    inspect.MemoryViewType: "bytes",
    inspect.DateType: "date",
    inspect.TimeDeltaType: "timedelta",
    inspect.UUIDType: "UUID",
    inspect.DecimalType: "Decimal",
    inspect.RawType: "raw",
    inspect.ExtType: "ext",
}
LISTS: Mapping[type[inspect.Type], str] = {
    inspect.ListType: "list",
    inspect.SetType: "set",
    inspect.FrozenSetType: "set",
    inspect.VarTupleType: "tuple of any length",
}
UNTOLD = {"any": "anything", "raw": "msgspec.Raw", "ext": "msgspec.msgpack.Ext"}
BOUNDS = ("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length", "tz")
LOWER, UPPER = ("gt", "ge", "min_length"), ("lt", "le", "max_length")


def shape_of(annotation: Any) -> Shape:
    """Return the shape of the values of an annotation's type."""
    return _shape(inspect.type_info(annotation), ())


def untold(annotation: Any) -> str | None:
    """Return the first type within an annotation that is too vague to read stored values back; None if there is none."""
    return _untold(shape_of(annotation))


def _untold(shape: Shape) -> str | None:
    if isinstance(shape, str):
        return UNTOLD.get(shape)
    kind, *rest = shape
    if kind == "custom":
        return str(rest[0])
    if kind in ("struct", "places"):
        rest = [inner for inner, _ in rest[0]["fields"].values()]
    elif kind not in ("list", "set", "tuple of any length", "tuple", "dict", "one of", "within"):
        return None
    return next(filter(None, map(_untold, rest[:1] if kind == "within" else rest)), None)


def words(shape: Shape) -> str:
    """Return a shape as text, in the way that people write the type."""
    if isinstance(shape, str):
        return "None" if shape == "none" else shape
    kind, *rest = shape
    if kind == "one of":
        return " | ".join(map(words, sorted(rest, key=lambda one: (one == "none", words(one)))))
    if kind in ("struct", "places"):
        name, fields = rest[0]["name"], rest[0]["fields"]
        return f"{name}({', '.join(f'{field}: {words(inner)}' for field, (inner, _) in fields.items())})"
    if kind == "enum":
        return f"{rest[0]}({', '.join(f'{name}={value!r}' for name, value in rest[1].items())})"
    if kind == "within":
        return f"{words(rest[0])} ({', '.join(f'{name}={value}' for name, value in rest[1].items())})"
    if kind in ("again", "custom"):
        return str(rest[-1])
    inside = map(repr, rest) if kind == "literal" else map(words, rest)
    return f"{kind}[{', '.join(inside)}]"


def misfit(old: Shape, new: Shape, at: str) -> str | None:
    """Return why stored values of the shape ``old`` cannot be read as ``new``, in words; None if they can.

    Args:
        at: the subject of the sentence, which names the values.
    """
    if is_same(old, new):
        return None
    if _kind(new) == "one of":
        return _misfit_of_union(old, new, at)
    if _kind(new) == "within" or _kind(old) == "within":
        (before, had), (after, has) = (shape[1:] if _kind(shape) == "within" else (shape, {}) for shape in (old, new))
        return misfit(before, after, at) if _is_looser(had, has) else _changed(old, new, at)
    if _kind(old) != _kind(new):
        return None if (_kind(old), _kind(new)) in WIDER else _changed(old, new, at)
    compare = {"struct": _misfit_by_name, "places": _misfit_by_place, "enum": _misfit_of_enum}.get(_kind(old))
    if compare is not None:
        return compare(old, new, at)
    if _kind(old) == "literal":
        return None if all(value in new for value in old) else _changed(old, new, at)
    if isinstance(old, str) or len(old) != len(new) or _kind(old) in ("again", "custom"):
        return _changed(old, new, at)
    parts = (misfit(before, after, f"{at}[]") for before, after in zip(old[1:], new[1:], strict=True))
    return next(filter(None, parts), None)


def is_same(old: Shape, new: Shape) -> bool:
    """Whether two shapes are equal, including the order of fields, as some values are stored by position."""
    return msgspec.json.encode(old) == msgspec.json.encode(new)


def same_key(old: Shape, new: Shape) -> bool:
    """Whether equal values of both shapes are stored as equal bytes; keys are looked up by their bytes."""
    befores, afters = (shape[1:] if _kind(shape) == "one of" else [shape] for shape in (old, new))
    if "none" in befores and "none" not in afters:
        return False
    befores, afters = ([member for member in members if member != "none"] for members in (befores, afters))
    return len(befores) == len(afters) and all(
        is_same(before, after) or (_kind(before) == _kind(after) in ("enum", "literal") and misfit(before, after, "") is None)
        for before, after in zip(befores, afters, strict=True)
    )


def _shape(kind: inspect.Type, path: tuple[Any, ...]) -> Shape:
    if isinstance(kind, inspect.Metadata):
        return _shape(kind.type, path)
    plain: Shape
    if type(kind) in SCALARS:
        plain = SCALARS[type(kind)]
    elif isinstance(kind, inspect.DateTimeType | inspect.TimeType):
        plain = "datetime" if isinstance(kind, inspect.DateTimeType) else "time"
    elif type(kind) in LISTS:
        plain = [LISTS[type(kind)], _shape(cast(inspect.ListType, kind).item_type, path)]
    elif isinstance(kind, inspect.TupleType):
        plain = ["tuple", *(_shape(item, path) for item in kind.item_types)]
    elif isinstance(kind, inspect.DictType):
        plain = ["dict", _shape(kind.key_type, path), _shape(kind.value_type, path)]
    elif isinstance(kind, inspect.UnionType):
        members = [_shape(member, path) for member in kind.types]
        return ["one of", *sorted(members, key=lambda one: msgspec.json.encode(one, order="deterministic"))]
    elif isinstance(kind, inspect.EnumType):
        return ["enum", kind.cls.__name__, {name: member.value for name, member in kind.cls.__members__.items()}]
    elif isinstance(kind, inspect.LiteralType):
        return ["literal", *kind.values]
    elif isinstance(kind, inspect.CustomType):
        known = kind_of_type(kind.cls)
        return known.name if known is not None else ["custom", f"{kind.cls.__module__}.{kind.cls.__qualname__}"]
    else:
        return _record(kind, path)
    bounds = {name: value for name in BOUNDS if (value := getattr(kind, name, None)) is not None}
    return ["within", plain, bounds] if bounds else plain


def _record(kind: Any, path: tuple[Any, ...]) -> Shape:
    """Return the shape of a type with fields: an event or other struct, a data class, a typed dict, or a named tuple."""
    cls = kind.cls
    if cls in path:
        return ["again", len(path) - path.index(cls), cls.__name__]
    by_place = isinstance(kind, inspect.NamedTupleType) or getattr(kind, "array_like", False)
    config = getattr(cls, "__struct_config__", None)
    described = {
        "name": cls.__name__,
        "fields": {each.encode_name: [_shape(each.type, (*path, cls)), each.required] for each in kind.fields},
    }
    if getattr(kind, "tag", None) is not None:
        described["tag"] = [kind.tag_field, kind.tag]
    if getattr(kind, "forbid_unknown_fields", False):
        described["closed"] = True
    if config is not None and config.omit_defaults:
        described["omitted"] = {each.encode_name: _default(each) for each in kind.fields if not each.required}
    return ["places" if by_place else "struct", described]


def _default(field: Any) -> str:
    """Return a field's default as a text by which two defaults can be compared."""
    value = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    try:
        return msgspec.msgpack.encode(value, order="deterministic").hex()
    except TypeError:
        return repr(value)


def _is_looser(had: Mapping[str, Any], has: Mapping[str, Any]) -> bool:
    """Whether every value within the limits ``had`` is also within the limits ``has``."""
    for name, limit in has.items():
        if name not in had:
            return False
        before = had[name]
        if not (limit <= before if name in LOWER else limit >= before if name in UPPER else limit == before):
            return False
    return True


def _kind(shape: Shape) -> str:
    return shape if isinstance(shape, str) else str(shape[0])


def _changed(old: Shape, new: Shape, at: str) -> str:
    return f"{at} was stored as {words(old)} and is now {words(new)}"


def _misfit_of_union(old: Shape, new: Shape, at: str) -> str | None:
    """Return why a stored union cannot be read: each of its types must be readable as one of the new types."""
    befores = old[1:] if _kind(old) == "one of" else [old]
    for before in befores:
        if _kind(before) in ("struct", "places") and any(_exchanged(before, after) for after in new[1:]):
            return f"{_changed(old, new, at)}; the tags of its members were exchanged"
        troubles = [misfit(before, after, at) for after in new[1:]]
        if all(troubles):
            alike = [
                trouble
                for after, trouble in zip(new[1:], troubles, strict=True)
                if _kind(after) == _kind(before) and not isinstance(after, str)
            ]
            return alike[0] if len(alike) == 1 else _changed(old, new, at)
    return None


def _exchanged(before: Shape, after: Shape) -> bool:
    """Whether the tag of a class has changed, so that its stored values would be read as another class."""
    named = _kind(after) == _kind(before) and after[1]["name"] == before[1]["name"]
    return named and after[1].get("tag") != before[1].get("tag")


def _misfit_by_name(old: Shape, new: Shape, at: str) -> str | None:
    """Return why a struct stored by field names cannot be read. Fields may be added with defaults, but not dropped."""
    before, after = old[1], new[1]
    for name, (shape, required) in before["fields"].items():
        now = after["fields"].get(name)
        if now is None:
            return (
                f"{at} has stored the field {name!r} ({words(shape)}), which {after['name']} no longer has: it is {words(new)}"
            )
        if now[1] and not required:
            return f"{at}: field {name!r} had a default, which not every stored value holds, and has none now"
        trouble = misfit(shape, now[0], f"{at}.{name}")
        if trouble is not None:
            return trouble
    for name, (shape, required) in after["fields"].items():
        if name not in before["fields"] and required:
            added = f"{at}: {after['name']} has a new field {name!r} ({words(shape)})"
            return f"{added} without a default, and what is stored lacks it"
    return _misfit_of_settings(before, after, at)


def _misfit_of_settings(before: Mapping[str, Any], after: Mapping[str, Any], at: str) -> str | None:
    for setting in ("tag", "closed"):
        if before.get(setting) != after.get(setting):
            return f"{at}: {'the tag' if setting == 'tag' else 'forbid_unknown_fields'} of {after['name']} has changed"
    if not _only_more(before, after):
        return f"{at}: omit_defaults of {after['name']}, or a default that it has left out of what is stored, has changed"
    return None


def _only_more(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether all defaults that stored values omit are unchanged."""
    return all(after.get("omitted", {}).get(name) == default for name, default in before.get("omitted", {}).items())


def _misfit_by_place(old: Shape, new: Shape, at: str) -> str | None:
    trouble = _misfit_of_settings(old[1], new[1], at)
    if trouble is not None:
        return trouble
    before, after = (list(each[1]["fields"].items()) for each in (old, new))
    if [name for name, _ in before] != [name for name, _ in after[: len(before)]]:
        return f"{_changed(old, new, at)}; its fields are known by their place"
    for (name, (shape, required)), (_, (now, needed)) in zip(before, after, strict=False):
        if needed and not required:
            return f"{at}: field {name!r} had a default, and has none now"
        trouble = misfit(shape, now, f"{at}.{name}")
        if trouble is not None:
            return trouble
    lacking = [name for name, (_, required) in after[len(before) :] if required]
    return f"{at}: a new field {lacking[0]!r} has no default, and what is stored lacks it" if lacking else None


def _misfit_of_enum(old: Shape, new: Shape, at: str) -> str | None:
    gone = [name for name, value in old[2].items() if new[2].get(name) != value]
    return (
        f"{_changed(old, new, at)}; what is stored of a member is its value, and {gone[0]} has that no longer" if gone else None
    )
