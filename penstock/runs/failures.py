"""The source events that have failed in a run of several groups, so that one that fails in two of them is counted once."""

from penstock.runs.batches import BatchRecord

REMEMBERED = 1_000_000
"""How many of the latest failed events are known. Groups read the same events within minutes of each other."""


class Failures:
    """The origins of the source events that have failed, in the order in which their micro-batches were committed.

    Parameters
    ----------
    groups: of the run; a single one reads each event once, and nothing is remembered.
    """

    def __init__(self, groups: int) -> None:
        self._several = groups > 1
        self._known: dict[int, None] = {}

    def judge(self, record: BatchRecord) -> None:
        """Leave those out of a record's count that have failed before. Called before the record is committed."""
        if self._several:
            record.dead_lettered = sum(origin not in self._known for origin in record.failed)
        else:
            record.failed = []

    def note(self, record: BatchRecord) -> None:
        """Remember the events of a committed record."""
        self._known |= dict.fromkeys(record.failed)
        for origin in list(self._known)[: max(0, len(self._known) - REMEMBERED)]:
            del self._known[origin]
