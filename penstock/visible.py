"""Text from outside, made visible: a terminal obeys some characters, and readers are misled by others."""

import re

OBEYED = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff\U000e0000-\U000e007f]"
    "|\r(?!\n)"
)
"""Control characters but for tab and the ends of lines, those that are not seen or turn the direction of writing, and halves of
surrogate pairs.
"""


def visible(text: str) -> str:
    r"""A text in which such characters are written as JSON writes them, so that texts in JSON stay the same.

    >>> visible("red \x1b[31m, back \u202e")
    'red \\u001b[31m, back \\u202e'
    """
    return OBEYED.sub(_written, text)


def _written(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def line(text: str) -> str:
    r"""The same in one line.

    >>> line("wrong\nall is well")
    'wrong\\nall is well'
    """
    return visible(text).replace("\n", "\\n")
