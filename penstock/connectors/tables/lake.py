"""What the sinks for tables of a lake have in common: one run owns a table, and a micro-batch is one commit to it."""

import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from penstock.app.stream import Sink
from penstock.connectors.sink import BoundSink, foreign, other_run, present_rows
from penstock.connectors.tables import rules
from penstock.connectors.tables.delta_place import reason_of
from penstock.connectors.tables.kept import kept_schema
from penstock.connectors.tables.rules import refuse_nested_key
from penstock.errors import PenstockError, SinkError
from penstock.kinds.event import field_types
from penstock.runtime.codec import Codec
from penstock.runtime.output import SinkFiles, StagedFile

Table = TypeVar("Table")

RULE = f"{rules.__name__}:{rules.refuse_long.__name__}"
"""What workers refuse before it is staged for such a table."""

OWNER = "penstock.run"
"""The table property that names the run that owns the table."""

TRIES, PAUSE_S = 20, 0.05
"""How often a commit is tried if other writers are quicker, and the pause before the second try."""


class LakeSink(BoundSink, Generic[Table]):
    """A sink that writes to a table of a lake. Durations are stored as seconds.

    Args:
        uri: names the table in messages.
        place: names it in the records of the run.
        fresh: ``keep`` or ``empty`` a table in which others may have rows when a run is discarded; None to refuse such a table.
    """

    KIND: ClassVar[str]
    FORM: ClassVar[str]
    """How the place of such a table is written."""

    def __init__(self, sink: Sink, uri: str, place: str, files: SinkFiles, fresh: str | None) -> None:
        self.files, self.uri, self.place = files, uri, place
        self._key, self.keeps_last = sink.key, bool(sink.key)
        self._codec = Codec(sink.stream.event_type)
        self._key_types = {name: field_types(sink.stream.event_type, annotated=True)[name] for name in sink.key}
        self._schema = kept_schema(sink.name, self.KIND, self._codec.schema)
        self._fresh, self._run = fresh, ""
        refuse_nested_key(sink, self._codec.schema)

    def inspect(self, run: str, discarded: Collection[str]) -> None:
        with self._explained():
            table = self._table()
            if table is not None:
                self._refuse(table, run, discarded)

    def deliver(self, group: str, batch: int, files: Sequence[StagedFile]) -> None:
        staged = present_rows(self.files, files, self._codec.schema.names)
        if staged:
            with self._explained():
                self._write(group, batch, staged)
                self._tidy(batch)
        for path in staged:
            path.unlink(missing_ok=True)

    @abstractmethod
    def _table(self) -> Table | None:
        """Return the table as it now is; None if there is none."""

    @abstractmethod
    def _owner_of(self, table: Table) -> str | None:
        """Return the run that owns a table."""

    @abstractmethod
    def _refuse_unfit(self, table: Table) -> None:
        """Refuse a table that cannot store the events unchanged."""

    @abstractmethod
    def _holds_others(self, table: Table) -> bool:
        """Whether a table has rows, of which some may be of no run."""

    @abstractmethod
    def _commit(self, group: str, batch: int, staged: list[Path]) -> None:
        """Commit staged files to the table, unless a commit holds the batch already; raise if another run owns the table."""

    @abstractmethod
    def _may_pass(self, error: Exception) -> bool:
        """Whether a commit that has failed may succeed when it is tried again."""

    @abstractmethod
    def _tidy(self, batch: int) -> None:
        """Remove, after some micro-batches, what is no longer needed."""

    def _is_discarded(self, table: Table, discarded: Collection[str]) -> bool:
        """Whether a table holds rows of a discarded run, which are to be removed."""
        return self._owner_of(table) in discarded

    def _refuse(self, table: Table, run: str, discarded: Collection[str]) -> str | None:
        """Check that the run may own a table; returns the table's present owner."""
        owner = self._owner_of(table)
        if owner not in (None, run) and owner not in discarded:
            raise SinkError(other_run(self.files, self.uri, self.FORM))
        self._refuse_unfit(table)
        if self._is_discarded(table, discarded) and self._fresh is None and self._holds_others(table):
            raise foreign(self.files, self.uri, "holds rows that were there before the run, or that another program has added")
        return owner

    def _write(self, group: str, batch: int, staged: list[Path]) -> None:
        """Commit staged files, and try it again if other writers are quicker."""
        for attempt in range(TRIES):
            try:
                return self._commit(group, batch, staged)
            except Exception as error:
                if attempt == TRIES - 1 or not self._may_pass(error):
                    raise
            time.sleep(min(2.0, PAUSE_S * 2**attempt))

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except PenstockError:
            raise
        except Exception as error:  # errors of the libraries, catalogs and stores share no base class
            raise SinkError(
                f"Sink {self.files.name}: {self.uri} cannot be written or read ({reason_of(error)}); mend that and run again, "
                "or choose another place."
            ) from error


def misfits(columns: Mapping[str, Any], fields: Mapping[str, Any], same: Callable[[Any, Any], bool]) -> list[str]:
    """Say why columns cannot hold the fields of an event.

    Args:
        columns, fields: what has a ``type`` and is ``nullable`` or not, by name.
        same: whether a column of the second type stores values of the first unchanged.
    """
    both = [(columns[name], field) for name, field in fields.items() if name in columns]
    wrong = [f"column {name} is missing" for name in fields if name not in columns]
    wrong += [
        f"column {field.name} is {column.type} and not {field.type}"
        for column, field in both
        if not same(field.type, column.type)
    ]
    wrong += [
        f"column {name} is never null, and the event has no such field"
        for name in columns.keys() - fields
        if not columns[name].nullable
    ]
    return wrong + [
        f"column {field.name} is never null, and the field may be"
        for column, field in both
        if field.nullable and not column.nullable
    ]
