"""The manifest of a run: ``manifest.json``, what must not change from one start to the next, and who runs it."""

from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from penstock.app.description import Description
from penstock.app.state import Schema
from penstock.errors import ConfigurationError, SourceError, StoreError
from penstock.runs.files import MANIFEST
from penstock.runs.layout import Layout
from penstock.storage import durable
from penstock.storage.reach import reaching

FORMAT = 1
"""Of all files of a run; another version's is refused."""

Form = TypeVar("Form", bound="Head")
Mode = Literal["micro-batches", "real time"]


class Driver(msgspec.Struct):
    """The process that runs the run, or has run it last; times in seconds since the epoch."""

    id: str
    host: str
    process: int
    since: float
    released: float | None = None


class Reads(msgspec.Struct, frozen=True):
    """What a group reads: sources, and streams that other groups hand on."""

    sources: list[str]
    handed_on: list[str]


class SinkPlace(msgspec.Struct, frozen=True):
    """Where a sink is, and the last micro-batch of each group that went to where it was before."""

    place: str
    since: dict[str, int] = {}


class Head(msgspec.Struct, kw_only=True):
    """What every format's manifest says.

    Parameters
    ----------
    run: what the run is called in its sinks. discarded: the runs that lay in its directory before, to be removed.
    discarding: whether that is under way. place: where the directory lay when it was started last.
    """

    format: int = 0
    run: str = ""
    place: str = ""
    discarded: list[str] = []
    discarding: bool = False


class Manifest(Head, kw_only=True):
    """The manifest of a run.

    Parameters
    ----------
    state: the schema of each element that keeps state. sources: where each is read, without options.
    identities: what tells the thing in a source's place from another, where something does.
    groups: a group's name by element. hops: how many keyed ones each group has. reads: what each group reads.
    orders: in which a group's query reads its sources. places: where sinks are. beginnings: where the run has begun to read a
        source.
    handed: the shapes of events that groups hand on. spark: the version that has planned its last micro-batches; empty before
        the first.
    """

    format: int = FORMAT
    application: str
    mode: Mode
    topology: Description
    state: dict[str, Schema]
    sources: dict[str, str]
    identities: dict[str, str | None]
    parameters: dict[str, str]
    groups: dict[str, str]
    hops: dict[str, int]
    reads: dict[str, Reads]
    partitions: int | None
    layout: Layout
    orders: dict[str, list[str]] = {}
    ended: bool = False
    places: dict[str, SinkPlace] = {}
    beginnings: dict[str, Any] = {}
    handed: dict[str, Any] = {}
    driver: Driver | None = None
    spark: str = ""

    @property
    def is_real_time(self) -> bool:
        """Whether the run is one in Spark's real-time mode, which has no ledger."""
        return self.mode == "real time"

    def write(self, run: Path) -> None:
        """Put it into a run's directory, wholly or not at all."""
        durable.write(run / MANIFEST, msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n", durable.PRIVATE)


def head_of(run: Path) -> Head | None:
    """What the manifest of a directory says whatever its format; None where there is none.

    Raises
    ------
    ConfigurationError: it is damaged, or of something else than a run.
    """
    head = _decoded(run, Head)
    if head is not None and not head.run:
        raise ConfigurationError(
            f"{run} is no run's: its {MANIFEST} is of something else, and nothing in it is touched; choose another --name or "
            "--runs."
        )
    return head


def stored_manifest(run: Path) -> Manifest | None:
    """The manifest of a directory that a start is to resume; None where there is none.

    Raises
    ------
    ConfigurationError: it is damaged, or of another version.
    """
    head = head_of(run)
    if head is None:
        return None
    if head.format != FORMAT:
        raise ConfigurationError(
            f"{run} {_of_another_version(head)}: go on with that version, start afresh with --fresh, or choose another --name."
        )
    return _decoded(run, Manifest)


def manifest_of(run: Path) -> Manifest:
    """The manifest of a run that is looked at.

    Raises
    ------
    SourceError: the directory is not that of a run, or of another version, or cannot be read.
    """
    try:
        content = _read(run / MANIFEST)
        head = msgspec.json.decode(content, type=Head)
        if head.format == FORMAT:
            return msgspec.json.decode(content, type=Manifest)
    except FileNotFoundError:
        raise SourceError(f"{run} is not the directory of a run: it has no {MANIFEST}.") from None
    except (OSError, ValueError) as error:
        raise SourceError(f"{run} is not the directory of a run, or cannot be read ({error}).") from error
    if not head.run:
        raise SourceError(f"{run} is not the directory of a run: its {MANIFEST} is of something else.")
    raise SourceError(f"{run} {_of_another_version(head)}: look at it with that version.")


def is_run(directory: Path) -> bool:
    """Whether a directory has a manifest."""
    return (directory / MANIFEST).exists()


def _of_another_version(head: Head) -> str:
    whose = f"is a run in format {head.format}" if head.format else "is a run of before Penstock's first release"
    return f"{whose}, and this version reads format {FORMAT}"


def _decoded(run: Path, form: type[Form]) -> Form | None:
    path = run / MANIFEST
    try:
        return msgspec.json.decode(durable.read(path), type=form)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ConfigurationError(
            f"{path} is damaged ({error}), so nothing in its directory is touched: put it back as it was, or choose another "
            "--name."
        ) from error


def _read(file: Path) -> bytes:
    """What a file holds; what is wrong with its store is said as such, but not that there is no file."""
    try:
        with reaching(file):
            return file.read_bytes()
    except StoreError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise error.__cause__ from None
        raise
