"""Text from outside, made visible: a terminal obeys some characters, and readers are misled by others."""

import re

OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but for tab and newline, those that turn the direction of writing, and halves of surrogate pairs."""


def visible(text: str) -> str:
    r"""A text in which such characters are written as JSON writes them, so that JSON stays the same JSON.

    >>> visible("red \x1b[31m, back \u202e")
    'red \\u001b[31m, back \\u202e'
    """
    return OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def line(text: str) -> str:
    r"""The same in one line.

    >>> line("wrong\nall is well")
    'wrong\\nall is well'
    """
    return visible(text).replace("\n", "\\n")
