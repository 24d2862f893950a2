"""Declarations of connectors: the scheme, the options, the jars, and the function that binds it to a source or sink."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from penstock.app.duration import seconds
from penstock.app.loader import AppReference
from penstock.app.stream import Sink, Source
from penstock.connectors.sink import BoundSink
from penstock.connectors.source import BoundSource
from penstock.connectors.uri import NAME, Uri
from penstock.errors import ConfigurationError
from penstock.masked import shown

Options = Mapping[str, Any]
"""A URI's options by name; each value has been parsed by the option's `OptionKind`."""


class OptionKind(NamedTuple):
    """A kind of option: its description in messages, and the function that parses its text (``ValueError`` if invalid)."""

    words: str
    read: Callable[[str], Any]


def _positive(kind: type[int] | type[float]) -> Callable[[str], Any]:
    """Return a parser of finite numbers above zero."""

    def read(text: str) -> Any:
        value = kind(text)
        if not 0 < value < float("inf"):
            raise ValueError
        return value

    return read


def _whole(text: str) -> int:
    if not text.isdigit():
        raise ValueError
    return int(text)


TEXT = OptionKind("text", str)
FIELD = OptionKind("a field of the events", str)
COUNT = OptionKind("a whole number greater than zero", _positive(int))
WHOLE = OptionKind("a whole number, zero or more", _whole)
NUMBER = OptionKind("a number greater than zero", _positive(float))
DURATION = OptionKind("a duration, as 10 s", seconds)


def one_of(*choices: str) -> OptionKind:
    """Return the kind of an option whose value is one of these choices."""

    def read(text: str) -> str:
        if text not in choices:
            raise ValueError
        return text

    return OptionKind(f"one of {', '.join(choices)}", read)


@dataclass(frozen=True)
class Option:
    """An option of a connector's URI.

    Args:
        name: ``prefix.NAME`` stands for all options that begin with ``prefix.``.
        help: one line for the table in the docs.
    """

    name: str
    help: str
    kind: OptionKind = TEXT

    def stands_for(self, name: str) -> bool:
        """Whether this option declares a URI's option of that name."""
        return name == self.name or (self.name.endswith(NAME) and name.startswith(self.name.removesuffix(NAME)))


class Release(NamedTuple):
    """A version of an artifact.

    Args:
        version: ``{spark}`` stands for the installed Spark's version, also in ``overridden``.
        overridden: (group, artifact, version) of dependencies to use in place of the versions that the artifact asks for.
        sparks: the minor versions of Spark that it is for, such as "4.1"; empty for all.
    """

    version: str
    overridden: tuple[tuple[str, str, str], ...] = ()
    sparks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Jars:
    """An artifact on Maven Central that Spark needs for a connector, with its dependencies.

    Args:
        versions: the most preferred first; some are for certain versions of Spark only.
        excluded: (group, regular expression of artifacts) of dependencies to leave out, because Spark has them.
        besides: (group, artifact, version) of further artifacts to fetch.
        archive: the classifier of a tar.gz, if the artifact is a program to be unpacked and not jars; else empty.
        provides: a class of the jars. A session that the user has started has them if it can load this class.
    """

    group: str
    artifact: str
    versions: tuple["Release", ...]
    excluded: tuple[tuple[str, str], ...] = ()
    besides: tuple[tuple[str, str, str], ...] = ()
    archive: str = ""
    provides: str = ""


Reach = Literal["anywhere", "shared disk", "one machine"]
"""Where a connector works: anywhere, or only if driver and executors share a disk, or only if they are on one machine."""


@dataclass(frozen=True)
class Connector:
    """The base of the declarations of sources and of sinks.

    Args:
        scheme: the scheme of its URIs.
        place: the form of a URI after its scheme, such as ``HOST:PORT/TOPIC``; empty if nothing need follow.
        help: one line for the table in the docs.
        reach: where it works.
        jars: artifacts that Spark needs besides its own jars.
    """

    scheme: str
    place: str
    help: str
    options: tuple[Option, ...] = ()
    reach: Reach = "anywhere"
    jars: tuple[Jars, ...] = ()

    @property
    def form(self) -> str:
        """The form of the connector's URIs, for messages."""
        return f"{self.scheme}:{self.place}"

    def read(self, uri: Uri) -> Options:
        """Return a URI's options, parsed.

        Raises:
            ConfigurationError: an option is unknown or invalid, or the URI lacks a place. The text says what is allowed.
        """
        if self.place and not uri.place:
            raise ConfigurationError(f"'{uri}' names no place: write {self.form}.")
        return {name: self._read(uri, name, text) for name, text in uri.options.items()}

    def _read(self, uri: Uri, name: str, text: str) -> Any:
        option = next((option for option in self.options if option.stands_for(name)), None)
        if option is None:
            known = ", ".join(option.name for option in self.options) or "none"
            raise ConfigurationError(f"'{uri}': {self.scheme} takes no option {name!r}; it takes {known}.")
        if not text and not option.name.endswith(NAME):  # those that a library takes may be empty
            raise ConfigurationError(f"'{uri}': {name}= is empty; give {option.kind.words}, or leave it out.")
        try:
            return option.kind.read(text)
        except ValueError:
            raise ConfigurationError(f"{uri}: {name}={shown({name: text})[name]} must be {option.kind.words}.") from None


@dataclass(frozen=True)
class SourceContext:
    """The facts about a run that a source gets when it is bound.

    Args:
        application: a reference by which other processes load the application; None if none will.
    """

    application: AppReference | None = None


@dataclass(frozen=True)
class SinkContext:
    """The facts about a run that a sink gets when it is bound.

    Args:
        output: the sink's own directory, which driver and executors see: events are staged there, and it may write there.
    """

    output: Path


@dataclass(frozen=True)
class SourceConnector(Connector):
    """Declares a kind of source. ``bind`` makes the bound source of a run from an application's declared source."""

    bind: Callable[[Source[Any], Uri, Options, SourceContext], BoundSource] = field(kw_only=True)


@dataclass(frozen=True)
class SinkConnector(Connector):
    """Declares a kind of sink. ``bind`` makes the bound sink of a run from an application's declared sink."""

    bind: Callable[[Sink, Uri, Options, SinkContext], BoundSink] = field(kw_only=True)
