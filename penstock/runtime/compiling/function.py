"""Compiles an element's function so that what it yields goes straight into its streams.

The code is the function's own, line by line, but for two things. ``yield stream(...)`` makes the event and appends it to the
stream's events, where a generator, an emission, and the loops that look at them took most of the time. And times are formatted
as `penstock.runtime.compiling.formats` does. A function with anything about which the two might differ is not compiled.
"""

import ast
from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from inspect import CO_GENERATOR
from types import CellType, CodeType, FunctionType
from typing import Any, NoReturn

from penstock.app.element import Element
from penstock.app.stream import Stream
from penstock.runtime.codec import Append
from penstock.runtime.compiling.formats import Format, format_of
from penstock.runtime.compiling.source import NotCompiledError, compiled, tree_of


class CompiledFunction:
    """A function that puts its events into their streams, and returns nothing.

    Args:
        streams: the streams that it names, by name.
        made: what its code is given besides.
    """

    def __init__(
        self, function: FunctionType, code: CodeType, streams: Mapping[str, Stream[Any]], made: Mapping[str, Any]
    ) -> None:
        self._function, self._code, self._made = function, code, made
        self.streams = streams

    def bound(self, puts: Mapping[Stream[Any], Append]) -> Callable[[Any], Any] | None:
        """Return the function to be called, given what takes each stream's events; None where its names are bound otherwise
        by now.
        """
        function = self._function
        if any(_named(function, name) is not stream for name, stream in self.streams.items()):
            return None
        around = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        around |= {name: CellType(value) for name, value in self._made.items()}
        around |= {_put(name): CellType(puts[stream]) for name, stream in self.streams.items()}
        closure = tuple(around[name] for name in self._code.co_freevars)
        call = FunctionType(self._code, function.__globals__, function.__name__, function.__defaults__, closure)
        call.__kwdefaults__ = function.__kwdefaults__
        return call


def compile_function(element: Element) -> CompiledFunction:
    """Compile the function of a keyless element.

    Raises:
        NotCompiledError: it runs as it is; the text says why.
    """
    function = element.body
    if type(function) is not FunctionType:
        raise NotCompiledError("it is no plain function")
    code = function.__code__
    node = deepcopy(tree_of(function))
    own = {*code.co_varnames, *code.co_cellvars}
    names = {*code.co_names, *code.co_freevars} - own
    named = {name: _named(function, name) for name in names}
    streams = {name: stream for name, stream in named.items() if type(stream) is Stream and stream in element.emits}
    rewriting = _Rewriting(streams, bool(code.co_flags & CO_GENERATOR))
    node.body = [rewriting.visit(statement) for statement in node.body]
    used = {name: streams[name] for name in rewriting.used}
    made = rewriting.formats | {_type(name): stream.event_type for name, stream in used.items()}
    free = [*code.co_freevars, *made, *map(_put, used)]
    return CompiledFunction(function, compiled(node, free, code), used, made)


def _named(function: FunctionType, name: str) -> Any:
    """Return what a name around a function is bound to; None where it is not bound."""
    if name in function.__code__.co_freevars:
        cell = (function.__closure__ or ())[function.__code__.co_freevars.index(name)]
        try:
            return cell.cell_contents
        except ValueError:  # it is still empty
            return None
    return function.__globals__.get(name)


INNER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
"""What these yield or return is no emission yet."""


# Names with a space, which no source can have.
def _put(name: str) -> str:
    return f"{name} put"


def _type(name: str) -> str:
    return f"{name} type"


class _Rewriting(ast.NodeTransformer):
    """Rewrites the statements of a function."""

    def __init__(self, streams: Collection[str], yields: bool) -> None:
        self._streams, self._yields = streams, yields
        self._guards = 0
        self.used: dict[str, None] = {}
        self.formats: dict[str, Format] = {}

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, INNER):
            return node
        return super().visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        if isinstance(node.value, ast.Yield):
            return ast.copy_location(ast.Expr(self._emission(node.value.value)), node)
        return self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> ast.AST:
        match node.value:
            case None | ast.Constant(None) | ast.Tuple([]) | ast.List([]):
                return node
        if self._yields:
            raise NotCompiledError("it yields, and returns something besides")
        return ast.copy_location(ast.Return(self._emission(node.value)), node)

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.FormattedValue(conversion=-1, format_spec=ast.JoinedStr([ast.Constant(str(spec))])):
                call = self._formatted(f"format {spec}", spec, lambda value: format(value, spec), node.value)
                return node if call is None else ast.copy_location(ast.FormattedValue(call, -1), node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.Call(ast.Attribute(value, "strftime"), [ast.Constant(str(spec))], []):
                return self._formatted(f"strftime {spec}", spec, lambda value: value.strftime(spec), value) or node
        return node

    def _formatted(self, name: str, spec: str, plain: Format, value: ast.expr) -> ast.Call | None:
        function = self.formats.get(name) or format_of(spec, plain)
        if function is None:
            return None
        self.formats[name] = function
        return ast.copy_location(ast.Call(ast.Name(name, ast.Load()), [value], []), value)

    def _emission(self, value: ast.expr | None) -> ast.Call:
        """Return the call that puts an event into a stream, for the value that was an emission."""
        match value:
            case ast.Call(ast.Name(name), arguments, named) if name in self._streams:
                event: ast.expr = ast.Call(ast.Name(_type(name), ast.Load()), arguments, named)
            case ast.Call(ast.Attribute(ast.Name(name), "emit"), [event], []) if name in self._streams:
                if isinstance(event, ast.Starred):
                    raise NotCompiledError("it unpacks what it emits")
            case _:
                raise NotCompiledError("it yields or returns something else than calls of its streams")
        if self._guards:  # which would see that an event is refused, and otherwise does not
            raise NotCompiledError("it yields or returns an emission within try or with")
        self.used[name] = None
        event = self.visit(ast.copy_location(event, value))
        return ast.copy_location(ast.Call(ast.Name(_put(name), ast.Load()), [event], []), value)

    def visit_Try(self, node: ast.Try) -> ast.AST:
        return self._guard(node)

    def visit_With(self, node: ast.With) -> ast.AST:
        return self._guard(node)

    def visit_TryStar(self, node: ast.AST) -> ast.AST:
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
