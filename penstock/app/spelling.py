"""Suggestions for misspelt names."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean ...?"`` for a name that is close to a known one, else an empty text.

    >>> did_you_mean("on_evnt", ["on_event", "on_batch"])
    '; did you mean on_event?'
    >>> did_you_mean("start", ["on_event", "on_batch"])
    ''
    """
    near = get_close_matches(name, list(known), 1, 0.65)
    return f"; did you mean {near[0]}?" if near else ""
