"""Adds a delivery's events to windows of reducers at once, where results equal those of adding them one by one."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.app.element import Element, InstanceContext
from penstock.app.stepwise import field_of
from penstock.app.stream import Source
from penstock.app.window.aggregate import Reducing
from penstock.app.window.windowed import Windowed, WindowPart
from penstock.app.window.windowing import EARLIEST, LATEST, of_watermark
from penstock.kinds.defaults import maker
from penstock.kinds.moment_columns import all_microseconds
from penstock.runtime.instance import Instance
from penstock.runtime.letters import FAULTS
from penstock.runtime.together.adding import Adding, Ints, States, adding
from penstock.runtime.together.cells import Cells, WindowCells, kind_of_windows, rows_beside

FEW = 32
"""Deliveries with fewer events are handled one by one, which is as fast."""


class Together:
    """Applies many events to windows of reducers at once.

    The result equals that of `Windowed.on_event` for each event; events for which this is not certain are left untouched.
    """

    def __init__(self, element: Element, kind: WindowCells, ways: Sequence[Adding], context: InstanceContext) -> None:
        self._prototype: type[Windowed] = element.body
        self._kind, self._ways, self._context = kind, ways, context
        self._body: Any = self._prototype.body
        self._made = maker(self._prototype.body)
        [stream] = element.inputs
        time = stream.event_time if isinstance(stream, Source) else None
        self._from_source = time is not None and time.field == field_of(self._prototype.time_of)

    @classmethod
    def of(cls, element: Element, context: InstanceContext) -> "Together | None":
        """Return a `Together` for an element; None if the element takes its events one by one."""
        ways = ways_of(element)
        return None if isinstance(ways, str) else cls(element, *ways, context)

    def take(self, events: Sequence[Any], numbers: Ints, instances: Sequence[Instance[Any]], times: Ints) -> NDArray[np.bool_]:
        """Apply events where possible; returns a mask of the events applied. The others must be applied one by one.

        Args:
            numbers: for each event, its instance's index.
            times: the source's times in microseconds, ignored if windows use others.
        """
        taken = np.zeros(len(events), bool)
        if len(events) < FEW:
            return taken
        try:
            if not self._from_source:
                times = self._times(events)
            states = [instance.state for instance in instances]
            fired = of_watermark(self._context.fired)
            rows = rows_beside(self._is_far(times), numbers, len(states))
            cells = self._kind.divide(self._prototype.windowing, times[rows], numbers[rows], states, fired)
            cells = cells._replace(rows=rows[cells.rows])
            made = self._added([events[row] for row in cells.rows.tolist()], times[cells.rows], cells, states)
        except FAULTS:  # no state has been changed; the faulty event shows when they are applied one by one
            return taken
        self._enter(cells, made, instances)
        self._context.late_in_part += cells.late_in_part
        taken[cells.rows] = True
        return taken

    def _is_far(self, times: Ints) -> NDArray[np.bool_]:
        """Whether an event's windows may lie outside the years 1 to 9999, which shows when they are handed the event."""
        windowing: Any = self._prototype.windowing
        margin = 2 * windowing.longest_us + windowing.allowed_us
        is_far: NDArray[np.bool_] = (times < EARLIEST + margin) | (times > LATEST - margin)
        return is_far

    def _times(self, events: Sequence[Any]) -> Ints:
        """Read the events' times, in microseconds."""
        reader: Any = self._prototype.time_of
        return all_microseconds(list(map(reader, events)))

    def _added(self, events: list[Any], times: Ints, cells: Cells, states: Sequence[Any]) -> list[States]:
        """Return, for each reducer, its new state in each cell; no window is changed yet."""
        known = [None if place.known is None else states[place.instance].open[place.known].state for place in cells.places]
        wanted: dict[int, Ints] = {}
        values: dict[str, list[Any]] = {}
        made = []
        for (name, reducer), add in zip(self._body.states, self._ways, strict=True):
            before = [reducer.start() if state is None else getattr(state, name) for state in known]
            if reducer.field is not None and reducer.field not in values:
                values[reducer.field] = list(map(attrgetter(reducer.field), events))
            column = events if reducer.field is None else values[reducer.field]
            at, when = cells.at, times
            if reducer.wanted is not None:
                rows = wanted.get(id(reducer.wanted))
                if rows is None:
                    rows = np.flatnonzero([bool(reducer.wanted(event)) for event in events])
                    wanted[id(reducer.wanted)] = rows
                at, when, column = at[rows], when[rows], [column[row] for row in rows.tolist()]
            made.append(add(reducer, before, at, column, when) if len(column) else before)
        return made

    def _enter(self, cells: Cells, made: list[States], instances: Sequence[Instance[Any]]) -> None:
        """Put new states into their windows, and set the instances' timers."""
        names = [name for name, _ in self._body.states]
        context = self._context
        for place, *states in zip(cells.places, *made, strict=True):
            instance = instances[place.instance]
            windows = instance.state.open
            part = WindowPart(self._made(), place.end) if place.known is None else windows[place.known]
            for name, state in zip(names, states, strict=True):
                setattr(part.state, name, state)
            context.due = instance.due
            self._kind.enter(instance.state, place, part)
            instance.due = context.due


def ways_of(element: Element) -> tuple[WindowCells, list[Adding]] | str:
    """Return the functions by which an element's windows and reducers take many events at once, or a text that says why not."""
    prototype = element.prototype
    if prototype is None or not issubclass(prototype, Windowed) or not issubclass(prototype.body, Reducing):
        return "its code is the application's own"
    windowing = prototype.windowing
    if prototype.time_of is None:
        return "its events have no times"
    kind = kind_of_windows(prototype)
    if kind is None:
        return f"windows of {windowing} are assigned event by event"
    ways = []
    for name, reducer in prototype.body.reducers.items():
        way = adding(reducer, element.inputs[0].event_type)
        if way is None:
            return f"{name}={type(reducer).__name__}(...) adds event by event"
        ways.append(way)
    return kind, ways
