"""The events of one delivery to a container, and which of them were not applied."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from penstock.runtime.delivery import Delivery
from penstock.runtime.hottest import Hottest
from penstock.runtime.key import KeyReader, Places, first_rows
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
        self.without_result: set[int] = set()
        """Rows of events that were applied without the result that they made due."""

    @cached_property
    def identities(self) -> list[bytes]:
        """The identity of each event's instance."""
        return self._key.identities(self.delivery.events)

    @cached_property
    def places(self) -> Places:
        """The instances of the events."""
        numbers = {identity: number for number, identity in enumerate(dict.fromkeys(self.identities))}
        at = np.fromiter(map(numbers.__getitem__, self.identities), np.int64, len(self.identities))
        return Places(list(numbers), first_rows(at, len(numbers)), at)

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
        return Hottest.of(self.identities, self._key.decode)

    def on_time(self) -> Iterable[bytes]:
        """The instances with an event that is not late."""
        return self._first_rows

    def key_of(self, identity: bytes) -> Any:
        """The key of an instance."""
        return self._key.key_of(self.delivery.events[self._first_rows[identity]], identity)

    @cached_property
    def _first_rows(self) -> dict[bytes, int]:
        """The first row of each instance that is not late, by identity."""
        rows = range(len(self.identities) - 1, -1, -1)
        return {self.identities[row]: row for row in rows if row not in self.late}

    def last_rows(self) -> dict[bytes, int]:
        """The last applied row of each instance, by identity; in the order of their first events."""
        if not self.failed:
            return dict(zip(self.identities, range(len(self.identities)), strict=True))
        return {identity: row for row, identity in enumerate(self.identities) if row not in self.failed}

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
    def identities(self) -> list[bytes]:
        return [self.places.identities[place] for place in self.places.at.tolist()]

    @cached_property
    def places(self) -> Places:
        return self._reads.places(self.delivery.columns)

    def rows(self, part: slice, time_of: Callable[[Any], Any]) -> Rows:
        delivery = self.delivery
        rows = np.arange(len(delivery))[part]
        return ColumnRows(delivery.columns, rows, self._reads.conditions, lambda row: delivery.events[row])

    def events_of(self, rows: Sequence[int]) -> Sequence[Any] | Mapping[int, Any]:
        return self.delivery.some(rows)

    def hottest(self) -> Hottest:
        return Hottest.counted(self.places.identities, np.bincount(self.places.at).tolist(), self._key.decode)

    def on_time(self) -> Iterable[bytes]:
        return self._first_rows if self.late else self.places.identities

    def key_of(self, identity: bytes) -> Any:
        return self._key.decode(identity)

    def last_rows(self) -> dict[bytes, int]:
        if self.failed:
            return super().last_rows()
        last = np.empty(len(self.places.identities), np.int64)
        last[self.places.at] = np.arange(len(self.delivery))  # the last assignment wins
        return dict(zip(self.places.identities, last.tolist(), strict=True))
