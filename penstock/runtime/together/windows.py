"""Windows of reducers that take a delivery's events at once, as far as that comes to the same."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.app.element import Element, InstanceContext
from penstock.app.stepwise import field_of
from penstock.app.stream import Source
from penstock.app.window.aggregate import Reducing
from penstock.app.window.windowed import Part, Windowed
from penstock.app.window.windowing import microseconds, of_watermark
from penstock.runtime.instance import Instance
from penstock.runtime.letters import FAULTS
from penstock.runtime.together.adding import Adding, Ints, States, adding
from penstock.runtime.together.cells import Cells, Kind, kind_of_windows

FEW = 32
"""Events of a delivery that are as soon handled one by one."""


class Together:
    """Applies events to windows of reducers, all those that need not be looked at one by one.

    What it does is what `Windowed.on_event` would do with each; where that is not sure, it does nothing and leaves them.
    """

    def __init__(self, element: Element, kind: Kind, ways: Sequence[Adding], context: InstanceContext) -> None:
        self._prototype: type[Windowed] = element.body
        self._kind, self._ways, self._context = kind, ways, context
        self._body: Any = self._prototype.body
        [stream] = element.inputs
        time = stream.event_time if isinstance(stream, Source) else None
        self._from_source = time is not None and time.field == field_of(self._prototype.time_of)

    @classmethod
    def of(cls, element: Element, context: InstanceContext) -> "Together | None":
        """That of an element; None where it takes its events one by one."""
        found = ways_of(element)
        return None if isinstance(found, str) else cls(element, *found, context)

    def take(self, events: Sequence[Any], numbers: Ints, instances: Sequence[Instance[Any]], times: Ints) -> NDArray[np.bool_]:
        """Which events have been applied.

        Parameters
        ----------
        numbers: by event, the place of its instance among the instances. times: of the source events that they are.
        """
        taken = np.zeros(len(events), bool)
        if len(events) < FEW:
            return taken
        try:
            if not self._from_source:
                times = self._times(events)
            states = [instance.state for instance in instances]
            fired = of_watermark(self._context.fired)
            cells = self._kind.divide(self._prototype.windowing, times, numbers, states, fired)
            made = self._added([events[row] for row in cells.rows.tolist()], times[cells.rows], cells, states)
        except FAULTS:  # whichever event is at fault is found one by one; nothing has been changed
            return taken
        self._enter(cells, made, instances)
        self._context.late_in_part += cells.late_in_part
        taken[cells.rows] = True
        return taken

    def _times(self, events: Sequence[Any]) -> Ints:
        """In microseconds."""
        reader: Any = self._prototype.time_of
        return np.array([microseconds(reader(event)) for event in events], np.int64)

    def _added(self, events: list[Any], times: Ints, cells: Cells, states: Sequence[Any]) -> list[States]:
        """By reducer, its states of the cells with their events; none is in its place yet."""
        known = [None if place.known is None else states[place.instance].open[place.known].state for place in cells.places]
        wanted: dict[int, Ints] = {}
        values: dict[str, list[Any]] = {}
        made = []
        for (name, reducer), add in zip(self._body.states, self._ways, strict=True):
            before = [reducer.start() if state is None else getattr(state, name) for state in known]
            if reducer.field is not None and reducer.field not in values:
                values[reducer.field] = [getattr(event, reducer.field) for event in events]
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
        """Put new states into their windows."""
        names = [name for name, _ in self._body.states]
        context = self._context
        for place, *states in zip(cells.places, *made, strict=True):
            instance = instances[place.instance]
            windows = instance.state.open
            part = Part(self._body(), place.end) if place.known is None else windows[place.known]
            for name, state in zip(names, states, strict=True):
                setattr(part.state, name, state)
            context.due = instance.due
            self._kind.enter(instance.state, place, part)
            instance.due = context.due


def ways_of(element: Element) -> tuple[Kind, list[Adding]] | str:
    """How an element's windows, and their reducers, take many events at once; or why they take them one by one."""
    prototype = element.prototype
    if prototype is None or not issubclass(prototype, Windowed) or not issubclass(prototype.body, Reducing):
        return "its code is the application's own"
    windowing = prototype.windowing
    if prototype.time_of is None:
        return "its events have no times"
    kind = kind_of_windows(prototype)
    if kind is None:
        return f"windows of {windowing} are found event by event"
    ways = []
    for name, reducer in prototype.body.reducers.items():
        way = adding(reducer, element.inputs[0].event_type)
        if way is None:
            return f"{name}={type(reducer).__name__}(...) adds event by event"
        ways.append(way)
    return kind, ways
