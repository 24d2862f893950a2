"""The decisions of a run that adapts itself: ``runs/NAME/decisions.jsonl``. Each line is on disk before it is carried out."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from penstock.errors import SinkError
from penstock.runs.files import DECISIONS
from penstock.runs.gate import TransferGate
from penstock.runs.lines import records_of
from penstock.storage import journal

Kind = Literal["apply", "keep", "propose", "check", "revert"]


class Decision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One decision, which is a line of the log.

    Args:
        time: seconds since the epoch.
        kind: ``apply``: use other settings; ``revert``: go back to the earlier ones; ``keep``: no change, as it would not pay
            or help, or after a fault; ``propose``: what ``--dry-run`` would have applied; ``check``: the effect of the last
            decision.
        cause: the observation that led to the decision.
        evidence: figures measured before.
        expected: figures predicted.
        came: figures measured afterwards.
        trigger_s: the trigger interval from now on, in seconds.
        before_s: the interval until now.
        doors, doors_before: the gates of the adapter's streams, from now on and until now; empty where the run adapts none.
        why: the reason, as a sentence.
    """

    time: float
    kind: Kind
    cause: str
    trigger_s: float
    before_s: float
    why: str
    doors: dict[str, TransferGate] = {}
    doors_before: dict[str, TransferGate] = {}
    evidence: dict[str, Any] = {}
    expected: dict[str, Any] = {}
    came: dict[str, Any] = {}


def note(directory: Path, decision: Decision) -> None:
    """Append a decision to the log, and sync it to disk.

    Raises:
        SinkError: the decision cannot be written, so the caller must not carry it out.
    """
    path = directory / DECISIONS
    try:
        journal.add(path, msgspec.json.encode(decision), synced=True)
    except OSError as error:
        raise SinkError(f"The decision cannot be written to {path} ({error.strerror}), so it is not carried out.") from error


def decisions(directory: Path) -> Iterator[Decision]:
    """Yield all decisions of a run, in order. A torn line is left out: its decision was never carried out."""
    return records_of(directory / DECISIONS, Decision)


def in_force(directory: Path) -> Decision | None:
    """Return the last decision that changes settings, even if the run ended before it took effect; None without one."""
    carried_out = [decision for decision in decisions(directory) if decision.kind in ("apply", "revert")]
    return carried_out[-1] if carried_out else None
