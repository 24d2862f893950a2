"""Adds many events to reducers' states at once, with the results of calling ``add`` for one after the other, to the last bit.

Where arrays cannot give equal results (integers that may pass 64 bits, NaN, signed zeros), `OneByOne` is raised before any
state is changed.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.app import reducers
from penstock.app.reducers import Reducer
from penstock.kinds.annotations import kind_of
from penstock.kinds.event import Event

Ints = NDArray[np.int64]
States = list[Any]
Values = list[Any] | NDArray[Any]
"""Values of events: objects, or an array of integers or floats."""
Adding = Callable[[Any, States, Ints, Values, Ints], States]
"""Adds rows to a reducer's states. Takes the reducer, its state in each cell, and of each row the index of its cell, its value
and its time in microseconds; returns the new state of each cell."""


class OneByOne(Exception):
    """Raised when events must be processed one by one, as arrays would not give equal results."""


def _counted(reducer: Any, states: States, at: Ints, values: Values, times: Ints) -> States:
    numbers = np.bincount(at, minlength=len(states)).tolist()
    return [state + number for state, number in zip(states, numbers, strict=True)]


def chosen(values: Values, rows: Ints) -> Values:
    """Return the values of some rows."""
    return [values[row] for row in rows.tolist()] if isinstance(values, list) else values[rows]


def _summed(reducer: Any, states: States, at: Ints, values: Values, times: Ints) -> States:
    if _are_floats(values):
        return _in_turn(states, at, np.asarray(values, np.float64))
    numbers = _integers(values)
    if max(-int(numbers.min()), int(numbers.max())) * len(numbers) >= 1 << 62:
        raise OneByOne
    sums = np.zeros(len(states), np.int64)
    np.add.at(sums, at, numbers)
    return [state + number for state, number in zip(states, sums.tolist(), strict=True)]


def _averaged(reducer: Any, states: States, at: Ints, values: Values, times: Ints) -> States:
    numbers = np.asarray(values, np.float64) if _are_floats(values) else _integers(values).astype(np.float64)
    totals = _in_turn([total for total, _ in states], at, numbers)
    seen = np.bincount(at, minlength=len(states)).tolist()
    return [(total, number + added) for total, (_, number), added in zip(totals, states, seen, strict=True)]


def _in_turn(states: States, at: Ints, numbers: NDArray[np.float64]) -> States:
    """Add floats to each cell's state in the order of rows, as a sum of floats depends on the order."""
    sums = np.array(states, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):  # infinity and NaN, as with Python's floats
        np.add.at(sums, at, numbers)
    untouched = np.ones(len(states), bool)
    untouched[at] = False
    return [state if same else total for state, same, total in zip(states, untouched.tolist(), sums.tolist(), strict=True)]


def _extreme(better: np.ufunc, reducer: Any, states: States, at: Ints, values: Values, times: Ints) -> States:
    if _are_floats(values):
        column: NDArray[Any] = np.asarray(values, np.float64)
        if np.isnan(column).any() or (column == 0).any():  # NaN and signed zeros compare otherwise in arrays
            raise OneByOne
    else:
        column = _integers(values)
    order = np.argsort(at, kind="stable")
    cells, first = np.unique(at[order], return_index=True)
    extremes = better.reduceat(column[order], first).tolist()
    made = list(states)
    for cell, value in zip(cells.tolist(), extremes, strict=True):
        made[cell] = reducer.add(states[cell], value, 0)
    return made


def _are_floats(values: Values) -> bool:
    return type(values[0]) is float if isinstance(values, list) else values.dtype == np.float64


def _integers(values: Values) -> Ints:
    try:
        return np.asarray(values, np.int64)
    except OverflowError:
        raise OneByOne from None


def _listed(values: Values) -> list[Any]:
    """Return values as Python's own."""
    return values if isinstance(values, list) else values.tolist()


def _added(reducer: Reducer[Any], states: States, at: Ints, values: Values, times: Ints) -> States:
    """Call ``add`` row by row; this still saves the rest of the work per event."""
    made, add = list(states), reducer.add
    for cell, value, time in zip(at.tolist(), _listed(values), times.tolist(), strict=True):
        made[cell] = add(made[cell], value, time)
    return made


def _joined(
    join: Callable[[Any, Any, list[Any]], Any], reducer: Any, states: States, at: Ints, values: list[Any], times: Ints
) -> States:
    """Join the values of each cell to its state by a function of the reducer, the state and the values."""
    made = list(states)
    for cell, seen in _by_cell(at, values):
        made[cell] = join(reducer, states[cell], seen)
    return made


def _collected(reducer: Any, states: States, at: Ints, values: Values, times: Ints) -> States:
    made = list(states)
    for cell, seen in _by_cell(at, list(zip(times.tolist(), _listed(values), strict=True))):
        made[cell] = [*states[cell], *seen]
    return made


def _by_cell(at: Ints, values: Values) -> Iterator[tuple[int, list[Any]]]:
    """Group the values of rows by cell: yields each cell with its values, in the order of rows."""
    order = np.argsort(at, kind="stable")
    listed, cells = _listed(chosen(values, order)), at[order]
    ends = [*(np.flatnonzero(np.diff(cells)) + 1).tolist(), len(cells)]
    start = 0
    for cell, end in zip(cells[[each - 1 for each in ends]].tolist(), ends, strict=True):
        yield cell, listed[start:end]
        start = end


ADDING: Mapping[type, Adding] = {
    reducers.count: _counted,
    reducers.sum: _summed,
    reducers.mean: _averaged,
    reducers.min: partial(_extreme, np.minimum),
    reducers.max: partial(_extreme, np.maximum),
    reducers.first: _added,
    reducers.last: _added,
    reducers.top: partial(_joined, lambda top, events, more: top.merge(events, more)),
    # A new set: old states must stay unchanged until all succeed.
    reducers.distinct: partial(_joined, lambda _, values, more: values.union(more)),
    reducers.approx_distinct: partial(_joined, lambda sketch, state, values: sketch.add_all(state, values)),
    reducers.collect: _collected,
}
"""By the reducer's exact class, as a subclass may add otherwise. `fold` is missing, as it runs user code."""

NUMBERS = (int, float)
HASHED = (int, str, bool, bytes, datetime)
"""Types whose equal values, None included, are one element of a set; not floats, because of NaN."""


def adding(reducer: Reducer[Any], event: type[Event]) -> Adding | None:
    """Return the function that adds many events to a reducer; None where it takes events one by one."""
    add = ADDING.get(type(reducer))
    if add is None:
        return None
    kind = None if reducer.field is None else reducer.value_type(event)
    if isinstance(reducer, reducers.sum | reducers.mean):
        return add if kind in NUMBERS else None
    if isinstance(reducer, reducers.min | reducers.max) and kind not in NUMBERS:
        return _added
    if isinstance(reducer, reducers.distinct):
        row = kind_of(kind)
        return add if row is not None and row.python in HASHED else None
    return add
