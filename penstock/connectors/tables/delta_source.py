"""The source for Delta tables: first the rows that a table holds when a run begins, then the rows that each new version adds.

Rows are numbered in the order of versions, within a version in the order of its files, and within a file from the top. The
first numbers are those of the rows in the newest version when the run begins. A saved offset holds, besides the number of the
next row, the last version that ends at or before it. So versions that have been read may be removed from the log.
"""

import time
from bisect import bisect_right
from collections.abc import Iterator
from threading import RLock
from typing import Any, NamedTuple

import msgspec
import numpy as np

from penstock.app.stream import Source
from penstock.connectors.admission import ADMISSION
from penstock.connectors.declaration import Option, Options, SourceConnector, SourceContext, one_of
from penstock.connectors.sequence import Sequence, SequenceSource, Slice
from penstock.connectors.tables.delta_log import Added, DeltaLog
from penstock.connectors.tables.delta_place import STORAGE_OPTION, place_of, storage_of
from penstock.connectors.tables.delta_rows import RowReader
from penstock.connectors.uri import Uri

LOOKED_EVERY_S = 1.0
"""The least time between two requests to an object store for a new version."""

CHECKED_EVERY_S = 60.0
"""How often to check that the next version is yet to be written, rather than removed, and that the table is still the same."""

KEPT_FOR_LONG = 1000
"""How many versions must have been read before they, and their files, are dropped from memory."""


class Bookmark(msgspec.Struct, frozen=True):
    """A position between two versions, from which reading can continue.

    Args:
        origin: the version at which the run began.
        version: the last version whose rows come before the position.
        number: the number of the first event after the position.
        whole: whether all rows that the table holds at ``version`` come after the position instead.
    """

    origin: int
    version: int
    number: int
    whole: bool = False


class Piece(NamedTuple):
    """A file of the table, and the number of its first row."""

    first: int
    file: Added


class DeltaSequence(Sequence):
    """The rows of a Delta table, as a sequence.

    Args:
        whole: begin with all rows that the table holds; else with the first version after the newest.
        skip: pass over versions that delete or rewrite rows, instead of raising an error.
    """

    def __init__(self, log: DeltaLog, rows: RowReader, whole: bool, skip: bool) -> None:
        self._log, self._rows, self._whole, self._skip = log, rows, whole, skip
        self._marks: list[Bookmark] = []
        self._pieces: list[Piece] = []
        self._end = 0
        self._looked, self._checked = 0.0, 0.0
        self._lock = RLock()

    def identity(self) -> str:
        return self._log.table_id

    def end(self, started: float) -> int:
        with self._lock:
            self._begin()
            now = time.monotonic()
            if "://" not in self._log.at or now - self._looked >= LOOKED_EVERY_S:
                self._looked = now
                self._follow(now)
            return self._end

    def read(self, start: int, end: int, started: float) -> Slice:
        with self._lock:
            self._begin()
            if end > self._end:
                self._follow(time.monotonic())
            pieces = list(self._within(start, end))
        payloads: list[bytes] = []
        born: list[Any] = [np.zeros(0, np.int64)]
        for piece in pieces:
            low, high = max(start - piece.first, 0), min(end - piece.first, piece.file.rows)
            payloads += self._rows.payloads(piece.file, low, high)
            born.append(np.full(high - low, max(piece.file.born, int(started * 1e6)), np.int64))
        return Slice(payloads, np.concatenate(born))

    def bookmark(self, number: int) -> Any:
        with self._lock:
            self._begin()
            at = bisect_right(self._marks, number, key=lambda mark: mark.number) - 1
            if number > self._end or at < 0:
                raise self._log.refusal(f"has no event {number} to go on from", "start afresh with --fresh")
            return msgspec.to_builtins(self._marks[at])

    def turn_to(self, bookmark: Any) -> None:
        if bookmark is None:
            return
        mark = msgspec.convert(bookmark, Bookmark)
        with self._lock:
            marks = self._marks
            if marks and marks[0].origin == mark.origin and marks[0].number <= mark.number <= self._end:
                self._forget(mark.number)
            else:
                self._start_at(mark)

    # --- versions read so far -----------------------------------------------------------------------

    def _begin(self) -> None:
        if not self._marks:
            newest = self._log.newest()
            self._start_at(Bookmark(newest, newest, 0, self._whole))

    def _start_at(self, mark: Bookmark) -> None:
        self._marks, self._pieces, self._end = [mark], [], mark.number
        self._checked = 0.0
        if mark.whole:
            self._add(self._log.held(mark.version))
            self._marks.append(Bookmark(mark.origin, mark.version, self._end))

    def _add(self, files: list[Added]) -> None:
        for file in files:
            if file.rows:
                self._pieces.append(Piece(self._end, file))
                self._end += file.rows

    def _follow(self, now: float) -> None:
        """Read the log up to the newest version, and number the rows that were added."""
        version = self._marks[-1].version
        while (commit := self._log.version(version + 1)) is not None:
            version += 1
            if commit.rewrites and not self._skip:
                raise self._log.refusal(
                    f"deletes or rewrites rows in version {version} (of the file {commit.rewrites}), and events cannot be "
                    "taken back",
                    "pass over such versions with changes=skip, or start afresh with --fresh from what the table holds now",
                )
            self._add(commit.added)
            self._marks.append(Bookmark(self._marks[-1].origin, version, self._end))
        if not self._checked or now - self._checked >= CHECKED_EVERY_S:
            self._checked = now
            self._check(version)

    def _check(self, version: int) -> None:
        """Check that the version after the given one is yet to be written, rather than removed from the log."""
        newest = self._log.newest()
        if newest < version:
            raise self._log.refusal(
                f"is at version {newest}, but version {version} was read", "put that back, or start afresh with --fresh"
            )
        if newest > version and self._log.version(version + 1) is None:
            raise self._log.refusal(
                f"has no version {version + 1} in its log any more, whose rows were not read",
                "keep the log for longer (delta.logRetentionDuration), and start afresh with --fresh",
            )

    def _within(self, start: int, end: int) -> Iterator[Piece]:
        """Yield the files with rows numbered from ``start`` to ``end - 1``."""
        at = max(bisect_right(self._pieces, start, key=lambda piece: piece.first) - 1, 0)
        for piece in self._pieces[at:]:
            if piece.first >= end:
                return
            if piece.first + piece.file.rows > start:
                yield piece

    def _forget(self, number: int) -> None:
        """Drop versions and files that lie wholly before a number, if there are many."""
        marks = bisect_right(self._marks, number, key=lambda mark: mark.number) - 1
        if marks >= KEPT_FOR_LONG:
            first = self._marks[marks].number
            self._marks = self._marks[marks:]
            self._pieces = [piece for piece in self._pieces if piece.first >= first]


def _bind(source: Source[Any], uri: Uri, options: Options, context: SourceContext) -> SequenceSource:
    what, at = f"Source {source.name}", place_of(uri)
    log = DeltaLog(what, at, storage_of(what, uri))
    rows = RowReader(log, source.event_type)
    sequence = DeltaSequence(log, rows, options.get("start") != "latest", options.get("changes") == "skip")
    return SequenceSource(source, sequence, Uri(uri.scheme, at, uri.options), options, context, name=str(uri))


DELTA = SourceConnector(
    "delta",
    "PLACE",
    "the rows of a Delta table, and those that its new versions add",
    (
        Option(
            "start",
            "where a new run begins: `earliest` (the default: all that the table holds) or `latest`",
            one_of("earliest", "latest"),
        ),
        Option(
            "changes",
            "what versions mean that delete or rewrite rows: `refuse` (the default), or `skip` them",
            one_of("refuse", "skip"),
        ),
        STORAGE_OPTION,
        *ADMISSION,
    ),
    bind=_bind,
)
