"""Which prototype keeps the windows of an author's class."""

from operator import attrgetter
from typing import Any

import msgspec

from penstock.app.element import ProcessingElement, overrides
from penstock.app.window.endless import ByCount, ByCountToTheEnd, ByTime
from penstock.app.window.windowed import Aligned, Counted, CountedToTheEnd, Events, Panes, Part, Sessions, Windowed
from penstock.app.window.windowing import Count, Global, Session, Sliding, Windowing


def windowed(body: type[ProcessingElement], windowing: Windowing, field: str | None) -> type[Windowed]:
    """The prototype that keeps an instance of ``body`` for each window.

    Parameters
    ----------
    field: of the events, which holds their time; None for windows by count without one.
    """
    open_: Any = ("open", dict[int, Part[body]], msgspec.field(default_factory=dict))  # type: ignore[valid-type]
    parts: Any = ("parts", list[Events[body]], msgspec.field(default_factory=list))  # type: ignore[valid-type]
    whole: Any = ("whole", Events[body] | None, None)  # type: ignore[valid-type]
    base: type[Windowed]
    if isinstance(windowing, Count):
        base, fields = (Counted if field is None else CountedToTheEnd), [parts]
    elif isinstance(windowing, Global) and windowing.every is None:
        base, fields = (ByCount if field is None else ByCountToTheEnd), [whole]
    elif isinstance(windowing, Global):
        base, fields = ByTime, [open_, whole]
    elif isinstance(windowing, Session):
        base, fields = Sessions, [open_]
    else:
        base, fields = (Panes if shares_panes(body, windowing) else Aligned), [open_]
    made: Any = msgspec.defstruct(
        body.__name__, fields, bases=(base,), module=body.__module__, dict=True,
        namespace={"body": body, "windowing": windowing, "time_of": None if field is None else attrgetter(field)},
    )  # fmt: skip
    prototype: type[Windowed] = made
    return prototype


def shares_panes(body: type[ProcessingElement], windowing: Windowing) -> bool:
    """Whether windows are merged from parts that they share: the body says how, and asks for nothing between."""
    plain = not (overrides(body, "on_batch") or overrides(body, "on_late") or windowing.allowed_us)
    return isinstance(windowing, Sliding) and windowing.shared and overrides(body, "merge") and plain
