"""URIs of sources and sinks: ``scheme:place?option=value``, or just a path."""

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl

from penstock.errors import ConfigurationError

SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
    ".txt": "text",
}

PLACELESS = ("console", "memory")
"""Schemes that mean something by themselves."""


KAFKA = "kafka."
"""Options of a Kafka URI that begin so are Kafka's own, and handed on."""

NAME = "NAME"
"""Ends an option that stands for many, as ``kafka.NAME`` does."""


@dataclass(frozen=True)
class Uri:
    """A parsed URI; ``place`` is a path, or for the generator the kind of schedule."""

    scheme: str
    place: str
    options: dict[str, str]

    def __str__(self) -> str:
        query = "&".join(f"{name}={value}" for name, value in self.options.items())
        return f"{self.scheme}:{self.place}" + (f"?{query}" if query else "")

    def named(self, prefix: str) -> dict[str, str]:
        """The options that begin so, without their beginning."""
        return {name.removeprefix(prefix): value for name, value in self.options.items() if name.startswith(prefix)}

    def positive(self, name: str, kind: type[int] | type[float] = float) -> float | None:
        """An option that must be a number greater than zero, or None where it is absent.

        Raises
        ------
        ConfigurationError: it is not.
        """
        if name not in self.options:
            return None
        try:
            value = kind(self.options[name])
        except ValueError:
            value = kind(0)
        if not 0 < value < float("inf"):
            raise ConfigurationError(f"{self}: {name}={self.options[name]} must be a number greater than zero.")
        return value


@dataclass(frozen=True)
class KafkaPlace:
    """A topic, and how to reach it.

    Parameters
    ----------
    brokers: as Kafka's ``bootstrap.servers``.
    options: Kafka's own client settings, such as ``security.protocol``.
    """

    brokers: str
    topic: str
    options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, uri: Uri) -> "KafkaPlace":
        """The topic of ``kafka:HOST:PORT,HOST:PORT/TOPIC``.

        Raises
        ------
        ConfigurationError: it is not of that form.
        """
        brokers, _, topic = uri.place.removeprefix("//").partition("/")
        if not brokers or not re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", topic):
            raise ConfigurationError(f"{uri}: write kafka:HOST:PORT/TOPIC, with several brokers divided by commas.")
        return cls(brokers, topic, tuple(uri.named(KAFKA).items()))

    def __str__(self) -> str:
        return f"kafka:{self.brokers}/{self.topic}"

    def uri(self) -> Uri:
        """What `of` reads."""
        return Uri("kafka", f"{self.brokers}/{self.topic}", {f"{KAFKA}{name}": value for name, value in self.options})


def parse_uri(text: str, schemes: tuple[str, ...], allowed: dict[str, tuple[str, ...]]) -> Uri:
    """Read a URI.

    Parameters
    ----------
    schemes: those that are allowed here.
    allowed: for each scheme the options it takes; ``kafka.NAME`` is all that begin with ``kafka.``.

    Raises
    ------
    ConfigurationError: an unknown scheme or option, named with what is allowed.
    """
    head, colon, rest = f"{text}:".partition(":") if text in PLACELESS else text.partition(":")
    if colon and len(head) > 1 and "/" not in head:
        scheme, rest = head.lower(), rest.removeprefix("//") if head.lower() == "file" else rest
    else:
        scheme, rest = "", text
    place, _, query = rest.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    if scheme in ("", "file"):
        scheme = _scheme_of_path(place)
    if scheme not in schemes:
        raise ConfigurationError(
            f"{text!r} has no known scheme; write one of {', '.join(f'{s}:...' for s in schemes)}."
        )
    for option in options:
        if option not in allowed[scheme] and f"{option.partition('.')[0]}.{NAME}" not in allowed[scheme]:
            raise ConfigurationError(
                f"{text!r}: {scheme} takes no option {option!r}; it takes {', '.join(allowed[scheme]) or 'none'}."
            )
    return Uri(scheme, place, options)


def _scheme_of_path(place: str) -> str:
    path = Path(place)
    if path.suffix in SUFFIXES:
        return SUFFIXES[path.suffix]
    if path.is_dir():
        for child in sorted(path.iterdir()):
            if child.suffix in SUFFIXES:
                return SUFFIXES[child.suffix]
    return "jsonl"
