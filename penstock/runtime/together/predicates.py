"""Compiles conditions on events to conditions on columns, with equal results."""

import ast
import builtins
import operator
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.app.reducers import Both
from penstock.runtime.compiling.source import NotCompiledError, returned
from penstock.runtime.together.columns import Coded, Column, Columns, Kind

Bools = NDArray[np.bool_]
Condition = Callable[[Columns], Bools]
Value = Callable[[], Any]
"""Returns the value of a constant, or of a variable at present."""

COMPARED: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
TURNED: Mapping[type[ast.cmpop], type[ast.cmpop]] = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE}
"""By which ``a < b`` is ``b > a``."""
EXACT = 1 << 53
"""The integers up to this one are floats, too."""


class Predicate(NamedTuple):
    """A condition on columns, and the names of the fields that it reads. It raises where it must be called for each event."""

    holds: Condition
    fields: frozenset[str]


def compile_predicate(wanted: Callable[[Any], Any], kinds: Mapping[str, Kind]) -> Predicate:
    """Compile a condition on events: comparisons of fields with each other, constants and variables; ``and``, ``or``, ``not``.

    Args:
        kinds: the fields of the events that can be in columns, and the kinds of their values.

    Raises:
        NotCompiledError: it must be called for each event; the text says why.
    """
    if isinstance(wanted, Both):
        one, other = compile_predicate(wanted.one, kinds), compile_predicate(wanted.other, kinds)
        return Predicate(lambda columns: one.holds(columns) & other.holds(columns), one.fields | other.fields)
    if type(wanted) is not FunctionType:
        raise NotCompiledError("a condition is no plain function")
    arguments, body = returned(wanted)
    compiling = _Compiling(wanted, arguments, kinds)
    holds = compiling.condition(body)
    return Predicate(holds, frozenset(compiling.fields))


class _Compiling:
    def __init__(self, function: FunctionType, arguments: ast.arguments, kinds: Mapping[str, Kind]) -> None:
        names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
        if len(names) != 1 or arguments.vararg or arguments.kwarg or arguments.kwonlyargs:
            raise _beyond("a condition takes more than the event")
        self._function, [self._event], self._kinds = function, names, kinds
        self.fields: set[str] = set()

    def condition(self, node: ast.expr) -> Condition:
        match node:
            case ast.BoolOp(op, parts):
                conditions = [self.condition(part) for part in parts]
                reduce = np.logical_and.reduce if isinstance(op, ast.And) else np.logical_or.reduce
                return lambda columns: reduce([holds(columns) for holds in conditions])
            case ast.UnaryOp(ast.Not(), part):
                holds = self.condition(part)
                return lambda columns: ~holds(columns)
            case ast.Compare(left, ops, others):
                pairs = zip([left, *others], ops, others, strict=False)
                compared = [self._comparison(one, op, other) for one, op, other in pairs]
                return lambda columns: np.logical_and.reduce([holds(columns) for holds in compared])
        field = self._field(node)
        if field is None:
            raise _beyond()
        return lambda columns: _is_true(columns[field])

    def _comparison(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Condition:
        one, other = self._field(left), self._field(right)
        turned = TURNED.get(type(op), type(op))
        if one is None and other is not None and turned in COMPARED:
            return self._comparison(right, turned(), left)
        if one is None:
            raise _beyond()
        if other is not None:
            if type(op) not in COMPARED or self._kinds[one] != self._kinds[other] or self._kinds[one] not in ("int", "float"):
                raise _beyond()
            compare, name = COMPARED[type(op)], other
            return lambda columns: _bools(compare(columns[one], columns[name]))
        match op, right:
            case ((ast.In() | ast.NotIn()), (ast.Tuple(parts) | ast.List(parts) | ast.Set(parts))) if parts:
                if self._kinds[one] == "float":
                    raise _beyond()
                equal = [self._with(one, operator.eq, part) for part in parts]
                wanted = isinstance(op, ast.In)
                return lambda columns: np.logical_or.reduce([holds(columns) for holds in equal]) == wanted
            case ((ast.Is() | ast.IsNot()), ast.Constant(None)):
                expected = isinstance(op, ast.Is)
                return lambda columns: _is_none(columns[one]) == expected
        if type(op) not in COMPARED:
            raise _beyond()
        return self._with(one, COMPARED[type(op)], right)

    def _with(self, field: str, compare: Callable[[Any, Any], Any], node: ast.expr) -> Condition:
        """Compare a field with a constant or a variable."""
        kind, value = self._kinds[field], self._value(node)
        if not isinstance(node, ast.Name) and not _compares(kind, value()):
            raise _beyond(f"a condition compares {field} with {value()!r}, which an array does otherwise")

        def compared(columns: Columns) -> Bools:
            known, column = value(), columns[field]
            if isinstance(column, Coded):
                return _of_each(lambda each: compare(each, known), column)
            if not _compares(kind, known):
                raise TypeError(f"an array compares {known!r} otherwise")
            return _bools(compare(column, known))

        return compared

    def _field(self, node: ast.expr) -> str | None:
        match node:
            case ast.Attribute(ast.Name(name), field) if name == self._event:
                if field not in self._kinds:
                    raise _beyond(f"a condition reads {field}, which is not read in columns")
                self.fields.add(field)
                return field
        return None

    def _value(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant(value) if isinstance(value, int | float | str | None):
                return lambda: value
            case ast.UnaryOp(ast.USub(), ast.Constant(value)) if isinstance(value, int | float):
                negative = -value
                return lambda: negative
            case ast.Name(name) if name != self._event:
                return lambda: self._variable(name)
        raise _beyond()

    def _variable(self, name: str) -> Any:
        """Look a variable up, as a call of the function would.

        Raises:
            TypeError: it is no plain value, and may compare in a way of its own.
        """
        function = self._function
        if name in function.__code__.co_freevars:
            cells = function.__closure__ or ()
            value = cells[function.__code__.co_freevars.index(name)].cell_contents
        else:
            value = function.__globals__[name] if name in function.__globals__ else vars(builtins)[name]
        if type(value) not in (int, float, str, bool, type(None)):
            raise TypeError(f"{name} is a {type(value).__name__}")
        return value


def _compares(kind: Kind, value: Any) -> bool:
    """Whether an array of a kind compares with a value as Python's numbers do, which compare integers with floats exactly."""
    if kind == "float":
        return type(value) is float or (type(value) is int and abs(value) <= EXACT)
    return kind != "int" or (type(value) is int and -(1 << 63) <= value < 1 << 63)


def _of_each(holds: Callable[[Any], Any], column: Coded) -> Bools:
    """Apply a condition to each distinct value of a column."""
    return np.array([bool(holds(value)) for value in column.values], bool)[column.codes]


def _is_true(column: Column) -> Bools:
    return _of_each(bool, column) if isinstance(column, Coded) else _bools(column != 0)


def _is_none(column: Column) -> Bools:
    return _of_each(lambda value: value is None, column) if isinstance(column, Coded) else np.zeros(len(column), bool)


def _bools(values: Any) -> Bools:
    return np.asarray(values, bool)


def _beyond(why: str = "a condition is more than comparisons of fields with constants") -> NotCompiledError:
    return NotCompiledError(why)
