"""Shapes of state that earlier versions of an element's code have stored, and that the current version reads by ``migrate``.

An instance is migrated when it is first used, as it is then read and written anyway; until then it stays as it was stored. So
each stored instance records how many migrations it has had, and a run's manifest has the earlier shapes, oldest first, without
the current one.
"""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.app.element import Element, overrides
from penstock.app.shape import Shape, is_same, misfit

HEX = re.compile(r"(?:[0-9a-f]{2})+")
EARLIER = "earlier"
"""The field of an element's state schema that holds the earlier shapes."""

OWN_CLASS = "a class of its own"
"""The ``form`` in the state's meaning, for an element whose class the user has written."""


class EarlierForm(msgspec.Struct, frozen=True):
    """How to read instances stored in one earlier shape.

    Args:
        fields: the stored fields, in order.
        by_place: whether the state is stored as a list of values, without names.
        fitting: the fields that the current class also has, and can read.
        whole: whether the shape equals the current one.
        tag: the field that held the class's tag, if it had one.
        omitted: defaults, as MessagePack, that stored values leave out.
    """

    fields: tuple[str, ...]
    by_place: bool
    fitting: frozenset[str]
    whole: bool
    tag: str | None = None
    omitted: tuple[tuple[str, bytes], ...] = ()


def may_migrate(schema: dict[str, Any]) -> bool:
    """Whether an element with state of this schema can have a ``migrate``."""
    return bool(schema.get("means", {}).get("form") == OWN_CLASS and schema["kept"] == "in objects")


def with_earlier(old: dict[str, Any], new: dict[str, Any], element: Element) -> dict[str, Any]:
    """Return the schema ``new`` of an element that resumes from state of the schema ``old``, with the shapes to migrate."""
    if not may_migrate(new) or not may_migrate(old):
        return new
    shapes = list(old.get(EARLIER, []))
    has_hook = element.prototype is not None and overrides(element.prototype, "migrate")
    if misfit(old["state"], new["state"], "its state") is not None:
        shapes.append(old["state"])
    # A shape once listed must still be migrated, even if it fits the current one again: its values may mean something else.
    if not shapes or not (has_hook or all(is_same(shape, new["state"]) for shape in shapes)):
        return new
    return {**new, EARLIER: shapes}


def forms_of(schema: dict[str, Any]) -> tuple[EarlierForm, ...]:
    """Return how to read each earlier shape of an element's state, indexed by the number of migrations an instance has had."""
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
