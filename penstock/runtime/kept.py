"""Fast checks whether a state can be stored, without encoding it; they run for each instance in each micro-batch."""

import typing
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from penstock.app import reducers
from penstock.app.element import ProcessingElement
from penstock.app.joins import Joining, Once
from penstock.app.window.aggregate import Reducing
from penstock.app.window.windowed import Windowed
from penstock.kinds.annotations import demanding

SHORT = 1 << 16
"""Texts below this length are certainly small enough to be stored."""
FEW_WINDOWS = 10_000
"""Fewer windows of plain values than this are certainly small enough, too."""
FEW_TIMES = 1_000_000
"""And so are fewer times, of nine bytes each."""
WHOLE = f"type(state.{{0}}) is int and {-(2**63)} <= state.{{0}} < {2**63}"
PLAIN: dict[Any, str] = {
    bool: "type(state.{0}) is bool",
    float: "type(state.{0}) is float",
    int: WHOLE,
    str: f"type(state.{{0}}) is str and len(state.{{0}}) < {SHORT} and state.{{0}}.isascii()",
    bytes: f"type(state.{{0}}) is bytes and len(state.{{0}}) < {SHORT}",
}
"""By type, the check of a field as Python source; ``{0}`` stands for the field's name."""
OF_REDUCERS: dict[Any, str] = {
    int: WHOLE,
    float: PLAIN[float],
    int | None: f"(state.{{0}} is None or {WHOLE})",
    float | None: "(state.{0} is None or type(state.{0}) is float)",
    tuple[float, int]: "True",
}
"""The checks of states of `NUMERIC` reducers; these are changed by the reducers alone, so some need no test."""
NUMERIC = (reducers.count, reducers.sum, reducers.mean, reducers.min, reducers.max)

Asked = Callable[[Any], bool]


@lru_cache(maxsize=64)
def surely_kept(prototype: type[ProcessingElement]) -> Asked:
    """Return a function that tells whether a state can certainly be stored. It may return True where all fields, or the states
    of all windows, are plain scalars.
    """
    if issubclass(prototype, Once):
        return lambda state: len(state.passed) < FEW_TIMES
    if issubclass(prototype, Windowed) and prototype.holds == ("open",) and _is_numeric(prototype.body):
        part = _compiled(prototype.body, OF_REDUCERS)
        if part is not None:
            return lambda state: len(state.open) < FEW_WINDOWS and all(part(window.state) for window in state.open.values())
    return _compiled(prototype, PLAIN) or (lambda state: False)


def reads_back(prototype: type[ProcessingElement]) -> bool:
    """Whether each state that can be encoded can also be decoded: joins hold delivered events, and change none of them."""
    return issubclass(prototype, Joining) and prototype.flat


def _is_numeric(body: type[ProcessingElement]) -> bool:
    return issubclass(body, Reducing) and all(type(reducer) in NUMERIC for reducer in body.reducers.values())


def _compiled(cls: type[Any], questions: dict[Any, str]) -> Asked | None:
    """Compile the check for a class; None where it has fields of other types, or further constraints."""
    names, hints = cls.__struct_fields__, typing.get_type_hints(cls)
    if not names or demanding(cls) or not all(hints[name] in questions for name in names):
        return None
    test = " and ".join(questions[hints[name]].format(name) for name in names)
    asked: Asked = eval(f"lambda state: {test}")
    return asked
