"""URIs of sources and sinks: ``scheme:place?option=value``, or just a path."""

import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote

from penstock.masked import masked

NAME = "NAME"
"""Ends an option that stands for many, as ``kafka.NAME`` does."""


@dataclass(frozen=True, repr=False)
class Uri:
    """A parsed URI; its options are texts."""

    scheme: str
    place: str
    options: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> "Uri":
        """Divide a URI. A path has no scheme, and neither has what holds a colon behind a slash."""
        options = re.search(r"\?(?=[\w.-]+=)", text)  # a question mark may be part of a path
        place, query = (text, "") if options is None else (text[: options.start()], text[options.end() :])
        head, colon, rest = place.partition(":")
        if colon and len(head) > 1 and "/" not in head:
            return cls(head.lower(), rest, dict(parse_qsl(query, keep_blank_values=True)))
        return cls("", place, dict(parse_qsl(query, keep_blank_values=True)))

    def __str__(self) -> str:
        """As it may be shown, without secrets."""
        return masked(self.text)

    __repr__ = __str__

    @property
    def text(self) -> str:
        """The whole, as it is parsed."""
        query = "&".join(f"{name}={quote(value, safe='/:,*@')}" for name, value in self.options.items())
        return f"{self.scheme}:{self.place}" + (f"?{query}" if query else "")

    def named(self, prefix: str) -> dict[str, str]:
        """The options that begin so, without their beginning."""
        return {name.removeprefix(prefix): value for name, value in self.options.items() if name.startswith(prefix)}
