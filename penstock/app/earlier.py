"""Shapes in which earlier versions of an element's code have stored its state, and that this one reads by its ``migrate``.

Instances are migrated when they are touched, as they are read and written anyway; until then they lie as they were stored. So
each of them says how many migrations it has behind it, and a run's manifest has the shapes, from the oldest to the last before
today's.
"""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.app.element import Element, overrides
from penstock.app.shape import Shape, is_same, misfit

HEX = re.compile(r"(?:[0-9a-f]{2})+")
EARLIER = "earlier"
"""The shapes, in the schema of an element's state."""

OWN_CLASS = "a class of its own"
"""What the state means of an element whose class the user has written."""


class EarlierForm(msgspec.Struct, frozen=True):
    """How instances of one of these shapes are read.

    Parameters
    ----------
    fields: of the stored state, in their order. by_place: whether it lies as a list of their values.
    fitting: the fields that today's class has, too, and reads as they are. whole: whether it is today's shape again.
    tag: the field that held the class's tag, if it had one. omitted: MessagePack of the defaults that were left out of what is
        stored.
    """

    fields: tuple[str, ...]
    by_place: bool
    fitting: frozenset[str]
    whole: bool
    tag: str | None = None
    omitted: tuple[tuple[str, bytes], ...] = ()


def may_migrate(schema: dict[str, Any]) -> bool:
    """Whether an element with such state can have a ``migrate``."""
    return bool(schema.get("means", {}).get("form") == OWN_CLASS and schema["kept"] == "in objects")


def with_earlier(old: dict[str, Any], new: dict[str, Any], element: Element) -> dict[str, Any]:
    """The schema of an element that is to go on from another one, with the shapes that it migrates."""
    if not may_migrate(new) or not may_migrate(old):
        return new
    shapes = list(old.get(EARLIER, []))
    has_hook = element.prototype is not None and overrides(element.prototype, "migrate")
    if misfit(old["state"], new["state"], "its state") is not None:
        shapes.append(old["state"])
    # What was to be migrated once means something else than what it may fit by now.
    if not shapes or not (has_hook or all(is_same(shape, new["state"]) for shape in shapes)):
        return new
    return {**new, EARLIER: shapes}


def forms_of(schema: dict[str, Any]) -> tuple[EarlierForm, ...]:
    """How instances in the earlier shapes of an element's state are read, by how many migrations they have behind them."""
    return tuple(_form(shape, schema["state"]) for shape in schema.get(EARLIER, []))


def _form(old: Shape, new: Shape) -> EarlierForm:
    before, now = old[1]["fields"], new[1]["fields"]
    fitting = [name for name, (shape, _) in before.items() if name in now and _fits(shape, now[name])]
    tag = old[1].get("tag")
    return EarlierForm(
        tuple(before),
        old[0] == "places",
        frozenset(fitting),
        is_same(old, new),
        None if tag is None else tag[0],
        tuple((name, bytes.fromhex(value)) for name, value in old[1].get("omitted", {}).items() if HEX.fullmatch(value)),
    )


def _fits(shape: Shape, field: Sequence[Any]) -> bool:
    return misfit(shape, field[0], "the field") is None
