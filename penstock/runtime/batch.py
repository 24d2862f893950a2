"""The events of one delivery to a container, and which of them were not applied."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from penstock.runtime.delivery import Delivery
from penstock.runtime.hottest import Hottest
from penstock.runtime.key import KeyReader, Places
from penstock.runtime.letters import Failure
from penstock.runtime.lineage import Ints
from penstock.runtime.together.reading import Reads
from penstock.runtime.together.rows import ColumnRows, EventRows, Rows


class Saved(NamedTuple):
    """Snapshot of an instance one of whose events has failed: its encoded state, and the rows applied since, also those that
    were applied together.
    """

    content: bytes
    since: list[int]


class Batch:
    """The events of one delivery to a container, and which of them were not applied."""

    def __init__(self, key: KeyReader, delivery: Delivery, late: set[int]) -> None:
        self._key, self.delivery, self.late = key, delivery, late
        self.failed: dict[int, Failure | None] = dict.fromkeys(late)
        """Why events were not applied, by row; None for late events, which have been dealt with already."""
        self.saved: dict[bytes, Saved] = {}
        self.without_result: dict[int, Failure] = {}
        """Rows of events that were applied without the result that they made due, and why that failed."""

    @cached_property
    def identities(self) -> list[bytes]:
        """The identity of each event's instance."""
        return [self.places.identities[place] for place in self.places.at.tolist()]

    @cached_property
    def places(self) -> Places:
        """The instances of the events."""
        return self._key.places(self.delivery.events)

    def rows(self, part: slice, time_of: Callable[[Any], Any]) -> Rows:
        """Return the events of a part, to be applied together.

        Args:
            time_of: reads the time by which windows go.
        """
        return EventRows(self.delivery.events[part], time_of)

    def events_of(self, rows: Sequence[int]) -> Sequence[Any] | Mapping[int, Any]:
        """Return what has the events of some rows."""
        return self.delivery.events

    def note_applied(self, rows: Ints) -> None:
        """Note events that were applied together, for snapshots of their instances."""
        if self.saved:
            for row in rows.tolist():
                saved = self.saved.get(self.identities[row])
                if saved is not None:
                    saved.since.append(row)

    def hottest(self) -> Hottest:
        """The keys with the most events."""
        return Hottest.of(self.places.identities, np.bincount(self.places.at), self._key.decode)

    def on_time(self) -> list[bytes]:
        """The instances with an event that is not late."""
        if not self.late:
            return self.places.identities
        return [*dict.fromkeys(identity for row, identity in enumerate(self.identities) if row not in self.late)]

    def last_rows(self) -> dict[bytes, int]:
        """The last applied row of each instance, by identity; in the order of their first events."""
        if self.failed:
            return {identity: row for row, identity in enumerate(self.identities) if row not in self.failed}
        last = np.empty(len(self.places.identities), np.int64)
        last[self.places.at] = np.arange(len(self.delivery))  # the last assignment wins
        return dict(zip(self.places.identities, last.tolist(), strict=True))

    def rows_of(self, identity: bytes) -> list[int]:
        """The rows of an instance; empty where only an earlier delivery touched it."""
        return self._by_identity.get(identity, [])

    def chains(self) -> list[tuple[bytes, list[int]]]:
        """Each instance that has rows that are not late, with those rows; in the order of their first rows."""
        on_time = {identity: [row for row in rows if row not in self.late] for identity, rows in self._by_identity.items()}
        return [(identity, rows) for identity, rows in on_time.items() if rows]

    @cached_property
    def _by_identity(self) -> dict[bytes, list[int]]:
        rows: dict[bytes, list[int]] = {}
        for row, identity in enumerate(self.identities):
            rows.setdefault(identity, []).append(row)
        return rows


class ColumnBatch(Batch):
    """A batch whose events came with columns, so that they are decoded only where one fails or comes late."""

    def __init__(self, key: KeyReader, delivery: Delivery, late: set[int], reads: Reads) -> None:
        super().__init__(key, delivery, late)
        self._reads = reads

    @cached_property
    def places(self) -> Places:
        return self._reads.places(self.delivery.columns)

    def rows(self, part: slice, time_of: Callable[[Any], Any]) -> Rows:
        delivery = self.delivery
        rows = np.arange(len(delivery))[part]
        return ColumnRows(delivery.columns, rows, self._reads.conditions, lambda row: delivery.events[row])

    def events_of(self, rows: Sequence[int]) -> Sequence[Any] | Mapping[int, Any]:
        return self.delivery.some(rows)
