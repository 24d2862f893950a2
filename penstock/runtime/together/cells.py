"""Cells: which events of a delivery go into which windows of which instances, for each kind of window that can tell it of many
at once.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.app.window.aligned import Aligned, Panes, Sliding, Tumbling
from penstock.app.window.sessions import Session, Sessions
from penstock.app.window.windowed import Part, Windowed
from penstock.app.window.windowing import Windowing
from penstock.runtime.together.adding import Ints, OneByOne

MOST = 200_000
"""Events, once for each window that they lie in: beyond, they would take more memory than time."""

Bools = NDArray[np.bool_]


class Place(NamedTuple):
    """A cell: a window of an instance.

    Parameters
    ----------
    instance: by its number. start, end: of the window, once it has the cell's events.
    known: the start of the window that there is already, if there is one.
    """

    instance: int
    start: int
    end: int
    known: int | None


class Cells(NamedTuple):
    """What is to be done with some events at once.

    Parameters
    ----------
    rows: of the events that are taken, one that goes into several cells as often; all the others are to be handled one by one.
    at: the cell of each.
    late_in_part: how many of these events come too late for some of their windows.
    """

    rows: Ints
    at: Ints
    places: list[Place]
    late_in_part: int = 0


Dividing = Callable[[Any, Ints, Ints, Sequence[Any], int], Cells]
"""Of windows, the times of events and the numbers of their instances, the instances' states, and the watermark by which windows
have closed; times in microseconds."""


def _panes(windowing: Sliding, times: Ints, instances: Ints, states: Sequence[Any], fired: int) -> Cells:
    starts: Ints = windowing.last_start(times)
    rows = _rows_beside(starts + windowing.size_us <= fired, instances, len(states))
    partly = int((starts[rows] + windowing.every_us <= fired).sum())
    return Cells(rows, *_by_start(windowing, starts[rows], instances[rows], states), partly)


def _aligned(windowing: Sliding, times: Ints, instances: Ints, states: Sequence[Any], fired: int) -> Cells:
    """Each event in all windows that it lies in, the first of which has not closed."""
    starts: Ints = windowing.last_start(times)
    before = (windowing.size_us - 1) // windowing.every_us * windowing.every_us
    first = starts - before
    first = np.where(first + windowing.size_us > times, first, first + windowing.every_us)
    beside = _rows_beside(first + windowing.size_us <= fired, instances, len(states))
    if len(beside) * (before // windowing.every_us + 1) > MOST:
        raise OneByOne
    rows, lies_in = [beside], [starts[beside]]
    for back in range(windowing.every_us, before + 1, windowing.every_us):
        also = beside[starts[beside] - back >= first[beside]]
        rows.append(also)
        lies_in.append(starts[also] - back)
    all_rows, all_starts = np.concatenate(rows), np.concatenate(lies_in)
    order = np.argsort(all_rows, kind="stable")  # in the order of delivery, in which floats are added
    return Cells(all_rows[order], *_by_start(windowing, all_starts[order], instances[all_rows[order]], states))


def _by_start(windowing: Sliding, starts: Ints, owners: Ints, states: Sequence[Any]) -> tuple[Ints, list[Place]]:
    """The cell of each start of an instance's window, and what the cells are."""
    distinct, which = np.unique(starts, return_inverse=True)
    cells, at = np.unique(owners * len(distinct) + which, return_inverse=True)
    of, begins = np.divmod(cells, max(1, len(distinct)))
    places = []
    for instance, start in zip(of.tolist(), distinct[begins].tolist(), strict=True):
        known = start if start in states[instance].open else None
        places.append(Place(instance, start, start + windowing.size_us, known))
    return at, places


def _sessions(windowing: Any, times: Ints, instances: Ints, states: Sequence[Any], fired: int) -> Cells:
    gap = windowing.gap_us
    rows = _rows_beside(times + gap <= fired, instances, len(states))
    rows = rows[np.lexsort((times[rows], instances[rows]))]
    times, owners = times[rows], instances[rows]
    begins = np.ones(len(rows), bool)
    begins[1:] = (owners[1:] != owners[:-1]) | (times[1:] - times[:-1] >= gap)
    first = np.flatnonzero(begins)
    ends = np.append(first[1:], len(rows))[: len(first)]
    turned = np.zeros(len(rows), bool)
    turned[1:] = ~begins[1:] & (rows[1:] < rows[:-1])
    out_of_order = np.add.reduceat(turned, first) if len(first) else turned
    places, apart = [], np.zeros(len(states), bool)
    taken: set[tuple[int, tuple[int, int] | None]] = set()
    for at, until, disorder in zip(first.tolist(), ends.tolist(), out_of_order.tolist(), strict=True):
        instance, start, end = int(owners[at]), int(times[at]), int(times[until - 1]) + gap
        met = [(begun, part.end) for begun, part in states[instance].open.items() if begun < end and start < part.end]
        known = met[0] if met else None
        comes = times[at:until][np.argsort(rows[at:until])].tolist() if disorder else [start]
        if len(met) > 1 or (instance, known) in taken or not _grows(comes, known, gap):
            apart[instance] = True  # sessions that become one
        if known is not None:
            taken.add((instance, known))
            start, end = min(start, known[0]), max(end, known[1])
        places.append(Place(instance, start, end, None if known is None else known[0]))
    back = np.argsort(rows)  # in the order of delivery, in which floats are added
    cells = Cells(rows[back], (np.cumsum(begins) - 1)[back], places)
    return _without(cells, apart, instances) if apart.any() else cells


def _grows(times: list[int], known: tuple[int, int] | None, gap: int) -> bool:
    """Whether each of a session's events, in the order of delivery, joins what there is of it by then, and none begins
    another.
    """
    start, end = known or (times[0], times[0] + gap)
    for time in times:
        if not (start < time + gap and time < end):
            return False
        start, end = min(start, time), max(end, time + gap)
    return True


def _rows_beside(late: Bools, instances: Ints, number: int) -> Ints:
    """The rows of instances of whose events none is late for a window that has closed."""
    if not late.any():
        return np.arange(len(late))
    apart = np.zeros(number, bool)
    apart[instances[late]] = True
    return np.flatnonzero(~apart[instances])


def _without(cells: Cells, apart: Bools, instances: Ints) -> Cells:
    """Without some instances, whose events are to be handled one by one."""
    kept = ~apart[instances[cells.rows]]
    rows, left = cells.rows[kept], np.flatnonzero([not apart[place.instance] for place in cells.places])
    number = np.zeros(len(cells.places), np.int64)
    number[left] = np.arange(len(left))
    return Cells(rows, number[cells.at[kept]], [cells.places[cell] for cell in left.tolist()])


def _enter_spans(state: Any, place: Place, part: Part[Any]) -> None:
    """What else becomes of an instance with a window that has got events; as `Spans.on_event` has it."""
    if place.known is not None and place.known != place.start:
        del state.open[place.known]
        state.touched.discard(place.known)
    part.end, part.closed, part.again = place.end, False, False
    state.open[place.start] = part
    state.touched.add(place.start)
    state._wake_by(place.end)


def _enter_panes(state: Any, place: Place, part: Part[Any]) -> None:
    """The same, of parts that windows share."""
    if place.known is None:
        state.open[place.start] = part
        state.rearm()


class Kind(NamedTuple):
    """What is done with windows that are kept in one way."""

    divide: Dividing
    enter: Callable[[Any, Place, Part[Any]], None]


KINDS: Mapping[tuple[type[Windowing], type[Windowed]], Kind] = {
    (Tumbling, Aligned): Kind(_aligned, _enter_spans),
    (Sliding, Aligned): Kind(_aligned, _enter_spans),
    (Sliding, Panes): Kind(_panes, _enter_panes),
    (Session, Sessions): Kind(_sessions, _enter_spans),
}
"""By the windows, and what keeps them: what is derived from either may do otherwise."""


def kind_of_windows(prototype: type[Windowed]) -> Kind | None:
    """How windows of a prototype take many events; None where they take them one by one."""
    windowing, keeper = prototype.windowing, prototype.__mro__[1]
    if getattr(windowing, "zone", None) is not None:
        return None  # whose days differ in length
    return KINDS.get((type(windowing), keeper))
