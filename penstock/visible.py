"""Escaping of text from outside: some characters control a terminal, and others mislead readers."""

import re

OBEYED = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff\U000e0000-\U000e007f]"
    "|\r(?!\n)"
)
"""Characters to escape: control characters other than tab and line ends, invisible ones, ones that change the direction of
writing, and halves of surrogate pairs.
"""


def visible(text: str) -> str:
    r"""Return a text with the characters of `OBEYED` escaped as JSON escapes them, so that JSON keeps its meaning.

    >>> visible("red \x1b[31m, back \u202e")
    'red \\u001b[31m, back \\u202e'
    """
    return OBEYED.sub(_written, text)


def _written(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def line(text: str) -> str:
    r"""Return a text escaped as `visible` does, in one line.

    >>> line("wrong\nall is well")
    'wrong\\nall is well'
    """
    return visible(text).replace("\n", "\\n")
