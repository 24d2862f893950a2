"""Looking up each event's row in a static table: a function of an event and a row."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Literal

from penstock.app.element import Emitted
from penstock.app.stream import Stream
from penstock.app.table import Table
from penstock.errors import TopologyError
from penstock.kinds.event import Event, field_types


class Lookup:
    """What is called for each event, with the row of its key, or None.

    Parameters
    ----------
    pair: the function of an event and a row. fields: of the event, whose values name the row.
    how: ``"inner"`` passes over events without a row.
    """

    def __init__(self, pair: Any, table: Table, fields: Sequence[str], how: Literal["left", "inner"]) -> None:
        self.table = table
        self._pair, self._inner = pair, how == "inner"
        one = attrgetter(*fields)
        self._key = one if len(fields) > 1 else lambda event: (one(event),)

    def prepare(self) -> None:
        """Before the events of a micro-batch: the table as it is now.

        Raises
        ------
        SourceError: it cannot be read.
        """
        self.table.follow()

    def __call__(self, event: Event) -> Emitted:
        row = self.table.get(self._key(event))
        return None if row is None and self._inner else self._pair(event, row)


def check_fields(name: str, stream: Stream[Any], fields: Sequence[str], table: Table, how: str) -> None:
    """See that events can be looked up.

    Raises
    ------
    TopologyError: they lack a field, or one has another type than the table's; or there is no such ``how``.
    """
    if how not in ("left", "inner"):
        raise TopologyError(f"Element {name}: how={how!r}; choose left, inner.")
    own, theirs = field_types(stream.event_type), field_types(table.row)
    for field, column in zip(fields, table.key, strict=True):
        if field not in own:
            raise TopologyError(f"Element {name}: {stream.name} has no field {field!r} to look up by; it has {', '.join(own)}.")
        if own[field] != theirs[column]:
            raise TopologyError(
                f"Element {name}: {field} of {stream.name} is {own[field]}, and {column} of the table is {theirs[column]}, so "
                "nothing would be found."
            )
