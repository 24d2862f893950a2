"""Checks of the arguments of public calls: one that does not fit its annotation is refused by an error that names it."""

import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from numbers import Integral, Real
from typing import Any, Literal, TypeVar, cast

from penstock.errors import PenstockError, TopologyError
from penstock.kinds.event import Event

Call = TypeVar("Call", bound=Callable[..., Any])

WORDS = {
    "Stream": "stream, as app.stream(...) and app.source(...) return one",
    "Windowing": "window, as Tumbling('10 s'), Sliding, Session, Count or Global",
    "Connection": "connector",
    "NoneType": "None",
    "str": "text",
    "int": "whole number",
    "float": "number",
    "bool": "True or False",
    "Mapping": "mapping",
    "Path": "path",
}
"""Words for classes in messages, by class name."""


def checked(*later: str) -> Callable[[Call], Call]:
    """Decorate a call to refuse arguments that do not fit its annotations. The call's own `PenstockError` takes precedence.

    Args:
        later: names of arguments that are not checked here, since the call checks them once the element's name is known.

    Raises:
        TopologyError: names the call, the argument, its value, and what is allowed.
    """

    def decorate(call: Call) -> Call:
        signature = inspect.signature(call)
        hints: dict[str, Any] = {}

        @wraps(call)
        def checking(*given: Any, **named: Any) -> Any:
            if not hints:
                hints.update(typing.get_type_hints(call))
            try:
                bound = signature.bind(*given, **named)
            except TypeError as error:
                raise TypeError(f"{call.__qualname__.removesuffix('.__init__')}: {error}") from None
            # The misfit is found first, but reported last: the call itself may have a more precise message.
            wrong = next(_misfits(call, signature, hints, bound, later), None)
            try:
                made = call(*given, **named)
            except PenstockError:
                raise
            except Exception as error:
                if wrong is None:
                    raise
                raise TopologyError(wrong) from error
            if wrong is not None:
                raise TopologyError(wrong)
            return made

        return cast(Call, checking)

    return decorate


def _misfits(
    call: Any, signature: inspect.Signature, hints: dict[str, Any], bound: inspect.BoundArguments, later: tuple[str, ...]
) -> Iterator[str]:
    """Yield a message for each argument that does not fit its annotation."""
    called = bound.arguments.get("name")
    label = f" {called}" if isinstance(called, str) else ""
    for name, value in bound.arguments.items():
        kind = signature.parameters[name].kind
        values = value if kind is kind.VAR_POSITIONAL else value.values() if kind is kind.VAR_KEYWORD else (value,)
        for each in values if name in hints and name not in later else ():
            if not fits(each, hints[name]):
                yield f"{call.__qualname__.removesuffix('.__init__')}{label}: {name}={shown(each)}{_mend(hints[name])}."


def _mend(hint: Any) -> str:
    """Return the end of a message about a value that an annotation does not allow: what is allowed."""
    members = [member for member in typing.get_args(hint) if member is not type(None)]
    plain = members[0] if typing.get_origin(hint) in (typing.Union, types.UnionType) and len(members) == 1 else hint
    if typing.get_origin(plain) is Literal:
        return f"; choose {', '.join(map(str, typing.get_args(plain)))}"
    if typing.get_origin(plain) is Callable:
        return " cannot be called; give a function"
    return f" is no {words_for(hint)}"


def fits(value: Any, hint: Any) -> bool:
    """Whether a value fits an annotation."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, TypeVar):
        members = hint.__constraints__ or ((hint.__bound__,) if hint.__bound__ is not None else (Any,))
        return any(fits(value, member) for member in members)
    if hint is Any:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, member) for member in arguments)
    if origin is Literal:
        return any(type(value) is type(allowed) and value == allowed for allowed in arguments)
    if origin is Callable:
        return callable(value)
    if origin is type:
        return isinstance(value, type) and issubclass(value, _class_of(arguments[0]))
    if origin is tuple:
        return isinstance(value, tuple) and len(value) == len(arguments) and all(map(fits, value, arguments))
    if origin is Sequence:
        return (
            isinstance(value, Sequence)
            and not isinstance(value, str | bytes)
            and all(fits(each, arguments[0]) for each in value)
        )
    if origin is Mapping:
        return isinstance(value, Mapping) and all(
            fits(part, arguments[place]) for pair in value.items() for place, part in enumerate(pair)
        )
    if getattr(hint, "_is_protocol", False):
        methods = [name for name, member in vars(hint).items() if callable(member) and not name.startswith("_")]
        return all(hasattr(value, name) for name in methods)
    if hint is float:
        return isinstance(value, Real) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, Integral) and not isinstance(value, bool)
    return isinstance(value, type(None) if hint is None else origin or hint)


def words_for(hint: Any) -> str:
    """Return a description of the values that an annotation allows."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, TypeVar):
        return " or ".join(map(words_for, hint.__constraints__)) or (words_for(hint.__bound__) if hint.__bound__ else "value")
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(map(words_for, arguments)))
    if origin is Literal:
        return " or ".join(map(repr, arguments))
    if origin is Callable:
        return "function"
    if origin is type:
        return "class of fields, as `class Word(Event): text: str`" if _class_of(arguments[0]) is Event else "class"
    if origin is tuple:
        return f"({', '.join(map(words_for, arguments))})"
    if origin is Sequence:
        return "list of functions" if typing.get_origin(arguments[0]) is Callable else f"list of {words_for(arguments[0])}"
    name = getattr(origin or hint, "__name__", str(hint))
    return WORDS.get(name, name)


def shown(value: Any) -> str:
    """Return a value's representation, cut to 79 characters for use in a message."""
    try:
        text = repr(value)
    except Exception:  # the object may be half made
        text = f"a {type(value).__name__}"
    return text if len(text) < 80 else f"{text[:76]}..."


def _class_of(hint: Any) -> type:
    return cast(type, hint.__bound__ or object) if isinstance(hint, TypeVar) else hint if isinstance(hint, type) else object
