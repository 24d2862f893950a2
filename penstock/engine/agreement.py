"""Before a run goes on: ledger, Spark's checkpoint and sinks must have reached the same batch."""

from collections.abc import Sequence
from pathlib import Path

from penstock.connectors.checkpoint import batches, offsets_checksum
from penstock.connectors.sink import BoundSink
from penstock.engine.ledger import Ledger
from penstock.errors import IncompatibleStateError
from penstock.storage import durable

MEND = "put all of the run's directory back as it was, or start afresh with --fresh"


def agree(ledger: Ledger, checkpoint: Path, sinks: Sequence[BoundSink]) -> None:
    """Refuse to go on where one of them was rolled back; clear a checkpoint that has not begun.

    After a crash the checkpoint may have planned one batch more than the ledger has committed, and may lack the note
    that the ledger's last batch is complete.

    Raises
    ------
    IncompatibleStateError: says which is behind.
    """
    planned, completed = batches(checkpoint, "offsets"), batches(checkpoint, "commits")
    if not planned and not completed and ledger.last is None:
        # A start that was killed before its first batch was planned leaves state that Spark would not begin with.
        durable.remove(checkpoint)
        return
    done = -1 if ledger.last is None else ledger.last
    if completed and completed[-1] > done:
        raise IncompatibleStateError(
            f"The ledger of {checkpoint.name} is behind: it ends with batch {_shown(done)}, and Spark's checkpoint has "
            f"completed batch {completed[-1]}; {MEND}."
        )
    if done > (planned[-1] if planned else -1):
        raise IncompatibleStateError(
            f"Spark's checkpoint of {checkpoint.name} is behind: it has planned batch {_shown(planned[-1] if planned else -1)}, "
            f"and the ledger has committed batch {done}; {MEND}."
        )
    if ledger.last_offsets and offsets_checksum(checkpoint, done) not in ("", ledger.last_offsets):
        raise IncompatibleStateError(
            f"Spark's checkpoint of {checkpoint.name} was rolled back: its batch {done} reads other events than the one that "
            f"the ledger has committed; {MEND}."
        )
    for sink in sinks:
        reached = sink.reached(ledger.group)
        if reached is not None and reached > ledger.first + done:
            raise IncompatibleStateError(
                f"The ledger of {checkpoint.name} is behind: it ends with batch {_shown(done)}, and sink {sink.files.name} has "
                f"batch {reached}; {MEND}."
            )


def _shown(batch: int) -> str:
    return "none" if batch < 0 else str(batch)
