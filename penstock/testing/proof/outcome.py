"""Outcomes of runs of a sample, and their differences."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

Rows = list[str]
"""Events as JSON, in the order of emission."""

DIGITS = 9
"""Floats that agree to this many significant digits count as different by rounding only."""


class Outcome(msgspec.Struct):
    """The outcome of a run.

    Args:
        streams: emitted rows, by stream.
        moments: the momentary rows among these, emitted in ``on_batch``.
        last: the last momentary row of each instance, by stream and instance.
        letters: dead letters without their errors.
        errors: the first error of each place.
        events: the number of events handled, by element.
        late: the number of late events, by element.
        hooks: the number of calls of the application's code, by micro-batch.
        failed: the error that has stopped the run; empty if none has.
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
        """Return the outcome with floats rounded to `DIGITS`, to tell whether a difference is more than rounding."""
        return msgspec.structs.replace(
            self,
            streams={name: list(map(rounded, rows)) for name, rows in self.streams.items()},
            moments={name: list(map(rounded, rows)) for name, rows in self.moments.items()},
            last={name: {key: rounded(row) for key, row in rows.items()} for name, rows in self.last.items()},
        )


class Difference(msgspec.Struct, frozen=True):
    """The rows that only the first run has (missing), and those that only the second has (extra)."""

    missing: Rows
    extra: Rows

    def __bool__(self) -> bool:
        return bool(self.missing or self.extra)


def difference(expected: Rows, got: Rows) -> Difference:
    """Compare appended rows as multisets, regardless of order."""
    mine, theirs = Counter(expected), Counter(got)
    return Difference(list((mine - theirs).elements()), list((theirs - mine).elements()))


def last_by(rows: Rows, fields: Iterable[str]) -> dict[str, str]:
    """Return the last row of each key, given the key's fields by their names in JSON; a missing field counts as None."""
    names = tuple(fields)
    return {json.dumps([values.get(name) for name in names]): row for row in rows if (values := json.loads(row))}


def difference_of_tables(expected: Rows, got: Rows, key: Iterable[str]) -> Difference:
    """Compare upserted rows: only the last row of each key counts."""
    names = tuple(key)
    mine, theirs = last_by(expected, names), last_by(got, names)
    return difference(list(mine.values()), list(theirs.values()))


def normal(line: bytes) -> str:
    """Return a row in canonical JSON, with sorted keys."""
    return json.dumps(json.loads(line), sort_keys=True)


def rounded(row: str) -> str:
    """Return a row with its floats rounded to `DIGITS` significant digits."""
    return json.dumps(_each_float(json.loads(row)), sort_keys=True)


def _each_float(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {name: _each_float(inner) for name, inner in value.items()}
    return [_each_float(inner) for inner in value] if isinstance(value, list) else value
