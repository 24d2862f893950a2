"""Adds a delivery's events to windows of reducers at once, where results equal those of adding them one by one."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.app.element import Element, InstanceContext
from penstock.app.reducers import count
from penstock.app.window.windowed import Windowed, WindowPart
from penstock.app.window.windowing import EARLIEST, LATEST, of_watermark
from penstock.kinds.defaults import maker
from penstock.runtime.instance import Instance
from penstock.runtime.letters import FAULTS
from penstock.runtime.together.adding import Adding, Ints, States, Values, chosen
from penstock.runtime.together.cells import MOST, Cells, WindowCells, rows_beside
from penstock.runtime.together.reading import times_of_source
from penstock.runtime.together.rows import Rows
from penstock.runtime.together.ways import ways_of

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
        self._from_source = times_of_source(element)

    @classmethod
    def of(cls, element: Element, context: InstanceContext) -> "Together | None":
        """Return a `Together` for an element; None if the element takes its events one by one."""
        ways = ways_of(element)
        return None if isinstance(ways, str) else cls(element, *ways, context)

    def parts(self, events: int) -> list[slice]:
        """Divide a number of events into parts that can be handled at once."""
        at_once = MOST // self._kind.cells(self._prototype.windowing)
        return [slice(start, start + at_once) for start in range(0, events, at_once)] if at_once else []

    def take(self, events: Rows, numbers: Ints, instances: Sequence[Instance[Any]], times: Ints) -> NDArray[np.bool_]:
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
                times = events.times()
            states = [instance.state for instance in instances]
            fired = of_watermark(self._context.fired)
            rows = rows_beside(self._is_far(times), numbers, len(states))
            cells = self._kind.divide(self._prototype.windowing, times[rows], numbers[rows], states, fired)
            cells = cells._replace(rows=rows[cells.rows])
            made = self._added(events.take(cells.rows), times[cells.rows], cells, states)
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

    def _added(self, events: Rows, times: Ints, cells: Cells, states: Sequence[Any]) -> list[States]:
        """Return, for each reducer, its new state in each cell; no window is changed yet."""
        known = [None if place.known is None else states[place.instance].open[place.known].state for place in cells.places]
        wanted: dict[int, Ints] = {}
        values: dict[str | None, Values] = {}
        made = []
        for (name, reducer), add in zip(self._body.states, self._ways, strict=True):
            before = [reducer.start() if state is None else getattr(state, name) for state in known]
            if type(reducer) is not count and reducer.field not in values:
                values[reducer.field] = events.values(reducer.field)
            at, when = cells.at, times
            column = at if type(reducer) is count else values[reducer.field]  # which a count does not look at
            if reducer.wanted is not None:
                rows = wanted.get(id(reducer.wanted))
                if rows is None:
                    wanted[id(reducer.wanted)] = rows = np.flatnonzero(events.fulfil(reducer.wanted))
                at, when, column = at[rows], when[rows], chosen(column, rows)
            made.append(add(reducer, before, at, column, when) if len(at) else before)
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
