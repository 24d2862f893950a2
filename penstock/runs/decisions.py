"""The log of an adapting run's decisions: ``runs/NAME/decisions.jsonl``, a line each, on disk before anything is touched."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from penstock.errors import SinkError
from penstock.runs.files import DECISIONS
from penstock.runs.gate import Gate
from penstock.runs.lines import records_of
from penstock.storage import journal

Kind = Literal["apply", "keep", "propose", "check", "revert"]


class Decision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of the log.

    Parameters
    ----------
    time: when, seconds since the epoch.
    kind: ``apply``: other settings, from now on; ``revert``: those before again; ``keep``: a change was seen that does not pay;
        ``propose``: what would have been applied (``--dry-run``); ``check``: what came of the one before.
    cause: what was seen.
    evidence: measured. expected: predicted. came: measured afterwards.
    trigger_s: from now on. before_s: until now.
    doors, doors_before: the gates of the adapter's streams, likewise; empty where the run adapts none.
    why: in a sentence.
    """

    time: float
    kind: Kind
    cause: str
    trigger_s: float
    before_s: float
    why: str
    doors: dict[str, Gate] = {}
    doors_before: dict[str, Gate] = {}
    evidence: dict[str, Any] = {}
    expected: dict[str, Any] = {}
    came: dict[str, Any] = {}


def note(directory: Path, decision: Decision) -> None:
    """Append a decision, and have it on disk.

    Raises
    ------
    SinkError: it cannot be written, and so must not be carried out.
    """
    path = directory / DECISIONS
    try:
        journal.add(path, msgspec.json.encode(decision), synced=True)
    except OSError as error:
        raise SinkError(f"The decision cannot be written to {path} ({error.strerror}), so it is not carried out.") from error


def decisions(directory: Path) -> Iterator[Decision]:
    """All decisions of a run; one whose line is torn was never carried out."""
    return records_of(directory / DECISIONS, Decision)


def in_force(directory: Path) -> Decision | None:
    """The settings that were decided last, whether or not the run lived to see them; None where none were."""
    carried_out = [one for one in decisions(directory) if one.kind in ("apply", "revert")]
    return carried_out[-1] if carried_out else None
