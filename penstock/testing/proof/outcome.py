"""What came of one run of a sample, and in which of it two runs differ."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

Rows = list[str]
"""Events as JSON, in the order in which they left."""

DIGITS = 9
"""To so many digits results of floating point must agree for their difference to be one of rounding."""


class Outcome(msgspec.Struct):
    """What a run came to.

    Parameters
    ----------
    streams: what was emitted, by stream. letters: dead letters without their errors.
    late: events taken for late, by element. hooks: how often the application's code was called, by micro-batch.
    failed: the error that has stopped it; empty, if none has.
    """

    streams: dict[str, Rows] = {}
    letters: Rows = []
    late: dict[str, int] = {}
    hooks: list[int] = []
    failed: str = ""


class Difference(msgspec.Struct, frozen=True):
    """What only one of two runs has."""

    missing: Rows
    extra: Rows

    def __bool__(self) -> bool:
        return bool(self.missing or self.extra)


def difference(expected: Rows, got: Rows) -> Difference:
    """Of rows that are appended: each as often in the one as in the other, in any order."""
    mine, theirs = Counter(expected), Counter(got)
    return Difference(list((mine - theirs).elements()), list((theirs - mine).elements()))


def last_by(rows: Rows, fields: Iterable[str]) -> dict[str, str]:
    """The last row of each key."""
    names = tuple(fields)
    return {json.dumps([_values(row)[name] for name in names]): row for row in rows}


def difference_of_tables(expected: Rows, got: Rows, key: Iterable[str]) -> Difference:
    """Of rows that are upserted: the last of each key counts."""
    names = tuple(key)
    mine, theirs = last_by(expected, names), last_by(got, names)
    return difference(list(mine.values()), list(theirs.values()))


def normal(line: bytes) -> str:
    """A row in the one form that all equal ones have."""
    return json.dumps(json.loads(line), sort_keys=True)


def _values(row: str) -> Any:
    return json.loads(row)


def rounded(rows: Rows) -> Rows:
    """Rows with their floats to a few digits, by which it is told whether more than rounding makes a difference."""
    return [json.dumps(_each_float(json.loads(row)), sort_keys=True) for row in rows]


def _each_float(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {name: _each_float(each) for name, each in value.items()}
    return [_each_float(each) for each in value] if isinstance(value, list) else value


Compared = Callable[[Rows, Rows], Difference]


def is_rounding(expected: Rows, got: Rows, compare: Compared) -> bool:
    """Whether two runs differ in the last digits of floats alone."""
    return not compare(rounded(expected), rounded(got))
