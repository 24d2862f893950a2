"""The manifest of a run: ``manifest.json``. It fixes what must not change between starts, and names the driver process."""

from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from penstock.app.description import Description
from penstock.app.state import Schema
from penstock.errors import ConfigurationError, SourceError, StoreError
from penstock.runs.files import CHECKPOINT, MANIFEST
from penstock.runs.layout import Layout
from penstock.storage import durable
from penstock.storage.reach import reaching

FORMAT = 2
"""The version of the format of all files of a run."""
READ = (1, FORMAT)
"""The formats that can be read; a run in another one is refused. Format 1 knew one partitioner, ``remainder``."""

Form = TypeVar("Form", bound="Head")
Mode = Literal["micro-batches", "real time"]


class Driver(msgspec.Struct):
    """The process that drives the run, or drove it last. Times are in seconds since the epoch."""

    id: str
    host: str
    process: int
    since: float
    released: float | None = None


class Reads(msgspec.Struct, frozen=True):
    """The inputs of a group: its sources, and the streams that it reads from other groups."""

    sources: list[str]
    handed_on: list[str]


class SinkPlace(msgspec.Struct, frozen=True):
    """The place of a sink and, by group, the last micro-batch that was written to the sink's former place."""

    place: str
    since: dict[str, int] = {}


class Head(msgspec.Struct, kw_only=True):
    """The fields that a manifest has in every version of the format.

    Args:
        run: the run's identifier in its sinks.
        discarded: identifiers of earlier runs in the directory, which are to be removed.
        discarding: whether their removal is under way.
        place: the directory's path at the last start.
    """

    format: int = 0
    run: str = ""
    place: str = ""
    discarded: list[str] = []
    discarding: bool = False


class Manifest(Head, kw_only=True):
    """The manifest of a run.

    Args:
        state: the schema of each element that keeps state.
        sources: the place of each source, without options.
        identities: by source, a text that changes if its file or topic is replaced by another; None where there is none.
        groups: a group's name by element.
        hops: by group, the number of keyed hops.
        clocks: by group and hop, Spark's time mode: the clock that the timers of the hop's elements follow.
        reads: the inputs of each group.
        orders: by group, its sources in the order in which its query numbers them.
        places: the places of sinks.
        beginnings: by source, the position at which the run began to read it.
        checkpoints: the name of the directory of Spark's checkpoints. A run that is begun anew has a new one, so that a Spark
            which still runs for the earlier run writes nothing into it.
        handed: the schemas of the streams between groups.
        spark: the version of Spark that planned the last micro-batches; empty before the first.
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
    clocks: dict[str, list[str]] = {}
    orders: dict[str, list[str]] = {}
    ended: bool = False
    places: dict[str, SinkPlace] = {}
    beginnings: dict[str, Any] = {}
    handed: dict[str, Any] = {}
    driver: Driver | None = None
    spark: str = ""
    checkpoints: str = CHECKPOINT

    @property
    def is_real_time(self) -> bool:
        """Whether the run is one in Spark's real-time mode, which has no ledger."""
        return self.mode == "real time"

    def write(self, run: Path) -> None:
        """Write the manifest to a run's directory, atomically."""
        durable.write(run / MANIFEST, msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n", durable.PRIVATE)


def head_of(run: Path) -> Head | None:
    """Return the part of a directory's manifest that every format has; None where there is no manifest.

    Raises:
        ConfigurationError: the manifest is damaged, or is not that of a run.
    """
    head = _decoded(run, Head)
    if head is not None and not head.run:
        raise ConfigurationError(
            f"{run} is not the directory of a run: its {MANIFEST} is of something else. Nothing in it was changed; choose "
            "another --name or --runs."
        )
    return head


def stored_manifest(run: Path) -> Manifest | None:
    """Return the manifest of a run that is to be resumed; None where the directory has no manifest.

    Raises:
        ConfigurationError: the manifest is damaged, is not that of a run, or has another version's format.
    """
    head = head_of(run)
    if head is None:
        return None
    if head.format not in READ:
        raise ConfigurationError(
            f"{run} {_of_another_version(head)}: go on with that version, start afresh with --fresh, or choose another --name."
        )
    manifest = _decoded(run, Manifest)
    if manifest is not None:
        manifest.format = FORMAT
    return manifest


def manifest_of(run: Path) -> Manifest:
    """Return the manifest of a run that is to be read only.

    Raises:
        SourceError: the directory is not that of a run, has another version's format, or cannot be read.
    """
    try:
        content = _read(run / MANIFEST)
        head = msgspec.json.decode(content, type=Head)
        if head.format in READ:
            return msgspec.json.decode(content, type=Manifest)
    except FileNotFoundError:
        raise SourceError(f"{run} is not the directory of a run: it has no {MANIFEST}.") from None
    except OSError as error:
        raise SourceError(f"{run} is not the directory of a run, or cannot be read ({error.strerror or error}).") from error
    except ValueError as error:
        raise SourceError(f"{run / MANIFEST} is damaged ({error}): put it back as it was.") from error
    if not head.run:
        raise SourceError(f"{run} is not the directory of a run: its {MANIFEST} is of something else.")
    raise SourceError(f"{run} {_of_another_version(head)}: look at it with that version.")


def is_run(directory: Path) -> bool:
    """Whether a directory has a manifest."""
    return (directory / MANIFEST).exists()


def _of_another_version(head: Head) -> str:
    whose = f"is a run in format {head.format}" if head.format else "is a run of before Penstock's first release"
    return f"{whose}, and this version reads formats {' and '.join(map(str, READ))}"


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
    """Return a file's content. An error of its store becomes a `StoreError`, but a missing file stays a `FileNotFoundError`."""
    try:
        with reaching(file):
            return file.read_bytes()
    except StoreError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise error.__cause__ from None
        raise
