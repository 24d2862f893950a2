"""Suspects: lines of an application's code that might make results differ between runs, found by analysing its bytecode.

A suspect alone is no finding: it only tells the line once two runs have differed.
"""

import builtins
import datetime
import dis
import enum
import inspect
import io
import os
import random
import secrets
import time
import types
import uuid
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from queue import Queue, SimpleQueue
from typing import Any, Literal

import msgspec

from penstock.app.element import Element, ProcessingElement
from penstock.app.stream import Stream
from penstock.runtime.letters import NOT_THE_USERS

Cause = Literal["randomness", "clock", "order", "hash", "global", "effect", "state", "float-order", "late"]

Part = Literal["randomness", "clock", "hash", "global", "state", "sum", "emission"]
"""The kind of a suspect: one of five causes, an addition (``sum``), or an emission."""

_CLOCKS = {
    getattr(time, name)
    for name in (
        "time",
        "time_ns",
        "monotonic",
        "monotonic_ns",
        "perf_counter",
        "perf_counter_ns",
        "process_time",
        "localtime",
        "gmtime",
        "ctime",
        "strftime",
        "asctime",
    )
}
_NOWS = ("now", "utcnow", "today")
_RANDOM = {uuid.uuid1, uuid.uuid4, os.urandom, random.Random, random.SystemRandom}
_RANDOM_MODULES = ("random", "secrets", "numpy.random")
_PLAIN = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    tuple,
    frozenset,
    range,
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    Stream,
    enum.Enum,
    ProcessingElement,
    datetime.tzinfo,
    datetime.date,
    datetime.time,
    datetime.timedelta,
)
_UNKNOWN = object()
_DEEP = 4


class Suspect(msgspec.Struct, frozen=True):
    """A line of an element's code that might make results differ."""

    element: str
    part: Part
    file: str
    line: int
    what: str
    """The name in the code, such as that of a function."""


def suspects_of(element: Element) -> list[Suspect]:
    """Return the suspects in an element's code and in the application's functions that it calls, in the order of the code."""
    suspects: dict[tuple[str, str, int], Suspect] = {}
    with suppress(Exception):  # suspects are only hints, and the application's objects may raise on any access
        _gather(element, suspects)
    return list(suspects.values())


def _gather(element: Element, found: dict[tuple[str, str, int], Suspect]) -> None:
    for function, owner in _functions(element.body):
        for part, line, name in _parts(function, owner, element):
            file = function.__code__.co_filename
            found.setdefault((part, file, line), Suspect(element.name, part, file, line, name))


QUEUES = (Queue, SimpleQueue)
GROWING = (list, deque, *QUEUES)


def growing(element: Element) -> list[tuple[Suspect, Any]]:
    """Return the lists, queues and writable files outside of state that an element's code names, each with the first line that
    names it.
    """
    found: dict[int, tuple[Suspect, Any]] = {}
    for function, _ in _functions(element.body):
        for code in _codes(function.__code__):
            for line, name, value in _named(code, function):
                if isinstance(value, GROWING) or (isinstance(value, io.IOBase) and size_of(value) >= 0):
                    suspect = Suspect(element.name, "global", code.co_filename, line, name)
                    found.setdefault(id(value), (suspect, value))
    return list(found.values())


def size_of(thing: Any) -> int:
    """Return the length of a list or queue, or the position of a writable file; -1 for other files."""
    if isinstance(thing, QUEUES):
        return thing.qsize()
    if not isinstance(thing, io.IOBase):
        return len(thing)
    try:
        return thing.tell() if thing.writable() else -1
    except (OSError, ValueError):
        return -1


def first_line(element: Element) -> tuple[str, int] | None:
    """Return the file and the line where an element's code begins; None where none of it is the application's own."""
    for function, _ in _functions(element.body):
        return function.__code__.co_filename, function.__code__.co_firstlineno
    return None


def hooks_of(element: Element) -> set[types.CodeType]:
    """Return the code objects of the application that may be called for events of an element."""
    return {function.__code__ for function, _ in _functions(element.body)}


def is_own(code: types.CodeType) -> bool:
    """Whether code is the application's own: not Penstock's, Python's, or an installed package's."""
    return not code.co_filename.startswith(NOT_THE_USERS)


def _functions(body: Any) -> Iterator[tuple[types.FunctionType, type | None]]:
    """Yield the application's functions reachable from a body, breadth first, each with the class of which it is a method."""
    seen: set[int] = set()
    waiting: list[tuple[Any, type | None, int]] = [(body, None, 0)]
    while waiting:
        thing, owner, deep = waiting.pop(0)
        if id(thing) in seen or deep > _DEEP:
            continue
        seen.add(id(thing))
        function = _function_in(thing)
        if function is not None:
            if is_own(function.__code__):
                yield function, owner
                waiting += [(called, None, deep + 1) for called in _called_by(function)]
        else:
            waiting += [(part, cls, deep + 1) for part, cls in _parts_of(thing)]


def _function_in(thing: Any) -> types.FunctionType | None:
    thing = _attribute(thing, "__wrapped__", thing)  # below a decorator such as lru_cache
    if isinstance(thing, types.MethodType | staticmethod | classmethod):
        thing = thing.__func__
    if isinstance(thing, property):
        thing = thing.fget
    return thing if isinstance(thing, types.FunctionType) else None


def _parts_of(thing: Any) -> Iterable[tuple[Any, type | None]]:
    """Return the objects in a body that may be functions, each with the class of which it is a method, or None."""
    if isinstance(thing, partial):
        return [(thing.func, None), *((argument, None) for argument in thing.args)]
    if isinstance(thing, type):
        kinds = [kind for kind in thing.__mro__ if kind not in (object, msgspec.Struct, ProcessingElement)]
        return [(value, thing) for kind in kinds for value in vars(kind).values()]
    if isinstance(thing, dict):
        return [(value, None) for value in thing.values()]
    if isinstance(thing, list | tuple):
        return [(value, None) for value in thing]
    if isinstance(thing, str | bytes | int | float | types.ModuleType | Stream) or thing is None:
        return ()
    own = [(_attribute(thing, name, None), None) for name in getattr(type(thing), "__slots__", ()) or ()]
    fields = [(getattr(thing, name, None), None) for name in getattr(type(thing), "__struct_fields__", ())]
    call = vars(type(thing)).get("__call__")
    return [*((value, None) for value in getattr(thing, "__dict__", {}).values()), *own, *fields, (call, type(thing))]


def _called_by(function: types.FunctionType) -> Iterator[Any]:
    """Yield the application's functions and classes that a function names."""
    for code in _codes(function.__code__):
        for _, _, value in _named(code, function):
            inner = _function_in(value)
            if (inner is not None and is_own(inner.__code__)) or (
                isinstance(value, type) and _is_of_the_user(value) and not issubclass(value, msgspec.Struct)
            ):
                yield value
            elif not isinstance(value, _PLAIN) and _is_of_the_user(type(value)):
                yield from (method for kind in type(value).__mro__ for method in vars(kind).values())


def _is_of_the_user(kind: type) -> bool:
    return any(isinstance(value, types.FunctionType) and is_own(value.__code__) for value in vars(kind).values())


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _parts(function: types.FunctionType, owner: type | None, element: Element) -> Iterator[tuple[Part, int, str]]:
    for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        if _is_mutable(default):
            yield "global", function.__code__.co_firstlineno, "a default that is changed"
    for code in _codes(function.__code__):
        for line, name, value in _named(code, function):
            part = _part_of(value, element)
            if part is not None:
                yield part, line, name
        yield from _stored(code, function, owner)


def _named(code: types.CodeType, function: types.FunctionType) -> Iterator[tuple[int, str, Any]]:
    """Yield the line, the name and the value of each global or closure name in code, and of each attribute read from one."""
    value, path, line = _UNKNOWN, "", code.co_firstlineno
    for step in dis.get_instructions(code):
        if step.positions is not None and step.positions.lineno is not None:
            line = step.positions.lineno
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF"):
            value, path = _variable(step.argval, function), str(step.argval)
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD") and value is not _UNKNOWN:
            value, path = _attribute(value, step.argval), f"{path}.{step.argval}"
        elif step.opname not in ("PUSH_NULL", "CACHE", "PRECALL"):
            value = _UNKNOWN
        if value is not _UNKNOWN:
            yield line, path, value


def _attribute(holder: Any, name: str, default: Any = _UNKNOWN) -> Any:
    """Read an attribute without running code of the application, such as properties."""
    try:
        read = (
            getattr
            if isinstance(holder, types.ModuleType | type | types.BuiltinFunctionType | types.MethodType)
            else inspect.getattr_static
        )
        return read(holder, name)
    except Exception:
        return default


def _variable(name: str, function: types.FunctionType) -> Any:
    for place, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if place == name:
            try:
                return cell.cell_contents
            except ValueError:
                return _UNKNOWN
    return function.__globals__.get(name, getattr(builtins, name, _UNKNOWN))


def _part_of(value: Any, element: Element) -> Part | None:
    if isinstance(value, Stream):
        return "emission" if value in element.emits else None
    if _in(value, _CLOCKS) or (_attribute(value, "__name__") in _NOWS and _is_date(_attribute(value, "__self__"))):
        return "clock"
    if _in(value, _RANDOM) or isinstance(value, random.Random) or _module_of(value) in _RANDOM_MODULES:
        return "randomness"
    if any(value is builtin for builtin in (hash, set, frozenset, id)):
        return "hash"
    if value is sum:
        return "sum"
    return "global" if _attribute(value, "cache_info") is not _UNKNOWN or _is_mutable(value) else None


def _module_of(value: Any) -> str:
    """Return the name of the module of a function, or of the object of which it is a method; '' for a module."""
    if isinstance(value, types.ModuleType):
        return ""
    holder, module = _attribute(value, "__self__", None), _attribute(value, "__module__", None)
    if isinstance(module, str):
        return "numpy.random" if module.startswith("numpy.random") else module
    kind = type(holder if holder is not None else value).__module__
    return "numpy.random" if kind.startswith("numpy.random") else kind if kind in ("random", secrets.__name__) else ""


def _in(value: Any, known: set[Any]) -> bool:
    try:
        return value in known
    except Exception:  # the value cannot be hashed or compared
        return False


def _is_date(holder: Any) -> bool:
    return isinstance(holder, type) and issubclass(holder, datetime.date)


def _is_mutable(value: Any) -> bool:
    """Whether the value of a variable can be changed in place by a hook."""
    if isinstance(value, _PLAIN) or getattr(type(value), "__struct_config__", None) is not None:
        return False
    return isinstance(value, list | dict | set | bytearray) or not callable(value) or hasattr(value, "__next__")


def _stored(code: types.CodeType, function: types.FunctionType, owner: type | None) -> Iterator[tuple[Part, int, str]]:
    """Yield suspects for stores to module or closure variables, class attributes and attributes outside of state; and sums."""
    fields = set(getattr(owner, "__struct_fields__", ()))
    # ``value`` follows the object whose attribute is stored next; ``adding`` tells that the store ends a += or -=.
    line, value, adding = code.co_firstlineno, _UNKNOWN, False
    for step in dis.get_instructions(code):
        if step.positions is not None and step.positions.lineno is not None:
            line = step.positions.lineno
        match step.opname:
            case "STORE_GLOBAL" | "STORE_DEREF" if step.opname == "STORE_GLOBAL" or step.argval in code.co_freevars:
                yield "global", line, str(step.argval)
            case "LOAD_GLOBAL" | "LOAD_DEREF":
                value = _variable(step.argval, function)
            case "LOAD_FAST" | "LOAD_FAST_BORROW" if code.co_varnames and step.argval == code.co_varnames[0]:
                value = owner
            case "BINARY_OP" if step.argrepr in ("+=", "-="):
                adding = True
                continue
            case "LOAD_ATTR" | "LOAD_METHOD" if value is owner and owner is not None and step.argval not in fields:
                held = vars(owner).get(step.argval)
                if _is_mutable(held):
                    yield "global", line, step.argval
                elif step.argval in ("__class__",):
                    value = object
                    continue
            case "STORE_ATTR":
                if value is owner and owner is not None and issubclass(owner, ProcessingElement) and step.argval not in fields:
                    yield "state", line, step.argval
                elif isinstance(value, type):
                    yield "global", line, step.argval
                if adding:
                    yield "sum", line, step.argval
            case "BUILD_SET" | "SET_ADD":
                yield "hash", line, "a set"
        if step.opname not in ("LOAD_FAST", "LOAD_GLOBAL", "LOAD_DEREF", "CACHE", "COPY", "SWAP", "LOAD_FAST_BORROW"):
            adding = adding and step.opname in ("CACHE", "COPY", "SWAP")
