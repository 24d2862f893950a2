"""The source events that have failed in a run of several groups, so that one that fails in two of them is counted once."""

from itertools import islice

from penstock.runs.batches import BatchRecord

REMEMBERED = 1_000_000
"""How many of the latest failed events are known. Groups read the same events within minutes of each other."""
RECORDED = 100
"""How many failed events of a micro-batch are in its record, for the next start. Bounds the size of ledgers."""


class Failures:
    """The origins of the source events that have failed, in the order in which their micro-batches were committed.

    Args:
        groups: of the run; a single one reads each event once, and nothing is remembered.
    """

    def __init__(self, groups: int) -> None:
        self._several = groups > 1
        self._known: dict[int, None] = {}

    def judge(self, record: BatchRecord) -> list[int]:
        """Leave those out of a record's count that have failed before, and return all that have failed in it.

        Called before the record is committed; `note` what it returns afterwards.
        """
        failed, record.judged = record.origins, True
        if self._several:
            record.dead_lettered = sum(origin not in self._known for origin in failed)
        record.origins = failed[:RECORDED] if self._several else []
        return failed

    def note(self, failed: list[int]) -> None:
        """Remember the events that have failed in a committed record."""
        if self._several:
            self._known |= dict.fromkeys(failed)
        if len(self._known) > REMEMBERED:
            for origin in list(islice(self._known, len(self._known) - REMEMBERED)):
                del self._known[origin]
