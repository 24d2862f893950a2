"""Finds the syntax tree of a function in its source, and proves that it is the tree of the code that would run."""

import __future__

import ast
import linecache
from collections.abc import Iterator, Sequence
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any


class NotCompiledError(Exception):
    """A function runs as it is; the text says why."""


FUTURES = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
COMPARED = (
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


def tree_of(function: FunctionType) -> ast.FunctionDef:
    """Return the syntax tree of a function, with the line numbers of its file.

    Raises:
        NotCompiledError: the source is not there, or another than that of the function's code.
    """
    code = function.__code__
    tree, whole = _file(code.co_filename)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name and _first_line(node) == code.co_firstlineno:
            if any(_same(found, code) for found in _within(whole)):
                return node
            break
    raise NotCompiledError("its source cannot be read, or is not what it was made from")


def compiled(node: ast.FunctionDef, free: Sequence[str], like: CodeType) -> CodeType:
    """Compile a function by itself.

    Args:
        free: the names that it takes from around it.
        like: the code from whose file it is, and with whose ``from __future__``.
    """
    [around] = ast.parse("def around(): pass").body
    assert isinstance(around, ast.FunctionDef)
    around.args.args = [ast.arg(name) for name in free]
    around.body = [node]
    module = ast.fix_missing_locations(ast.Module([around], []))
    whole = compile(module, like.co_filename, "exec", flags=like.co_flags & FUTURES, dont_inherit=True)
    [outer] = (constant for constant in whole.co_consts if isinstance(constant, CodeType))
    return next(code for code in _within(outer) if code.co_name == node.name)


@lru_cache(maxsize=8)
def _file(name: str) -> tuple[ast.Module, CodeType]:
    try:
        tree = ast.parse("".join(linecache.getlines(name)))
        return tree, compile(tree, name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise NotCompiledError("its source cannot be read") from error


def _first_line(node: ast.FunctionDef) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _within(code: CodeType) -> Iterator[CodeType]:
    """Yield the codes of all functions and classes in a code, the outer ones before the inner ones."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _within(constant)


def _same(code: CodeType, other: CodeType) -> bool:
    return (
        code.co_firstlineno == other.co_firstlineno
        and all(getattr(code, name) == getattr(other, name) for name in COMPARED)
        and list(code.co_lines()) == list(other.co_lines())
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
