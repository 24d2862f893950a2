"""Compiles conditions on events to conditions on columns, with equal results."""

import ast
import builtins
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
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


class Answer(NamedTuple):
    """What a condition comes to for each event, and where it would raise instead."""

    holds: Bools
    raises: Bools

    def __and__(self, other: "Answer") -> "Answer":
        """As ``and`` does, which leaves out the other condition where the first one does not hold."""
        return Answer(self.holds & other.holds, self.raises | (self.holds & other.raises))

    def __or__(self, other: "Answer") -> "Answer":
        return Answer(self.holds | other.holds, self.raises | (~self.holds & other.raises))

    def __invert__(self) -> "Answer":
        return Answer(~self.holds, self.raises)


Asked = Callable[[Columns], Answer]


def compile_predicate(wanted: Callable[[Any], Any], kinds: Mapping[str, Kind]) -> Predicate:
    """Compile a condition on events: comparisons of fields with each other, constants and variables; ``and``, ``or``, ``not``.

    Args:
        kinds: the fields of the events that can be in columns, and the kinds of their values.

    Raises:
        NotCompiledError: it must be called for each event; the text says why.
    """
    fields = set[str]()
    asked = _asked(wanted, kinds, fields)

    def holds(columns: Columns) -> Bools:
        answer = asked(columns)
        if answer.raises.any():
            raise TypeError("it raises for some events")
        return answer.holds

    return Predicate(holds, frozenset(fields))


def _asked(wanted: Callable[[Any], Any], kinds: Mapping[str, Kind], fields: set[str]) -> Asked:
    """Compile a condition, and add the fields that it reads to ``fields``."""
    if isinstance(wanted, Both):
        one, other = _asked(wanted.one, kinds, fields), _asked(wanted.other, kinds, fields)
        return lambda columns: one(columns) & other(columns)
    if type(wanted) is not FunctionType:
        raise NotCompiledError("a condition is no plain function")
    code = wanted.__code__
    arguments, body = returned(wanted)
    asked = _Compiling(wanted, arguments, kinds, fields).condition(body)

    def of_that_code(columns: Columns) -> Answer:
        if wanted.__code__ is not code:
            raise TypeError("the function has other code now")
        return asked(columns)

    return of_that_code


class _Compiling:
    def __init__(self, function: FunctionType, arguments: ast.arguments, kinds: Mapping[str, Kind], fields: set[str]) -> None:
        names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
        if len(names) != 1 or arguments.vararg or arguments.kwarg or arguments.kwonlyargs:
            raise _beyond("a condition takes more than the event")
        self._function, [self._event], self._kinds, self._fields = function, names, kinds, fields

    def condition(self, node: ast.expr) -> Asked:
        match node:
            case ast.BoolOp(op, parts):
                joined = operator.and_ if isinstance(op, ast.And) else operator.or_
                return _each(joined, [self.condition(part) for part in parts])
            case ast.UnaryOp(ast.Not(), part):
                asked = self.condition(part)
                return lambda columns: ~asked(columns)
            case ast.Compare(left, ops, others):
                pairs = zip([left, *others], ops, others, strict=False)
                return _each(operator.and_, [self._comparison(one, op, other) for one, op, other in pairs])
        field = self._field(node)
        if field is None:
            raise _beyond()
        return lambda columns: _is_true(columns[field])

    def _comparison(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Asked:
        one, other = self._field(left), self._field(right)
        turned = TURNED.get(type(op), type(op))
        if one is None and other is not None and turned in COMPARED:
            return self._comparison(right, turned(), left)
        if one is None:
            raise _beyond()
        if other is not None:
            if type(op) not in COMPARED or not {self._kinds[one], self._kinds[other]} <= {"int", "float"}:
                raise _beyond()
            compare, name = COMPARED[type(op)], other
            return lambda columns: _of_numbers(compare, columns[one], columns[name])
        match op, right:
            case ((ast.In() | ast.NotIn()), (ast.Tuple(parts) | ast.List(parts) | ast.Set(parts))) if parts:
                if self._kinds[one] == "float":
                    raise _beyond()
                equal = [self._with(one, operator.eq, part) for part in parts]
                wanted = isinstance(op, ast.In)
                among = _each(operator.or_, equal)
                return among if wanted else lambda columns: ~among(columns)
            case ((ast.Is() | ast.IsNot()), ast.Constant(None)):
                expected = isinstance(op, ast.Is)
                return lambda columns: _is_none(columns[one], expected)
        if type(op) not in COMPARED:
            raise _beyond()
        return self._with(one, COMPARED[type(op)], right)

    def _with(self, field: str, compare: Callable[[Any, Any], Any], node: ast.expr) -> Asked:
        """Compare a field with a constant or a variable."""
        kind, value = self._kinds[field], self._value(node)
        if not isinstance(node, ast.Name) and not _compares(kind, value()):
            raise _beyond(f"a condition compares {field} with {value()!r}, which an array does otherwise")

        def compared(columns: Columns) -> Answer:
            known, column = value(), columns[field]
            if isinstance(column, Coded):
                return _of_each(lambda each: compare(each, known), column)
            if not _compares(kind, known):
                raise TypeError(f"an array compares {known!r} otherwise")
            return _of_numbers(compare, column, np.array(known))

        return compared

    def _field(self, node: ast.expr) -> str | None:
        match node:
            case ast.Attribute(ast.Name(name), field) if name == self._event:
                if field not in self._kinds:
                    raise _beyond(f"a condition reads {field}, which is not read in columns")
                self._fields.add(field)
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
        if name not in (*function.__code__.co_names, *function.__code__.co_freevars):
            raise TypeError(f"{name} is of another name there")  # that of a class is put before its two underscores
        if name in function.__code__.co_freevars:
            cells = function.__closure__ or ()
            value = cells[function.__code__.co_freevars.index(name)].cell_contents
        else:
            value = function.__globals__[name] if name in function.__globals__ else vars(builtins)[name]
        if type(value) not in (int, float, str, bool, type(None)):
            raise TypeError(f"{name} is a {type(value).__name__}")
        return value


def _each(joined: Callable[[Answer, Answer], Answer], conditions: Sequence[Asked]) -> Asked:
    """Join the answers of some conditions."""
    return lambda columns: reduce(joined, [asked(columns) for asked in conditions])


def _compares(kind: Kind, value: Any) -> bool:
    """Whether an array of a kind might compare with a value as Python's numbers do."""
    if kind not in ("int", "float") or type(value) is float:
        return True
    return type(value) is int and (abs(value) <= EXACT if kind == "float" else -(1 << 63) <= value < 1 << 63)


def _of_numbers(compare: Callable[[Any, Any], Any], one: Any, other: Any) -> Answer:
    """Compare arrays of numbers. Python compares integers with floats exactly, and arrays as floats."""
    kinds = {array.dtype.kind: array for array in (one, other)}
    if len(kinds) > 1 and ((kinds["i"] > EXACT) | (kinds["i"] < -EXACT)).any():
        raise TypeError("an array compares large integers otherwise")
    return _certain(compare(one, other))


def _of_each(holds: Callable[[Any], Any], column: Coded) -> Answer:
    """Apply a condition to each distinct value of a column."""
    found = np.zeros((2, len(column.values)), bool)
    for number, value in enumerate(column.values):
        try:
            found[0, number] = bool(holds(value))
        except Exception:
            found[1, number] = True
    return Answer(*found[:, column.codes])


def _is_true(column: Column) -> Answer:
    return _of_each(bool, column) if isinstance(column, Coded) else _certain(column != 0)


def _is_none(column: Column, expected: bool) -> Answer:
    if isinstance(column, Coded):
        return _of_each(lambda value: (value is None) == expected, column)
    return _certain(np.full(len(column), not expected))


def _certain(holds: Any) -> Answer:
    """The answer of a condition that raises nowhere."""
    holds = np.asarray(holds, bool)
    return Answer(holds, np.zeros(holds.shape, bool))


def _beyond(why: str = "a condition is more than comparisons of fields with constants") -> NotCompiledError:
    return NotCompiledError(why)
