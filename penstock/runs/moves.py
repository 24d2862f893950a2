"""The moves of a run to other groups or partitions: ``moves.jsonl``, a record each."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from penstock.runs.files import MOVES
from penstock.runs.lines import records_of
from penstock.storage import journal


class Division(msgspec.Struct, frozen=True):
    """How a run is divided: a group's name by element, and partitions."""

    groups: dict[str, str]
    partitions: int | None


class MoveRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What the run's directory keeps of a move of state; times in seconds.

    Parameters
    ----------
    instances, checksum: counted in the old checkpoints, and the same in the new ones.
    expected_s: assumed before it began. took_s: measured, from when all was settled until the new layout was in force.
    """

    time: float
    before: Division
    after: Division
    instances: int
    checksum: int
    expected_s: float
    took_s: float


def note_move(run: Path, move: MoveRecord) -> None:
    """Keep a move, after those before it."""
    journal.add(run / MOVES, msgspec.json.encode(move))


def moves_of(run: Path) -> Iterator[MoveRecord]:
    """All moves, in order."""
    return records_of(run / MOVES, MoveRecord)
