"""What a checkpoint must remember of an application's state, and whether new code fits it."""

import typing
from typing import Any

from penstock.app.element import Element, ProcessingElement
from penstock.app.event import field_types
from penstock.app.topology import Topology
from penstock.app.window.windowing import Windowing
from penstock.errors import IncompatibleStateError

WIDENINGS = {("int", "float")}

LARGEST_STATE = 32 << 20
"""Bytes of one instance; a page holds at least one, and travels through one of Spark's sockets."""


def describe_state(topology: Topology) -> dict[str, Any]:
    """For each keyed element its key and state, each field with its type, and its hop."""
    return {
        element.name: {
            "key": {field: _spell_key(field_types(element.inputs[0].event_type)[field]) for field in element.key},
            "state": _state_fields(element),
            "stage": topology.depths[element.name],
            **({"kept": "in columns"} if element.state is not None else {}),
        }
        for element in topology.elements
        if element.keyed
    }


def check_state_fits(stored: dict[str, Any], present: dict[str, Any]) -> None:
    """Refuse code that could not read, or would lose, what a checkpoint holds.

    A new field (it has a default), a new element, and a wider type (``int`` to ``float``, ``T`` to
    ``T | None``) fit.

    Raises
    ------
    IncompatibleStateError: names the element and the field, and how to mend it.
    """
    mend = "put it back, or start afresh with --fresh (which discards the stored state)"
    for name, old in stored.items():
        new = present.get(name)
        if new is None:
            raise IncompatibleStateError(
                f"Element {name} has stored state but is no longer in the application: {mend}."
            )
        if new["key"] != old["key"]:
            raise IncompatibleStateError(
                f"Element {name} was keyed by {_list(old['key'])} and is now keyed by {_list(new['key'])}: {mend}."
            )
        if new["stage"] != old["stage"]:
            raise IncompatibleStateError(
                f"Element {name} was behind {old['stage']} keyed hops and is now behind {new['stage']}: {mend}."
            )
        if new.get("kept") != old.get("kept"):
            raise IncompatibleStateError(
                f"Element {name} changed between the event and the batch dialect, whose state is kept in other forms: {mend}."
            )
        for field, kind in old["state"].items():
            now = new["state"].get(field)
            if now is None:
                raise IncompatibleStateError(
                    f"Element {name} has stored state {field!r}, which the code dropped: {mend}."
                )
            if now != kind and (kind, now) not in WIDENINGS and now != f"{kind} | None":
                raise IncompatibleStateError(
                    f"Element {name}: state {field!r} was stored as {kind} and is now {now}: {mend}."
                )


def _state_fields(element: Element) -> dict[str, str]:
    if element.state is not None:
        return {field: _spell(kind) for field, kind in field_types(element.state).items()}
    prototype: Any = element.prototype
    described = {}
    if element.ordered:
        described["events"] = "held, in order"
        prototype = prototype.body
    if isinstance(element.window, Windowing):
        body = prototype.body
        return described | {
            "windows": str(element.window),
            **{f"window.{name}": kind for name, kind in _fields(body).items()},
        }
    return described | _fields(prototype)


def _fields(prototype: type[ProcessingElement]) -> dict[str, str]:
    hints = typing.get_type_hints(prototype)
    return {field: _spell(hints[field]) for field in prototype.__struct_fields__}


def _spell(annotation: Any) -> str:
    if isinstance(annotation, type) and not typing.get_args(annotation):
        return annotation.__name__
    return str(annotation).replace("typing.", "")


def _spell_key(annotation: Any) -> str:
    """As state knows its keys by: times of all zones are one, and so are 1.0 and 1.00, which they once were not."""
    spelled = _spell(annotation)
    one = any(name in spelled for name in ("Decimal", "datetime"))
    return f"{spelled} (equal values are one key)" if one else spelled


def _list(fields: dict[str, str]) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in fields.items())
