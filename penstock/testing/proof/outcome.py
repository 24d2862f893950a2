"""What came of one run of a sample, and in which of it two runs differ."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
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
    streams: what was emitted, by stream. moments: what of that ``on_batch`` has, which stands for a moment. last: of each
        instance the last of these, by stream and instance.
    letters: dead letters without their errors. errors: of the first of each place.
    events: what elements were handed, and late: what they took for late, by element.
    hooks: how often the application's code was called, by micro-batch.
    failed: the error that has stopped it; empty, if none has.
    """

    streams: dict[str, Rows] = {}
    moments: dict[str, Rows] = {}
    last: dict[str, dict[str, str]] = {}
    letters: Rows = []
    errors: dict[str, str] = {}
    events: dict[str, int] = {}
    late: dict[str, int] = {}
    hooks: list[int] = []
    failed: str = ""

    def rounded(self) -> "Outcome":
        """With floats to a few digits, by which it is told whether more than rounding makes a difference."""
        return msgspec.structs.replace(
            self,
            streams={name: list(map(rounded, rows)) for name, rows in self.streams.items()},
            moments={name: list(map(rounded, rows)) for name, rows in self.moments.items()},
            last={name: {key: rounded(row) for key, row in rows.items()} for name, rows in self.last.items()},
        )


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
    """The last row of each key, by the fields' names in JSON; one that is left out has its default."""
    names = tuple(fields)
    return {json.dumps([values.get(name) for name in names]): row for row in rows if (values := json.loads(row))}


def difference_of_tables(expected: Rows, got: Rows, key: Iterable[str]) -> Difference:
    """Of rows that are upserted: the last of each key counts."""
    names = tuple(key)
    mine, theirs = last_by(expected, names), last_by(got, names)
    return difference(list(mine.values()), list(theirs.values()))


def normal(line: bytes) -> str:
    """A row in the one form that all equal ones have."""
    return json.dumps(json.loads(line), sort_keys=True)


def rounded(row: str) -> str:
    """A row with its floats to a few digits."""
    return json.dumps(_each_float(json.loads(row)), sort_keys=True)


def _each_float(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {name: _each_float(each) for name, each in value.items()}
    return [_each_float(each) for each in value] if isinstance(value, list) else value
