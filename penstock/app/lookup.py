"""The body of an element that looks up each event's row in a static table."""

from collections.abc import Sequence
from copy import deepcopy
from operator import attrgetter
from typing import Any, Literal

from penstock.app.element import Emitted
from penstock.app.stream import Stream
from penstock.app.table import Table
from penstock.errors import TopologyError
from penstock.kinds.annotations import plain
from penstock.kinds.event import Event, field_types
from penstock.kinds.fields import is_immutable


class Lookup:
    """A body that calls a function for each event, with the table's row for the event's key, or None.

    Args:
        pair: the function of an event and a row.
        fields: the event's fields whose values identify the row.
        how: ``"inner"`` skips events without a row.
    """

    def __init__(self, pair: Any, table: Table, fields: Sequence[str], how: Literal["left", "inner"]) -> None:
        self.table = table
        self._pair, self._inner = pair, how == "inner"
        self._copies = not is_immutable(table.row)
        read = attrgetter(*fields)
        self._key = read if len(fields) > 1 else lambda event: (read(event),)

    def prepare(self) -> None:
        """Read the table again, before the events of a micro-batch, if it has changed.

        Raises:
            SourceError: the table cannot be read.
        """
        self.table.follow()

    def __call__(self, event: Event) -> Emitted:
        row = self.table.get(self._key(event))
        if row is not None and self._copies:  # a function that changes its row must not change that of other events
            row = deepcopy(row)
        return None if row is None and self._inner else self._pair(event, row)


def check_fields(name: str, stream: Stream[Any], fields: Sequence[str], table: Table, how: str) -> None:
    """Check that the events of a stream can be looked up in a table.

    Raises:
        TopologyError: the events lack a field, a field's type differs from that of its column, or ``how`` is not valid.
    """
    if how not in ("left", "inner"):
        raise TopologyError(f"Element {name}: how={how!r}; choose left, inner.")
    own, theirs = field_types(stream.event_type), field_types(table.row)
    for field, column in zip(fields, table.key, strict=True):
        if field not in own:
            raise TopologyError(f"Element {name}: {stream.name} has no field {field!r} to look up by; it has {', '.join(own)}.")
        if plain(own[field]) != plain(theirs[column]):  # None is found in no table
            raise TopologyError(
                f"Element {name}: {field} of {stream.name} is {own[field]}, and {column} of the table is {theirs[column]}, so "
                "nothing would be found."
            )
