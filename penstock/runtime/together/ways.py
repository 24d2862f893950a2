"""Whether an element takes many events at once, and by which functions."""

from penstock.app.element import Element
from penstock.app.window.aggregate import Reducing
from penstock.app.window.windowed import Windowed
from penstock.runtime.together.adding import Adding, adding
from penstock.runtime.together.cells import WindowCells, kind_of_windows


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
