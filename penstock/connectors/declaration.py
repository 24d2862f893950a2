"""How a connector declares itself: scheme, options, what it needs, and how it binds to a declared source or sink."""

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
"""The options that a URI gives, by name, each of its kind."""


class Kind(NamedTuple):
    """A kind of option: what it is in words, and how its text is read (``ValueError`` where it does not fit)."""

    words: str
    read: Callable[[str], Any]


def _positive(kind: type[int] | type[float]) -> Callable[[str], Any]:
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


TEXT = Kind("text", str)
FIELD = Kind("a field of the events", str)
COUNT = Kind("a whole number greater than zero", _positive(int))
WHOLE = Kind("a whole number, zero or more", _whole)
NUMBER = Kind("a number greater than zero", _positive(float))
DURATION = Kind("a duration, as 10 s", seconds)


def one_of(*choices: str) -> Kind:
    """The kind of an option that has one of a few values."""

    def read(text: str) -> str:
        if text not in choices:
            raise ValueError
        return text

    return Kind(f"one of {', '.join(choices)}", read)


@dataclass(frozen=True)
class Option:
    """An option of a connector's URI.

    Parameters
    ----------
    name: ``prefix.NAME`` stands for all options that begin so.
    help: one line for the table in the docs.
    """

    name: str
    help: str
    kind: Kind = TEXT

    def stands_for(self, name: str) -> bool:
        """Whether a URI's option is this one."""
        return name == self.name or (self.name.endswith(NAME) and name.startswith(self.name.removesuffix(NAME)))


class Release(NamedTuple):
    """A version of an artifact.

    Parameters
    ----------
    version: ``{spark}`` stands for Spark's own, here and in what follows.
    overridden: (group, artifact, version) to use in place of what it asks for.
    sparks: the minor versions of Spark that it is for, as "4.1"; all of them unless given.
    """

    version: str
    overridden: tuple[tuple[str, str, str], ...] = ()
    sparks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Jars:
    """An artifact on Maven Central, with what it depends on, that Spark needs for a connector.

    Parameters
    ----------
    versions: by preference, some for some versions of Spark alone.
    excluded: (group, regular expression of artifacts) that are left out, since Spark carries them.
    besides: (group, artifact, version) to fetch with it.
    archive: the classifier of a program that is packed as tar.gz, to be unpacked in place of jars.
    provides: a class by which a session that somebody else has started is asked whether it has them.
    """

    group: str
    artifact: str
    versions: tuple["Release", ...]
    excluded: tuple[tuple[str, str], ...] = ()
    besides: tuple[tuple[str, str, str], ...] = ()
    archive: str = ""
    provides: str = ""


Reach = Literal["anywhere", "shared disk", "one machine"]
"""Where a connector works: whether driver and executors must see one disk, or be one machine."""


@dataclass(frozen=True)
class Connector:
    """What a source's and a sink's declaration have in common.

    Parameters
    ----------
    scheme: what its URIs begin with.
    place: how what follows is written, as ``HOST:PORT/TOPIC``; empty where nothing need follow.
    help: one line for the table in the docs.
    reach: where it works.
    jars: what Spark needs besides its own.
    """

    scheme: str
    place: str
    help: str
    options: tuple[Option, ...] = ()
    reach: Reach = "anywhere"
    jars: tuple[Jars, ...] = ()

    @property
    def form(self) -> str:
        """How its URIs are written."""
        return f"{self.scheme}:{self.place}"

    def read(self, uri: Uri) -> Options:
        """A URI's options, each as what it is.

        Raises
        ------
        ConfigurationError: one is unknown, or its text does not fit; or the URI names no place. Says what is allowed.
        """
        if self.place and not uri.place:
            raise ConfigurationError(f"'{uri}' names no place: write {self.form}.")
        return {name: self._read(uri, name, text) for name, text in uri.options.items()}

    def _read(self, uri: Uri, name: str, text: str) -> Any:
        option = next((option for option in self.options if option.stands_for(name)), None)
        if option is None:
            known = ", ".join(option.name for option in self.options) or "none"
            raise ConfigurationError(f"'{uri}': {self.scheme} takes no option {name!r}; it takes {known}.")
        try:
            return option.kind.read(text)
        except ValueError:
            raise ConfigurationError(f"{uri}: {name}={shown({name: text})[name]} must be {option.kind.words}.") from None


@dataclass(frozen=True)
class SourceContext:
    """What a run tells a source that is being bound.

    Parameters
    ----------
    application: how another process gets the application; None where none will.
    """

    application: AppReference | None = None


@dataclass(frozen=True)
class SinkContext:
    """What a run tells a sink that is being bound.

    Parameters
    ----------
    output: a directory of the sink's own, which driver and executors see; where it stages, and may write.
    """

    output: Path


@dataclass(frozen=True)
class SourceConnector(Connector):
    """Declares a kind of source; ``bind`` makes the source of a run behind a declared one."""

    bind: Callable[[Source[Any], Uri, Options, SourceContext], BoundSource] = field(kw_only=True)


@dataclass(frozen=True)
class SinkConnector(Connector):
    """Declares a kind of sink; ``bind`` makes the sink of a run behind a declared one."""

    bind: Callable[[Sink, Uri, Options, SinkContext], BoundSink] = field(kw_only=True)
