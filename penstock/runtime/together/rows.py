"""The events that are taken at once, as objects or in columns: two forms with the same methods."""

from collections.abc import Callable, Mapping
from functools import cached_property
from operator import attrgetter
from typing import Any, Protocol

import numpy as np

from penstock.kinds.moment_columns import all_microseconds
from penstock.runtime.together.adding import Ints, Values
from penstock.runtime.together.columns import TIME, Coded, Column, Columns, taken
from penstock.runtime.together.predicates import Bools, Condition

Test = Callable[[Any], Any]


class Rows(Protocol):
    """Events of one stream."""

    def __len__(self) -> int: ...

    def take(self, rows: Ints) -> "Rows":
        """Return some of the events; a row may occur several times."""

    def times(self) -> Ints:
        """Return the times by which windows go, in microseconds."""

    def values(self, field: str | None) -> Values:
        """Return the values of a field; the events themselves for None."""

    def fulfil(self, wanted: Test) -> Bools:
        """Return whether each event fulfils a condition."""


class EventRows:
    """Events as objects.

    Args:
        time_of: reads the time by which windows go.
    """

    def __init__(self, events: list[Any], time_of: Callable[[Any], Any]) -> None:
        self._events, self._time_of = events, time_of

    def __len__(self) -> int:
        return len(self._events)

    def take(self, rows: Ints) -> "EventRows":
        return EventRows([self._events[row] for row in rows.tolist()], self._time_of)

    def times(self) -> Ints:
        return all_microseconds(list(map(self._time_of, self._events)))

    def values(self, field: str | None) -> Values:
        return self._events if field is None else list(map(attrgetter(field), self._events))

    def fulfil(self, wanted: Test) -> Bools:
        return np.array([bool(wanted(event)) for event in self._events], bool)


class _Taken(dict[str, Column]):
    """Columns of some rows, each of which is made when it is first read."""

    def __init__(self, columns: Columns, rows: Ints) -> None:
        self._all, self._rows = columns, rows

    def __missing__(self, name: str) -> Column:
        self[name] = column = taken(self._all[name], self._rows)
        return column


class ColumnRows:
    """Events in columns.

    Args:
        columns: of all events of a delivery.
        rows: the rows that these events have there.
        conditions: by the `id` of conditions on events, what they are for columns.
        event: returns the event of a row.
    """

    def __init__(self, columns: Columns, rows: Ints, conditions: Mapping[int, Condition], event: Callable[[int], Any]) -> None:
        self._all, self._rows, self._conditions, self._event = columns, rows, conditions, event

    @cached_property
    def _columns(self) -> Columns:
        return _Taken(self._all, self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def take(self, rows: Ints) -> "ColumnRows":
        return ColumnRows(self._all, self._rows[rows], self._conditions, self._event)

    def times(self) -> Ints:
        times = self._columns[TIME]
        assert not isinstance(times, Coded)
        return times

    def values(self, field: str | None) -> Values:
        assert field is not None
        column = self._columns[field]
        return column.listed() if isinstance(column, Coded) else column

    def fulfil(self, wanted: Test) -> Bools:
        try:
            return self._conditions[id(wanted)](self._columns)
        except Exception:  # as where it compares None with a number: the function itself has the last word
            return np.array([bool(wanted(self._event(row))) for row in self._rows.tolist()], bool)
