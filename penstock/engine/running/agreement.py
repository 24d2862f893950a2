"""Checks before a run is resumed: the ledger, Spark's checkpoint and the sinks must have reached the same batch."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from penstock.connectors.checkpoint import batches, clear_checkpoint, missing_part, offsets_checksum
from penstock.connectors.sink import BoundSink
from penstock.engine.running.ledger import Ledger
from penstock.errors import IncompatibleStateError

MEND = "put all of the run's directory back as it was, or start afresh with --fresh"


def agree(
    ledger: Ledger,
    checkpoint: Path,
    sinks: Sequence[BoundSink],
    held: Callable[[], AbstractContextManager[None]],
    *,
    sources: int,
    stateful: bool,
) -> None:
    """Check that ledger, checkpoint and sinks are complete and agree. Clears a checkpoint that has not planned a batch yet.

    After a crash, the checkpoint may have planned one batch more than the ledger has committed, and may lack the entry that
    completes the ledger's last batch.

    Args:
        held: keeps other drivers from taking the run over, and raises if one has.
        sources: the number of the query's sources.
        stateful: whether the query is known to keep state.

    Raises:
        IncompatibleStateError: one was rolled back, or the checkpoint lacks a part; the text says which.
    """
    planned, completed = batches(checkpoint, "offsets"), batches(checkpoint, "commits")
    done = -1 if ledger.last is None else ledger.last
    for sink in sinks:
        reached = sink.reached(ledger.group)
        if reached is not None and reached > ledger.first + done:
            raise IncompatibleStateError(
                f"The ledger of {checkpoint.name} is behind: it ends with batch {_shown(done)}, and sink {sink.files.name} has "
                f"batch {reached}; {MEND}."
            )
    if not planned and not completed and ledger.last is None:
        # A start that was killed before it planned its first batch may have left state with which Spark would not begin.
        with held():
            clear_checkpoint(checkpoint)
        return
    if completed and completed[-1] > done:
        raise IncompatibleStateError(
            f"The ledger of {checkpoint.name} is behind: it ends with batch {_shown(done)}, and Spark's checkpoint has "
            f"completed batch {completed[-1]}; {MEND}."
        )
    if done > (planned[-1] if planned else -1):
        raise IncompatibleStateError(
            f"Spark's checkpoint of {checkpoint.name} is behind: it has planned batch "
            f"{_shown(planned[-1] if planned else -1)}, and the ledger has committed batch {done}; {MEND}."
        )
    if done >= 0:
        part = missing_part(checkpoint, done, sources=sources, stateful=stateful)
        if part is not None:
            raise IncompatibleStateError(
                f"Spark's checkpoint of {checkpoint.name} lacks {part} ({checkpoint}), without which Spark would stop, or "
                f"read again what it has read; {MEND}."
            )
    if ledger.last_offsets and offsets_checksum(checkpoint, done) not in ("", ledger.last_offsets):
        raise IncompatibleStateError(
            f"Spark's checkpoint of {checkpoint.name} was rolled back: its batch {done} reads other events than the one that "
            f"the ledger has committed; {MEND}."
        )


def keeps(group: str, owed: Mapping[str, int], since: Mapping[str, int], sinks: Iterable[BoundSink]) -> None:
    """Check that all sinks still hold the batches that a group has delivered to them.

    Args:
        owed: by label of a sink, the last batch that it must hold.
        since: by name of a sink that has another place than before, the last batch that went to the former place.

    Raises:
        IncompatibleStateError: a sink lacks batches; the text names the sink.
    """
    for sink in sinks:
        last = owed.get(sink.files.label, -1)
        reached = sink.reached(group) if last > since.get(sink.files.name, -1) else None
        if reached is not None and reached < last:
            elsewhere = (
                f"deliver from now on to another place with --sink {sink.files.name}=..., " if sink.files.role == "sink" else ""
            )
            raise IncompatibleStateError(
                f"Sink {sink.files.name} is behind: the run has delivered up to batch {last} of {group} to {sink.uri}, and it "
                f"holds {'none' if reached < 0 else f'those up to {reached}'}: it was removed, replaced or rolled back. Put "
                f"it back as it was, {elsewhere}or start afresh with --fresh."
            )


def _shown(batch: int) -> str:
    return "none" if batch < 0 else str(batch)
