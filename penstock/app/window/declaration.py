"""The declaration of a processing element with windows, and its checks."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from penstock.app.element import (
    WINDOW_HOOKS,
    Element,
    ProcessingElement,
    check_methods,
    check_state,
    declare,
    overrides,
    refuse_migrate,
)
from penstock.app.functions import check_function, check_plain_function
from penstock.app.stream import Source, Stream
from penstock.app.window.windowed import windowed
from penstock.app.window.windowing import Windowing
from penstock.errors import StateError, TopologyError
from penstock.kinds.event import field_types

TAKING_ONE = ("on_event", "on_late", "merge")
"""Hooks that take an argument: an event, or the state of another window."""


def declare_windowed(
    body: Any,
    inputs: Stream[Any] | Sequence[Stream[Any]],
    emits: Stream[Any] | Sequence[Stream[Any]],
    *,
    key: str | Sequence[str] | None,
    window: Windowing,
    name: str | None = None,
) -> Element:
    """Declare a keyed processing element that has a separate state for each window.

    Raises:
        TopologyError: the body or the window is not valid; the text says how to mend it.
        StateError: the body's state cannot be kept.
    """
    label = str(name or getattr(body, "__name__", repr(body)))
    streams = (inputs,) if isinstance(inputs, Stream) else tuple(inputs)
    _check(label, body, key, window)
    field = time_field(label, streams, window)
    element = declare(windowed(body, window, field), "event", inputs, emits, key=key, name=label, timers="event")
    check_state(replace(element, body=body))
    return replace(element, window=window, note=str(window))


def _check(name: str, body: Any, key: Any, window: Any) -> None:
    if not isinstance(window, Windowing):
        raise TopologyError(
            f"Element {name}: window={window!r}; give Tumbling, Sliding, Session, Count or Global, as Tumbling('10 s')."
        )
    if not (isinstance(body, type) and issubclass(body, ProcessingElement)):
        raise TopologyError(f"Element {name} has windows: write it as a class derived from ProcessingElement, for their state.")
    if not key:
        raise TopologyError(f"Element {name} has windows but no key: add key='field', for windows belong to keyed instances.")
    check_methods(name, body, WINDOW_HOOKS)
    if "window" in body.__struct_fields__:
        raise StateError(f"Element {name}: self.window is Penstock's own in windows: give the state another name.")
    refuse_migrate(name, body, "the state of windows")
    for hook in WINDOW_HOOKS:
        if overrides(body, hook):
            arguments, example = (
                (2, f"def {hook}(self, {'other' if hook == 'merge' else 'event'})")
                if hook in TAKING_ONE
                else (1, f"def {hook}(self)")
            )
            check_function(getattr(body, hook), arguments, f"Element {name}: {hook}", f"write it as {example}")
            if hook == "merge":
                check_plain_function(
                    body.merge, 2, f"Element {name}: merge", "write it as def merge(self, other), which changes self"
                )
    if not overrides(body, "on_event") or not (overrides(body, "on_close") or overrides(body, "on_batch")):
        raise TopologyError(f"Element {name} has windows: give it on_event, and on_close for their results.")
    for hook in ("on_timer", "on_interval"):
        if overrides(body, hook):
            raise TopologyError(
                f"Element {name} has windows, and its timers fire where they end: put {hook} into an element without windows."
            )
    window.check(name, body)


def time_field(name: str, streams: Sequence[Stream[Any]], window: Windowing) -> str | None:
    """Return the field that holds the time of an element's events; windows by count may have None.

    Raises:
        TopologyError: windows by time lack such a field, or it is not a datetime.
    """
    fields = {window.at} if window.at else {event_time_of(stream) for stream in streams}
    field = fields.pop() if len(fields) == 1 else None
    if field is None:
        if not window.timed:
            return None
        raise TopologyError(
            f"Element {name}: windows of {window} need a time: declare the source with event_time=, or say which field of "
            f"{', '.join(stream.name for stream in streams)} holds it, as at='field'."
        )
    for stream in streams:
        check_time(name, stream, field)
    return field


def check_time(name: str, stream: Stream[Any], field: str) -> None:
    """Refuse a field that is not a datetime.

    Raises:
        TopologyError: names the element, the stream and the field.
    """
    kind = field_types(stream.event_type).get(field)
    if getattr(kind, "__name__", None) != "datetime":
        raise TopologyError(
            f"Element {name} goes by {field!r}, which must be a field of {stream.event_type.__name__} (stream {stream.name}) "
            "of type datetime."
        )


def own_time(name: str, stream: Stream[Any], field: str | None) -> str:
    """Return the field that holds the time of a stream's events: the given one, or that of the source's event time.

    Raises:
        TopologyError: there is no such field, or it is not a datetime.
    """
    time = field or event_time_of(stream)
    if time is None:
        raise TopologyError(f"Element {name} goes by the times of {stream.name}: say which field holds them, as at='field'.")
    check_time(name, stream, time)
    return time


def event_time_of(stream: Stream[Any]) -> str | None:
    """Return the event-time field of a source; None for other streams, and sources without one."""
    return stream.event_time.field if isinstance(stream, Source) and stream.event_time is not None else None
