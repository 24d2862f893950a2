"""Which states are known to be kept as they are, without being encoded: each instance is asked in each micro-batch."""

import typing
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from penstock.app import reducers
from penstock.app.element import ProcessingElement
from penstock.app.window.aggregate import Reducing
from penstock.app.window.windowed import Windowed
from penstock.kinds.annotations import demanding

SHORT = 1 << 16
"""Texts below this length are surely small enough."""
FEW_WINDOWS = 10_000
"""So many of plain values are surely small enough, too."""
WHOLE = f"type(state.{{0}}) is int and {-(2**63)} <= state.{{0}} < {2**63}"
PLAIN: dict[Any, str] = {
    bool: "type(state.{0}) is bool",
    float: "type(state.{0}) is float",
    int: WHOLE,
    str: f"type(state.{{0}}) is str and len(state.{{0}}) < {SHORT} and state.{{0}}.isascii()",
    bytes: f"type(state.{{0}}) is bytes and len(state.{{0}}) < {SHORT}",
}
"""Of a field of a type, the question, as Python's source."""
OF_REDUCERS: dict[Any, str] = {
    int: WHOLE,
    float: PLAIN[float],
    int | None: f"(state.{{0}} is None or {WHOLE})",
    float | None: "(state.{0} is None or type(state.{0}) is float)",
    tuple[float, int]: "True",
}
"""The same of what `NUMERIC` reducers keep, and nothing else changes."""
NUMERIC = (reducers.count, reducers.sum, reducers.mean, reducers.min, reducers.max)

Asked = Callable[[Any], bool]


@lru_cache(maxsize=64)
def surely_kept(prototype: type[ProcessingElement]) -> Asked:
    """Whether a state is known to be kept, where all its fields are plain scalars, or all its windows hold reducers' states
    that are.
    """
    if issubclass(prototype, Windowed) and prototype.holds == ("open",) and _is_numeric(prototype.body):
        part = _compiled(prototype.body, OF_REDUCERS)
        if part is not None:
            return lambda state: len(state.open) < FEW_WINDOWS and all(part(one.state) for one in state.open.values())
    return _compiled(prototype, PLAIN) or (lambda state: False)


def _is_numeric(body: type[ProcessingElement]) -> bool:
    return issubclass(body, Reducing) and all(type(reducer) in NUMERIC for reducer in body.reducers.values())


def _compiled(cls: type[Any], questions: dict[Any, str]) -> Asked | None:
    """The question of an instance of a class; None where one of its fields is of another type, or is asked more."""
    names, hints = cls.__struct_fields__, typing.get_type_hints(cls)
    if not names or demanding(cls) or not all(hints[name] in questions for name in names):
        return None
    test = " and ".join(questions[hints[name]].format(name) for name in names)
    asked: Asked = eval(f"lambda state: {test}")
    return asked
