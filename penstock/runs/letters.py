"""The dead letters of a run, read from its directory: which events failed, why, and how to replay them."""

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

    Args:
        element: the element that failed; None where the event could not be decoded.
        stream: the stream of the event.
        error: the exception.
        line: the place in the application's code.
        raw: the undecoded event, where decoding failed.
        event: the decoded event otherwise; None where no single event was at fault.
    """

    element: str | None
    stream: str
    error: str
    line: str | None = None
    raw: str | None = None
    event: Any = None

    @property
    def place(self) -> str:
        """Where it failed: the element's name, or ``decoding STREAM``."""
        return self.element or f"decoding {self.stream}"

    def again(self) -> str | None:
        """Return the event as a line that a source can read again; None if there is no event, or no single line holds it."""
        if self.raw is not None:
            return self.raw if "\n" not in self.raw else None
        return msgspec.json.encode(self.event).decode() if isinstance(self.event, dict) else None


def letters_of(run: Path) -> Iterator[Letter]:
    """Yield all dead letters of committed micro-batches, in the order of the batches.

    Raises:
        SourceError: the directory is not that of a run, or the run is in real time.
    """
    manifest = manifest_of(run)
    if manifest.is_real_time:
        topics = ", ".join(topics_of_letters(manifest))
        raise SourceError(f"{run} ran in real time, where dead letters are messages of {topics}: read them there.")
    for path in durable.matching(run / DEAD_LETTERS, "*.jsonl"):
        yield from _letters_in(path)


def _letters_in(path: Path) -> Iterator[Letter]:
    decode = msgspec.json.Decoder(Letter).decode
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            yield decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            raise SourceError(f"Line {number} of {path} is no dead letter ({error}): put back the file as it was.") from error


def topics_of_letters(manifest: Manifest) -> list[str]:
    """Return the topics to which a run in real time writes its dead letters; an empty list for other runs."""
    return list(map(topic_of_letters, manifest.sources.values())) if manifest.is_real_time else []


def topic_of_letters(topic: str) -> str:
    """Return the topic for the dead letters of a source's topic, in real time."""
    return f"{topic}-dead-letters"


def last_letters(run: Path, most: int) -> list[Letter]:
    """Return the last ``most`` dead letters, one or more, and read no more files than needed."""
    letters: list[Letter] = []
    for path in reversed(durable.matching(run / DEAD_LETTERS, "*.jsonl")):
        letters = [*_letters_in(path), *letters][-most:]
        if len(letters) == most:
            break
    return letters
