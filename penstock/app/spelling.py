"""Names: which there can be, and suggestions for misspelt ones."""

from collections.abc import Iterable
from difflib import get_close_matches

from penstock.errors import TopologyError


def check_name(kind: str, name: str) -> None:
    """Check that a name may be part of a path, a URL and a metric's label.

    Raises:
        TopologyError: it may not.
    """
    if not name or not all(character.isalnum() or character in "-_." for character in name):
        raise TopologyError(f"The {kind} name {name!r} holds a character other than letters, digits, '-', '_' and '.'.")
    if not name.strip("."):  # a directory of this name is another one
        raise TopologyError(f"The {kind} name {name!r} consists of dots alone: add a letter, or a digit.")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean ...?"`` for a name that is close to a known one, else an empty text.

    >>> did_you_mean("on_evnt", ["on_event", "on_batch"])
    '; did you mean on_event?'
    >>> did_you_mean("start", ["on_event", "on_batch"])
    ''
    """
    near = get_close_matches(name, list(known), 1, 0.65)
    return f"; did you mean {near[0]}?" if near else ""
