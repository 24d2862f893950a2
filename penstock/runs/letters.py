"""The dead letters of a run, read from its directory: what failed, why, and the events to be read again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from penstock.errors import SourceError
from penstock.runs.manifest import Manifest, manifest_of
from penstock.runtime.output import DEAD_LETTERS
from penstock.storage import durable


class Letter(msgspec.Struct, frozen=True, omit_defaults=True):
    """A dead letter.

    Parameters
    ----------
    element: that could not handle it; None where it could not be decoded. stream: it was in.
    error: what was raised. line: of the application's code. raw: as it was read, where it could not be decoded.
    event: otherwise; None where no single event was at fault.
    """

    element: str | None
    stream: str
    error: str
    line: str | None = None
    raw: str | None = None
    event: Any = None

    @property
    def place(self) -> str:
        """The element, or that it was decoding."""
        return self.element or f"decoding {self.stream}"

    def again(self) -> str | None:
        """As a line of JSON that a source can read again; None where there is no event, or it is no JSON."""
        if self.raw is not None:
            return self.raw if "\n" not in self.raw else None
        return msgspec.json.encode(self.event).decode() if isinstance(self.event, dict) else None


def letters_of(run: Path) -> Iterator[Letter]:
    """All that committed micro-batches have left, in their order.

    Raises
    ------
    SourceError: it is not the directory of a run, or of one in real time.
    """
    manifest = manifest_of(run)
    if manifest.is_real_time:
        topics = ", ".join(topics_of_letters(manifest))
        raise SourceError(f"{run} ran in real time, where dead letters are messages of {topics}: read them there.")
    decode = msgspec.json.Decoder(Letter).decode
    for path in durable.matching(run / DEAD_LETTERS, "*.jsonl"):
        yield from map(decode, path.read_bytes().splitlines())


def topics_of_letters(manifest: Manifest) -> list[str]:
    """Where a run in real time leaves its dead letters; none of other runs."""
    return list(map(topic_of_letters, manifest.sources.values())) if manifest.is_real_time else []


def topic_of_letters(topic: str) -> str:
    """The topic for those of a topic in real time."""
    return f"{topic}-dead-letters"


def last_letters(run: Path, most: int) -> list[Letter]:
    """The last ones, from as few files as hold them.

    Raises
    ------
    SourceError: it is not the directory of a run.
    """
    decode, found = msgspec.json.Decoder(Letter).decode, list[Letter]()
    for path in reversed(durable.matching(run / DEAD_LETTERS, "*.jsonl")):
        found = [*map(decode, path.read_bytes().splitlines()), *found][-most:]
        if len(found) == most:
            break
    return found
