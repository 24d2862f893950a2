"""The moves of a run to other groups or partitions: ``moves.jsonl``, with one record for each."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from penstock.runs.files import MOVES
from penstock.runs.lines import records_of
from penstock.storage import journal


class Division(msgspec.Struct, frozen=True):
    """How a run is divided: a group's name by element, and the number of partitions."""

    groups: dict[str, str]
    partitions: int | None


class MoveRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a move of state. Times are in seconds.

    Args:
        instances, checksum: counted in the old checkpoints, and found equal in the new ones.
        expected_s: the estimate before the move.
        took_s: measured, from the settled old layout until the new one was in force.
    """

    time: float
    before: Division
    after: Division
    instances: int
    checksum: int
    expected_s: float
    took_s: float


def note_move(run: Path, move: MoveRecord) -> None:
    """Append a move to the run's record of moves."""
    journal.add(run / MOVES, msgspec.json.encode(move))


def moves_of(run: Path) -> Iterator[MoveRecord]:
    """Yield all moves of a run, in order."""
    return records_of(run / MOVES, MoveRecord)
