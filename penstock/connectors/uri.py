"""URIs of sources and sinks: ``scheme:place?option=value``, or just a path."""

import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote

from penstock.errors import ConfigurationError
from penstock.masked import OPTIONS, masked

NAME = "NAME"
"""The end of an option's name that stands for many names, as in ``kafka.NAME``."""


@dataclass(frozen=True, repr=False)
class Uri:
    """A URI in its parts; the values of its options are unparsed texts."""

    scheme: str
    place: str
    options: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> "Uri":
        """Parse a URI. The scheme is empty for a path, also for one with a colon after a slash or a single letter.

        Raises:
            ConfigurationError: an option is given twice, or the character NUL is in it.
        """
        if "\0" in text or "%00" in text:
            raise ConfigurationError(f"{masked(text)!r} holds the character NUL, which no place or option has; leave it out.")
        options = re.search(OPTIONS, text)
        place, query = (text, "") if options is None else (text[: options.start()], text[options.end() :])
        given = parse_qsl(query, keep_blank_values=True)
        twice = next((name for number, (name, _) in enumerate(given) if name in dict(given[:number])), None)
        if twice is not None:
            raise ConfigurationError(f"{masked(text)} gives {twice} twice; give it once.")
        head, colon, rest = place.partition(":")
        if colon and len(head) > 1 and "/" not in head:
            return cls(head.lower(), rest, dict(given))
        return cls("", place, dict(given))

    def __str__(self) -> str:
        """Return the URI with its secrets masked."""
        return masked(self.text)

    __repr__ = __str__

    @property
    def text(self) -> str:
        """The whole URI, secrets included, in a form that `parse` accepts."""
        query = "&".join(f"{name}={quote(value, safe='/:,*@')}" for name, value in self.options.items())
        return f"{self.scheme}:{self.place}" + (f"?{query}" if query else "")

    def named(self, prefix: str) -> dict[str, str]:
        """Return the options whose names begin with a prefix, by their names without it."""
        return {name.removeprefix(prefix): value for name, value in self.options.items() if name.startswith(prefix)}
