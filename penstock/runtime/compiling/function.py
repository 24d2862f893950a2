"""Compiles an element's function so that what it yields goes straight into its streams.

The code is the function's own, line by line, but for two things. ``yield stream(...)`` makes the event and appends it to the
stream's events, where a generator, an emission, and the loops that look at them took most of the time. And times are formatted
as `penstock.runtime.compiling.formats` does. All other values that are yielded or returned are looked at as before.

What takes part in this besides stands among the constants of the code, where no name of the function can meet it.
"""

import ast
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from inspect import CO_GENERATOR
from types import CodeType, FunctionType
from typing import Any, NamedTuple, NoReturn

from penstock.app.element import Element
from penstock.app.stream import Stream
from penstock.runtime.codec import Append
from penstock.runtime.compiling.formats import Format, format_of
from penstock.runtime.compiling.source import NotCompiledError, compiled, place_of


class Puts(NamedTuple):
    """The functions that a compiled function calls with what it has been yielding or returning.

    Args:
        events: for each stream, the function that takes an event of it.
        one: takes anything else that is yielded.
        all: takes anything else that is returned.
    """

    events: Mapping[Stream[Any], Append]
    one: Append
    all: Append


class CompiledFunction:
    """A function that puts its events into their streams, and returns nothing.

    Args:
        function: the function as it is.
        code: its code anew, with names in bytes for the constants that are to come.
        constants: what some of these names stand for; the streams' own are added when it is bound.
    """

    def __init__(self, function: FunctionType, code: CodeType, constants: Mapping[bytes, Any]) -> None:
        self._function, self._compiled_from = function, function.__code__
        self._code = _replaced(code, constants)
        self._yields = bool(self._compiled_from.co_flags & CO_GENERATOR)

    def bound(self, puts: Puts) -> Callable[[Any], Any] | None:
        """Return a function that puts its events by ``puts``; None where the function has been given another code by now."""
        function = self._function
        if function.__code__ is not self._compiled_from:
            return None
        constants: dict[bytes, Any] = {ONE: puts.one, ALL: puts.all}
        constants |= {_put(stream): append for stream, append in puts.events.items()}
        code = _replaced(self._code, constants)
        call = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
        call.__kwdefaults__, call.__qualname__ = function.__kwdefaults__, function.__qualname__
        return call

    def failure(self, error: BaseException) -> BaseException:
        """Return the error that the function as it is would have raised."""
        if self._yields and isinstance(error, StopIteration):
            return RuntimeError("generator raised StopIteration")
        return error


def compile_function(element: Element) -> CompiledFunction:
    """Compile the function of a keyless element.

    Raises:
        NotCompiledError: it runs as it is; the text says why.
    """
    function = element.body
    if type(function) is not FunctionType or function.__name__ == "<lambda>":
        raise NotCompiledError("it is no plain function")
    if any(constant.startswith(PREFIX) for constant in _constants(function.__code__)):
        raise NotCompiledError("it has a constant that looks like one of Penstock's")
    try:
        place = place_of(function)
        rewriting = _Rewriting(function, element.emits)
        code = compiled(rewriting.rewritten(place.node), place.around, function.__code__)
        return CompiledFunction(function, code, rewriting.constants)
    except NotCompiledError:
        raise
    except Exception as error:  # such as a source that is nested too deep for Python's own parser
        raise NotCompiledError(f"compiling it fails ({type(error).__name__})") from error


PREFIX = b"penstock: "
"""With which the names of all constants begin that stand for something."""
ONE, ALL = PREFIX + b"one", PREFIX + b"all"
"""The names of `Puts.one` and `Puts.all`."""


def _put(stream: Stream[Any]) -> bytes:
    return PREFIX + f"put {stream.name}".encode()


def _constants(code: CodeType) -> Iterator[bytes]:
    """Yield the constants of a code, and of the codes within it, that are bytes."""
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from _constants(value)
        elif type(value) is bytes:
            yield value


def _replaced(code: CodeType, constants: Mapping[bytes, Any]) -> CodeType:
    """Replace names among the constants of a code, and of the codes within it, by what they stand for."""

    def replaced(value: Any) -> Any:
        if isinstance(value, CodeType):
            return _replaced(value, constants)
        return constants.get(value, value) if type(value) is bytes else value

    return code.replace(co_consts=tuple(map(replaced, code.co_consts)))


SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
"""What these yield or return is no emission yet."""


class _Rewriting(ast.NodeTransformer):
    """Rewrites the statements of a function."""

    def __init__(self, function: FunctionType, streams: tuple[Stream[Any], ...]) -> None:
        self._yields = bool(function.__code__.co_flags & CO_GENERATOR)
        self._streams = {
            name: stream
            for name, stream in _names_around(function).items()
            if type(stream) is Stream and any(stream is emitted for emitted in streams)
        }
        self._guards = 0
        self.constants: dict[bytes, Any] = {}
        """What stands among the constants of the code, by name."""

    def rewritten(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """Return a function with its statements rewritten."""
        node = deepcopy(node)
        node.body = [self.visit(statement) for statement in node.body]
        return node

    def visit(self, node: ast.AST) -> Any:
        return node if isinstance(node, SCOPES) else super().visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        if isinstance(node.value, ast.Yield):
            return ast.copy_location(ast.Expr(self._emission(node.value.value or ast.Constant(None), ONE)), node)
        return self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> ast.AST:
        if self._yields or node.value is None:  # what a generator returns, nobody sees
            return self.generic_visit(node)
        return ast.copy_location(ast.Return(self._emission(node.value, ALL)), node)

    def visit_Try(self, node: ast.Try) -> ast.AST:
        return self._guard(node)

    def visit_TryStar(self, node: ast.AST) -> ast.AST:
        return self._guard(node)

    def visit_With(self, node: ast.With) -> ast.AST:
        return self._guard(node)

    def _guard(self, node: ast.AST) -> ast.AST:
        self._guards += 1
        self.generic_visit(node)
        self._guards -= 1
        return node

    def visit_Yield(self, node: ast.Yield) -> NoReturn:
        raise NotCompiledError("it uses what a yield returns")

    def visit_YieldFrom(self, node: ast.YieldFrom) -> NoReturn:
        raise NotCompiledError("it yields from something else")

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.FormattedValue(conversion=-1, format_spec=ast.JoinedStr([ast.Constant(str(spec))])):
                formatted = self._format(f"format {spec}", spec, lambda value: format(value, spec))
                if formatted is not None:
                    call = ast.copy_location(ast.Call(formatted, [node.value], []), node)
                    return ast.copy_location(ast.FormattedValue(call, -1), node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.Call(ast.Attribute(value, "strftime") as method, [ast.Constant(str(spec))], []):
                formatted = self._format(f"strftime {spec}", spec, lambda value: value.strftime(spec))
                if formatted is not None:
                    call = ast.copy_location(ast.Call(formatted, [value], []), node)
                    call.lineno, call.col_offset = method.end_lineno or node.lineno, 0  # where the method's name stands
                    return call
        return node

    def _format(self, name: str, spec: str, plain: Format) -> ast.Constant | None:
        function = format_of(spec, plain)
        return None if function is None else self._constant(name, function)

    def _emission(self, value: ast.expr, other: bytes) -> ast.expr:
        """Return what takes the value of a yield or return: straight into a stream, or by way of ``other``."""
        if self._guards:  # which would see that an event is refused, and otherwise does not
            raise NotCompiledError("it yields or returns within try or with")
        value = self.visit(value)
        anything = ast.copy_location(ast.Call(ast.Constant(other), [value], []), value)
        match value:
            case ast.Call(ast.Name(name) as named) if name in self._streams and _is_plain(value):
                stream = self._streams[name]
                own_type = self._constant(f"type {stream.name}", stream.event_type)
                event = ast.copy_location(ast.Call(own_type, value.args, value.keywords), value)
            case ast.Call(ast.Attribute(ast.Name(name) as named, "emit"), [event], []) if name in self._streams and _is_plain(
                value
            ):
                stream = self._streams[name]
            case _:
                return anything
        put = ast.copy_location(ast.Call(ast.Constant(_put(stream)), [event], []), value)
        is_bound = ast.Compare(named, [ast.Is()], [self._constant(f"stream {stream.name}", stream)])
        return ast.copy_location(ast.IfExp(ast.copy_location(is_bound, named), put, deepcopy(anything)), value)

    def _constant(self, name: str, value: Any) -> ast.Constant:
        key = PREFIX + name.encode()
        self.constants.setdefault(key, value)
        return ast.Constant(key)


def _is_plain(call: ast.Call) -> bool:
    """Whether a call would fail, if it does, with an error that does not name the stream."""
    unpacks_alone = len(call.args) == 1 and isinstance(call.args[0], ast.Starred)
    return not unpacks_alone and all(keyword.arg not in (None, "self") for keyword in call.keywords)


def _names_around(function: FunctionType) -> dict[str, Any]:
    """Return what the names in a function that are not its own are bound to."""
    code = function.__code__
    bound = {name: function.__globals__[name] for name in code.co_names if name in function.__globals__}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            bound[name] = cell.cell_contents
        except ValueError:  # it is still empty
            bound.pop(name, None)
    return bound
