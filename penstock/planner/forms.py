"""Finds query progress in text that may contain anything else, too: as JSON or as Python prints it, on one line or on many.

The braces of a text are followed with a stack, and an object that closes is taken if it has the names of a progress. So
what encloses progress need not be known, and an object that was cut off, or a brace in other text, takes no progress behind it.
"""

import ast
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from penstock.planner.transport import Unwrapped, is_progress

LONGEST = 100_000
"""The most lines of one object."""
SOURCES, NUMBER, LIKE = 1, 2, 4
NAMES = {"sources": SOURCES, "batchId": NUMBER | LIKE, "durationMs": NUMBER | LIKE, "runId": LIKE}
"""What a name in an object tells: an object with ``sources`` and one of the next two is a progress, the last looks like one."""

_OPENS = re.compile(r"""\{(?=\s*(?:["'][^"']+["']\s*:|$))|(?<=progress: )\{|(?<=progress:)\{""")
"""A brace that may open a progress: before a name in quotes, or at the end of a line."""
_OF_JSON = re.compile(r"""["{}\]]|(?:-?[\d.eE+-]+|true|false|null),?$""")
"""The beginning of a line of JSON, spread over lines; those of a log begin otherwise."""
_JSON = re.compile(r'"(?:[^"\\]|\\.)*"|[{}]')
_PYTHON = re.compile(r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[{}]""")
_IS_PYTHON = re.compile(r"""[{,\s]'|^'|': """)


class Objects:
    """Finds the objects of a recording in its lines: progress, and whatever other objects are whole in a line.

    ``torn`` counts the objects that look like progress and did not end, or cannot be parsed.
    """

    def __init__(self) -> None:
        self.torn = 0
        self._lines: list[str] = []
        """The text since the first open brace."""
        self._open: list[tuple[int, int]] = []
        """The line and column of each open brace."""
        self._names: list[int] = []
        """By open brace, what the names in its object tell (`NAMES`)."""

    def of(self, lines: Iterable[str]) -> Iterator[Any]:
        """Yield each object, in order."""
        for text in Unwrapped().of(lines):
            if isinstance(text, dict):
                self._forget()
                yield text
            else:
                yield from self._scanned(text)
        self._forget()

    def _scanned(self, line: str) -> Iterator[Any]:
        """Yield the progress that ends in a line of text."""
        begin = 0
        if not self._open:
            opening = _OPENS.search(line) if "{" in line else None
            if opening is None:
                return
            begin = opening.start()
        self._lines.append(line)
        tokens = _PYTHON if _IS_PYTHON.search(line) else _JSON
        for token in tokens.finditer(line, begin):
            if token[0] == "{":
                self._open.append((len(self._lines) - 1, token.start()))
                self._names.append(0)
            elif token[0] != "}":
                if self._names:
                    self._names[-1] |= NAMES.get(token[0][1:-1], 0)
            elif self._open:
                begun, names = self._open.pop(), self._names.pop()
                if names & SOURCES and names & NUMBER:
                    yield from self._taken(self._text(begun, token.end()))
        if not self._open:
            self._lines.clear()
        elif len(self._lines) > LONGEST:
            self._forget()

    def _text(self, begun: tuple[int, int], end: int) -> str:
        """The text from an open brace to a place in the last line."""
        number, column = begun
        lines = [*self._lines[number:-1], self._lines[-1][:end]]
        return "\n".join([lines[0][column:], *lines[1:]])

    def _taken(self, text: str) -> Iterator[Any]:
        made = _parsed(text)
        if not is_progress(made):
            self.torn += 1
            return
        line = self._lines[-1]
        self._forget()  # what encloses it is of no use, or was cut off
        self._lines.append(line)
        yield made

    def _forget(self) -> None:
        """Give up the open objects, and count those that look like progress."""
        self.torn += sum(bool(names & LIKE) for names in self._names)
        self._lines.clear()
        self._open.clear()
        self._names.clear()


def _parsed(text: str) -> Any:
    """The object in a text that is JSON or printed by Python, with lines of a log between or without; None if it is neither."""
    opening, *rest = text.split("\n")
    alone = "\n".join([opening, *filter(_OF_JSON.match, rest)])
    for read, content in ((json.loads, text), (ast.literal_eval, text), (json.loads, alone)):
        try:
            return read(content)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return None
