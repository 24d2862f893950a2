"""Finds a function in its source, and compiles it anew in its place there.

The source is that of the code that would run if, compiled as it stands, it gives that very code.
"""

import __future__

import ast
import linecache
import warnings
from collections.abc import Iterator
from copy import copy
from functools import lru_cache
from inspect import CO_GENERATOR
from types import CodeType, FunctionType
from typing import Any, NamedTuple


class NotCompiledError(Exception):
    """A function runs as it is; the text says why."""


Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
FUTURES = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
COMPARED = (
    "co_name",
    "co_qualname",
    "co_firstlineno",
    "co_code",
    "co_names",
    "co_varnames",
    "co_freevars",
    "co_cellvars",
    "co_flags",
    "co_argcount",
    "co_posonlyargcount",
    "co_kwonlyargcount",
    "co_exceptiontable",
)


class Place(NamedTuple):
    """A function in its source, and the functions and classes around it, the outermost first."""

    node: ast.FunctionDef
    around: tuple[Scope, ...]


def place_of(function: FunctionType) -> Place:
    """Find a function in its source.

    Raises:
        NotCompiledError: the source is not there, or another than that of the function's code.
    """
    return _place(function.__code__)


def _place(code: CodeType) -> Place:
    for place in _functions(_tree(code), ()):
        if place.node.name == code.co_name and _first_line(place.node) == code.co_firstlineno:
            return place
    raise NotCompiledError(OTHER)


def returned(function: FunctionType) -> tuple[ast.arguments, ast.expr]:
    """Find the arguments of a function, and the one expression that it returns, in its source.

    Raises:
        NotCompiledError: it does more than return an expression; or as `place_of`.
    """
    return _returned(function.__code__)


@lru_cache(maxsize=256)
def _returned(code: CodeType) -> tuple[ast.arguments, ast.expr]:
    if code.co_name == "<lambda>":
        spans = set(code.co_positions())
        for node in ast.walk(_tree(code)):
            if isinstance(node, ast.Lambda) and _span(node.body) in spans:
                return node.args, node.body
        raise NotCompiledError(OTHER)
    node = _place(code).node
    body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
    match body:
        case [ast.Return(ast.expr() as value)]:
            return node.args, value
    raise NotCompiledError("it does more than return an expression")


OTHER = "its source is not what it was made from"


def _tree(code: CodeType) -> ast.Module:
    """Return the source of a code's file, which gives that very code."""
    text = "".join(linecache.getlines(code.co_filename))
    if not text:
        raise NotCompiledError("its source cannot be read")
    tree, whole = _parsed(code.co_filename, text)
    if not any(_same(found, code) for found in _within(whole)):
        raise NotCompiledError(OTHER)
    return tree


def _span(node: ast.expr) -> tuple[int | None, ...]:
    """Where a node is, as `codes <https://docs.python.org/3/reference/datamodel.html#codeobject.co_positions>`_ say it."""
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset


def compiled(node: ast.FunctionDef, around: tuple[Scope, ...], like: CodeType) -> CodeType:
    """Compile a function within the functions and classes around it, of which only the names count here.

    Args:
        like: the code that the function has, from whose file it is.
    """
    free = [ast.arg(name) for name in like.co_freevars if name != "__class__"]  # which its class provides
    inner: Any = node
    for scope in reversed(around):
        outer = copy(scope)
        outer.body = [inner]
        if not isinstance(outer, ast.ClassDef):
            outer.args = ast.arguments([], free, None, [], [], None, [])
        inner = outer
    module = ast.fix_missing_locations(ast.Module([inner], []))
    with _silently():
        whole = compile(module, like.co_filename, "exec", flags=like.co_flags & FUTURES, dont_inherit=True)
    found = [code for code in _within(whole) if code.co_qualname == like.co_qualname]
    if len(found) != 1 or found[0].co_flags != like.co_flags & ~CO_GENERATOR or found[0].co_freevars != like.co_freevars:
        raise NotCompiledError("it yields, or takes what is around it, in a way that is not followed")
    return found[0]


@lru_cache(maxsize=2)
def _parsed(file: str, text: str) -> tuple[ast.Module, CodeType]:
    with _silently():
        return ast.parse(text), compile(text, file, "exec", dont_inherit=True)


def _silently() -> Any:
    """Warnings about the source were given when it was imported."""
    return warnings.catch_warnings(action="ignore")


def _functions(node: ast.AST, around: tuple[Scope, ...]) -> Iterator[Place]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef):
            yield Place(child, around)
        yield from _functions(child, (*around, child) if isinstance(child, Scope) else around)


def _first_line(node: ast.FunctionDef) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _within(code: CodeType) -> Iterator[CodeType]:
    """Yield the codes of all functions and classes in a code."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _within(constant)


def _same(code: CodeType, other: CodeType) -> bool:
    return (
        all(getattr(code, name) == getattr(other, name) for name in COMPARED)
        and list(code.co_positions()) == list(other.co_positions())
        and len(code.co_consts) == len(other.co_consts)
        and all(map(_same_constant, code.co_consts, other.co_consts))
    )


def _same_constant(value: Any, other: Any) -> bool:
    match value, other:
        case CodeType(), CodeType():
            return _same(value, other)
        case tuple(), tuple():
            return len(value) == len(other) and all(map(_same_constant, value, other))
        case frozenset(), frozenset():
            return sorted(map(repr, value)) == sorted(map(repr, other))
    return type(value) is type(other) and repr(value) == repr(other)  # 1 and 1.0, 0.0 and -0.0 are equal
