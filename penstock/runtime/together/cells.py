"""Assigns the events of a delivery to cells, many events at once. A cell is one window of one instance."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.app.window.aligned import Aligned, Panes, Sliding, Tumbling
from penstock.app.window.sessions import Session, Sessions
from penstock.app.window.windowed import Windowed, WindowPart
from penstock.app.window.windowing import Windowing
from penstock.runtime.together.adding import Ints

MOST = 200_000
"""The most pairs of an event and a window handled at once, to bound memory."""

Bools = NDArray[np.bool_]


class WindowCell(NamedTuple):
    """A cell: a window of an instance.

    Args:
        instance: the number of the instance.
        start, end: the bounds of the window after the cell's events were added, in microseconds.
        known: the start of the existing window that takes the events; None where the window is new.
    """

    instance: int
    start: int
    end: int
    known: int | None


class Cells(NamedTuple):
    """The events that are handled at once, and the cell of each.

    Args:
        rows: the rows of these events, repeated for each cell of an event; all other events must be handled one by one.
        at: for each of the rows, the index of its cell in ``places``.
        late_in_part: how many of these events come too late for some of their windows.
    """

    rows: Ints
    at: Ints
    places: list[WindowCell]
    late_in_part: int = 0


Dividing = Callable[[Any, Ints, Ints, Sequence[Any], int], Cells]
"""Divides events into cells. Takes the windowing, the events' times and their instances' numbers, the instances' states, and
the watermark up to which windows have closed; times in microseconds."""


def _panes(windowing: Sliding, times: Ints, instances: Ints, states: Sequence[Any], fired: int) -> Cells:
    """Put each event into its pane. Instances with an event whose windows have all closed are left out."""
    starts: Ints = windowing.last_start(times)
    rows = rows_beside(starts + windowing.size_us <= fired, instances, len(states))
    partly = int((starts[rows] + windowing.every_us <= fired).sum())
    return Cells(rows, *_by_start(windowing, starts[rows], instances[rows], states), partly)


def _aligned(windowing: Sliding, times: Ints, instances: Ints, states: Sequence[Any], fired: int) -> Cells:
    """Put each event into all windows it lies in. Instances with an event whose first window has closed are left out."""
    starts: Ints = windowing.last_start(times)
    before = (windowing.size_us - 1) // windowing.every_us * windowing.every_us
    first = starts - before
    first = np.where(first + windowing.size_us > times, first, first + windowing.every_us)
    beside = rows_beside(first + windowing.size_us <= fired, instances, len(states))
    # From the last window of each event, go back step by step, with the events that lie in the earlier window, too.
    rows, lies_in = [beside], [starts[beside]]
    for back in range(windowing.every_us, before + 1, windowing.every_us):
        also = beside[starts[beside] - back >= first[beside]]
        rows.append(also)
        lies_in.append(starts[also] - back)
    all_rows, all_starts = np.concatenate(rows), np.concatenate(lies_in)
    order = np.argsort(all_rows, kind="stable")  # in the order of delivery, which sums of floats depend on
    return Cells(all_rows[order], *_by_start(windowing, all_starts[order], instances[all_rows[order]], states))


def _by_start(windowing: Sliding, starts: Ints, owners: Ints, states: Sequence[Any]) -> tuple[Ints, list[WindowCell]]:
    """Number the distinct pairs of instance and window start: returns the cell of each event, and the cells."""
    distinct, which = np.unique(starts, return_inverse=True)
    cells, at = np.unique(owners * len(distinct) + which, return_inverse=True)
    owner_of_cell, begins = np.divmod(cells, max(1, len(distinct)))
    places = []
    for instance, start in zip(owner_of_cell.tolist(), distinct[begins].tolist(), strict=True):
        known = start if start in states[instance].open else None
        places.append(WindowCell(instance, start, start + windowing.size_us, known))
    return at, places


def _sessions(windowing: Any, times: Ints, instances: Ints, states: Sequence[Any], fired: int) -> Cells:
    """Put each event into a session. Instances with a late event, or whose sessions may merge, are left out."""
    gap = windowing.gap_us
    is_late = (times + gap <= fired) | (times < fired - windowing.allowed_us)
    rows = rows_beside(is_late, instances, len(states))
    rows = rows[np.lexsort((times[rows], instances[rows]))]
    times, owners = times[rows], instances[rows]
    # A session begins where the instance changes, or where a gap lies before the event.
    begins = np.ones(len(rows), bool)
    begins[1:] = (owners[1:] != owners[:-1]) | (times[1:] - times[:-1] >= gap)
    first = np.flatnonzero(begins)
    ends = np.append(first[1:], len(rows))[: len(first)]
    # Count the events of each session that were delivered before an event with an earlier time.
    turned = np.zeros(len(rows), bool)
    turned[1:] = ~begins[1:] & (rows[1:] < rows[:-1])
    out_of_order = np.add.reduceat(turned, first) if len(first) else turned
    places, apart = [], np.zeros(len(states), bool)
    taken: set[tuple[int, tuple[int, int] | None]] = set()
    for at, until, disorder in zip(first.tolist(), ends.tolist(), out_of_order.tolist(), strict=True):
        instance, start, end = int(owners[at]), int(times[at]), int(times[until - 1]) + gap
        overlapping = [(begun, part.end) for begun, part in states[instance].open.items() if begun < end and start < part.end]
        known = overlapping[0] if overlapping else None
        in_delivery_order = times[at:until][np.argsort(rows[at:until])].tolist() if disorder else [start]
        if len(overlapping) > 1 or (instance, known) in taken or not _grows(in_delivery_order, known, gap):
            apart[instance] = True  # sessions may merge, which is left to the code for single events
        if known is not None:
            taken.add((instance, known))
            start, end = min(start, known[0]), max(end, known[1])
        places.append(WindowCell(instance, start, end, None if known is None else known[0]))
    back = np.argsort(rows)  # to the order of delivery, which sums of floats depend on
    cells = Cells(rows[back], (np.cumsum(begins) - 1)[back], places)
    return _without(cells, apart, instances) if apart.any() else cells


def _grows(times: list[int], known: tuple[int, int] | None, gap: int) -> bool:
    """Whether each event, in the order of delivery, overlaps the session as it is by then. Otherwise the event would begin a
    session that merges later.
    """
    start, end = known or (times[0], times[0] + gap)
    for time in times:
        if not (start < time + gap and time < end):
            return False
        start, end = min(start, time), max(end, time + gap)
    return True


def rows_beside(late: Bools, instances: Ints, number: int) -> Ints:
    """Return the rows of the instances that have no late event; a late event needs its whole instance handled singly."""
    if not late.any():
        return np.arange(len(late))
    apart = np.zeros(number, bool)
    apart[instances[late]] = True
    return np.flatnonzero(~apart[instances])


def _without(cells: Cells, apart: Bools, instances: Ints) -> Cells:
    """Leave out the instances marked in ``apart``, whose events must be handled one by one."""
    is_taken = ~apart[instances[cells.rows]]
    rows, cells_left = cells.rows[is_taken], np.flatnonzero([not apart[place.instance] for place in cells.places])
    new_numbers = np.zeros(len(cells.places), np.int64)
    new_numbers[cells_left] = np.arange(len(cells_left))
    return Cells(rows, new_numbers[cells.at[is_taken]], [cells.places[cell] for cell in cells_left.tolist()])


def _enter_spans(state: Any, place: WindowCell, part: WindowPart[Any]) -> None:
    """Put a window with new events into an instance's state, and set its timer, as `Spans.on_event` does."""
    if place.known is not None and place.known != place.start:
        del state.open[place.known]
        state.touched.discard(place.known)
    part.end, part.closed, part.again = place.end, False, False
    state.open[place.start] = part
    state.touched.add(place.start)
    state._wake_by(place.end)


def _enter_panes(state: Any, place: WindowCell, part: WindowPart[Any]) -> None:
    """Put a pane, which several windows share, into an instance's state, and set its timer."""
    if place.known is None:
        state.open[place.start] = part
        state.rearm()


def _one(windowing: Any) -> int:
    return 1


def _overlapping(windowing: Sliding) -> int:
    return -(-windowing.size_us // windowing.every_us)


class WindowCells(NamedTuple):
    """The functions for one kind of windows: how events are divided into cells, and how a cell enters a state; and how many
    cells an event is at most in.
    """

    divide: Dividing
    enter: Callable[[Any, WindowCell, WindowPart[Any]], None]
    cells: Callable[[Any], int] = _one


KINDS: Mapping[tuple[type[Windowing], type[Windowed]], WindowCells] = {
    (Tumbling, Aligned): WindowCells(_aligned, _enter_spans),
    (Sliding, Aligned): WindowCells(_aligned, _enter_spans, _overlapping),
    (Sliding, Panes): WindowCells(_panes, _enter_panes),
    (Session, Sessions): WindowCells(_sessions, _enter_spans),
}
"""By the exact classes of the windowing and of its state, as subclasses of either may behave otherwise."""


def kind_of_windows(prototype: type[Windowed]) -> WindowCells | None:
    """Return the functions by which a prototype's windows take many events at once; None if they take events one by one."""
    windowing, keeper = prototype.windowing, prototype.__mro__[1]
    if getattr(windowing, "zone", None) is not None:
        return None  # days of a time zone differ in length
    return KINDS.get((type(windowing), keeper))
