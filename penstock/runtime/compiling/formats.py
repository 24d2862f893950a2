"""Formats times: each distinct text once, as ``strftime`` takes a microsecond or more, and most events share their minute."""

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

Format = Callable[[Any], str]

PARTS = {
    "Y": ("year",),
    "y": ("year",),
    "m": ("month",),
    "d": ("day",),
    "j": ("year", "month", "day"),
    "F": ("year", "month", "day"),
    "H": ("hour",),
    "I": ("hour",),
    "M": ("minute",),
    "S": ("second",),
    "T": ("hour", "minute", "second"),
}
"""By the directives whose text depends on nothing but parts of the time: neither on the locale nor on a zone."""
MOST = 4096
"""The most texts that are kept, by format."""


def format_of(spec: str, plain: Format) -> Format | None:
    """Return a function that formats times as another does, but each distinct text once; None where that gains nothing.

    Args:
        spec: a format as of ``strftime``.
        plain: formats by it whatever it is given, or raises.
    """
    directives = re.findall("%(.)", spec, re.DOTALL)
    if not directives or any(directive not in PARTS for directive in directives):
        return None
    names = dict.fromkeys(name for directive in directives for name in PARTS[directive])
    kept: dict[Any, str] = {}

    def keep(parts: Any, value: datetime) -> str:
        if len(kept) >= MOST:
            kept.clear()
        text = kept[parts] = plain(value)
        return text

    text = f"""
def formatted(value):
    if type(value) is not datetime:
        return plain(value)
    parts = ({"".join(f"value.{name}, " for name in names)})
    return find(parts) or keep(parts, value)
"""
    made: dict[str, Any] = {"datetime": datetime, "plain": plain, "find": kept.get, "keep": keep}
    exec(text, made)
    formatted: Format = made["formatted"]
    return formatted
