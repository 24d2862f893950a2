"""Iceberg tables: rows appended, or merged by key, once for each micro-batch.

A micro-batch is one commit to the table's catalog, so readers see all of it or nothing. The same commit sets a property of
the table to the number of the batch that it has reached, under a name of the run, the sink and the group: a batch that is
delivered again is known by it, whatever has become of its snapshot. The catalog takes a commit only if the table is still
as it was when the number was looked at, so of two drivers that deliver one batch at once it refuses the second.
"""

import time
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.app.stream import Sink
from penstock.connectors.declaration import DURATION, Option, Options, SinkConnector, SinkContext
from penstock.connectors.sink import BoundSink, fenced, foreign, other_run, present
from penstock.connectors.tables.delta_place import reason_of
from penstock.connectors.tables.iceberg_place import CATALOG, IcebergPlace
from penstock.connectors.tables.kept import kept_rows, kept_schema, last_of_each
from penstock.connectors.tables.partitions import without_refused
from penstock.connectors.tables.rules import FRESH, refuse_nested_key, refuse_unfit
from penstock.connectors.uri import Uri
from penstock.errors import PenstockError, SinkError
from penstock.extras import needs
from penstock.runtime.codec import Codec
from penstock.runtime.output import SinkFiles, StagedFile

with needs():
    from pyiceberg.catalog import Catalog
    from pyiceberg.exceptions import (
        CommitFailedException,
        CommitStateUnknownException,
        NoSuchTableError,
        ServerError,
        ServiceUnavailableError,
        TableAlreadyExistsError,
        TooManyRequestsError,
    )
    from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, In, Reference
    from pyiceberg.table import Table, TableProperties, Transaction
    from pyiceberg.table.snapshots import Operation, Snapshot
    from pyiceberg.transforms import IdentityTransform

OWNER = "penstock.run"
"""The property of a table that says whose it is."""

ALONE = "penstock.alone"
"""What each snapshot of ours says: whether all rows in it are of runs. It is taken only if nothing came between it and its
parent.
"""

REACHED = "penstock.reached."
"""Properties that begin so say which batch the table has reached."""

TIDY = {TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true", TableProperties.METADATA_PREVIOUS_VERSIONS_MAX: "100"}
"""Of a table that is made here: each commit leaves a file that only the next one needs."""

TRIES, PAUSE_S = 20, 0.05
"""How often a commit that another writer was quicker than is tried again, and the first pause before it."""

PASSING = (CommitFailedException, CommitStateUnknownException, ServerError, ServiceUnavailableError, TooManyRequestsError)
"""After these it is tried again, which is safe even if the commit did arrive: the table is looked at first."""

EXPIRED_EVERY, KEPT_S = 100, 7 * 86400.0
"""After how many micro-batches old snapshots are let go of, and how old they must be."""

warnings.filterwarnings("ignore", "Delete operation did not match any records")


class IcebergSink(BoundSink):
    """An Iceberg table. Durations are kept as seconds.

    Parameters
    ----------
    kept_s: how long snapshots are kept, in seconds.
    fresh: what becomes of rows that may be others' where a run is discarded: ``keep`` or ``empty``; refused unless given.
    """

    def __init__(self, sink: Sink, at: IcebergPlace, files: SinkFiles, kept_s: float, fresh: str | None) -> None:
        self.files, self.uri = files, str(at)
        self.place = at.place
        self._at, self._key, self._kept_s = at, sink.key, kept_s
        self.keeps_last = bool(sink.key)
        self._codec = Codec(sink.stream.event_type)
        self._schema = kept_schema(sink.name, "Iceberg", self._codec.schema)
        self._fresh, self._run = fresh, ""
        refuse_nested_key(sink, self._codec.schema)

    def inspect(self, run: str, discarded: Collection[str]) -> None:
        with self._explained():
            table = self._table()
            if table is not None:
                self._refuse(table, run, discarded)

    def claim(self, run: str, discarded: Collection[str]) -> None:
        """A table that is there already must have the event's fields as columns."""
        with self._explained():
            table = self._table() or self._made(run)
            owner = self._refuse(table, run, discarded)
            if owner != run:
                self._take(table, run, emptied=owner in discarded and self._fresh != "keep")
        self._run = run

    def deliver(self, group: str, batch: int, files: Sequence[StagedFile]) -> None:
        staged = present(files)
        if staged:
            with self._explained():
                self._write(group, batch, staged)
                if batch % EXPIRED_EVERY == EXPIRED_EVERY - 1:
                    self._expire()
        for path in staged:
            path.unlink(missing_ok=True)

    def reached(self, group: str) -> int | None:
        with self._explained():
            table = self._opened()
            return -1 if self._is_rolled_back(table, group) else self._reached(table, group)

    def read(self) -> list[Any]:
        """In the order of the table's files."""
        with self._explained():
            rows = self._opened().scan(selected_fields=tuple(self._schema.names)).to_arrow()
        return self._codec.from_rows(rows.to_pylist(maps_as_pydicts="strict"))

    # --- the table --------------------------------------------------------------------------------

    @cached_property
    def _catalog(self) -> Catalog:
        return self._at.open()

    def _opened(self) -> Table:
        return self._catalog.load_table(self._at.table)

    def _table(self) -> Table | None:
        try:
            return self._opened()
        except NoSuchTableError:
            return None

    def _made(self, run: str) -> Table:
        self._catalog.create_namespace_if_not_exists(self._at.namespace)
        try:
            return self._catalog.create_table(self._at.table, self._schema, properties={OWNER: run, **TIDY})
        except TableAlreadyExistsError:  # another driver of this run was quicker
            return self._opened()

    def _refuse(self, table: Table, run: str, discarded: Collection[str]) -> str | None:
        """See that a table can be the run's; returns whose it is."""
        owner = table.properties.get(OWNER)
        if owner not in (None, run) and owner not in discarded:
            raise SinkError(other_run(self.files, self.uri, "iceberg:CATALOG/NAMESPACE.TABLE"))
        self._refuse_unfit(table)
        if owner in discarded and self._fresh is None and not _is_alone(table) and table.scan().count():
            raise foreign(self.files, self.uri, "holds rows that were there before the run, or that another program has added")
        return owner

    def _take(self, table: Table, run: str, *, emptied: bool) -> None:
        """With a snapshot in any case, so that a driver of the discarded run that is about to commit is refused."""
        old = [name for name in table.properties if name.startswith(REACHED)]
        kept = bool(table.properties.get(OWNER)) and not emptied and bool(table.scan().count())
        alone = "yes" if emptied or (_is_alone(table) and not kept) else "no"
        with table.transaction() as change:
            if emptied:
                change.delete(AlwaysTrue())
            change.append(self._schema.empty_table(), snapshot_properties={ALONE: alone})
            change.remove_properties(*old)
            change.set_properties({OWNER: run})

    def _refuse_unfit(self, table: Table) -> None:
        """Refuse a table that could not take the events as they are."""
        there = {field.name: field for field in table.schema().as_arrow()}
        ours = {field.name: field for field in self._schema}
        both = [(there[name], field) for name, field in ours.items() if name in there]
        wrong = [f"column {name} is missing" for name in ours if name not in there]
        wrong += [
            f"column {theirs.name} is {theirs.type} and not {field.type}"
            for theirs, field in both
            if not _same(field.type, theirs.type)
        ]
        wrong += [
            f"column {theirs.name} is never null, and the field may be"
            for theirs, field in both
            if field.nullable and not theirs.nullable
        ]
        wrong += [f"column {name} is never null, and no field" for name in there.keys() - ours if not there[name].nullable]
        refuse_unfit(self.files.name, self.uri, wrong)

    # --- commits ----------------------------------------------------------------------------------

    def _mark(self, group: str) -> str:
        return f"{REACHED}{self._run}.{self.files.name}.{group}"

    def _reached(self, table: Table, group: str) -> int:
        return int(table.properties.get(self._mark(group), -1))

    def _is_rolled_back(self, table: Table, group: str) -> bool:
        """Whether a table was set back to a snapshot before the last one of ours, as far as snapshots are kept."""
        ours = {"penstock.run": self._run, "penstock.sink": self.files.name, "penstock.group": group}
        made = [
            snapshot
            for snapshot in table.snapshots()
            if snapshot.summary is not None and all(snapshot.summary.get(name) == value for name, value in ours.items())
        ]
        last = max(made, key=lambda snapshot: snapshot.sequence_number or 0, default=None)
        return last is not None and last.snapshot_id not in {one.snapshot_id for one in _lineage(table)}

    def _write(self, group: str, batch: int, staged: list[Path]) -> None:
        """Make files a commit to the table, unless one holds them already."""
        told = {"penstock.run": self._run, "penstock.sink": self.files.name, "penstock.group": group}
        for attempt in range(TRIES):
            table = self._opened()
            if table.properties.get(OWNER) != self._run:
                raise fenced(self.files, self.uri)
            if self._reached(table, group) >= batch:
                return
            told[ALONE] = "yes" if _is_alone(table) else "no"
            # The library's own way to try again would not look at what the table has reached meanwhile.
            table.metadata.properties[TableProperties.COMMIT_NUM_RETRIES] = "0"
            rows = self._taken(table, group, batch, kept_rows(staged, self._codec.schema, self._schema).read_all())
            try:
                with table.transaction() as change:
                    change.set_properties({self._mark(group): str(batch)})
                    self._stage(table, change, rows, {**told, "penstock.batch": str(batch)})
            except Exception as error:
                passing = isinstance(error, PASSING) or type(error).__name__ == "OperationalError"  # SQLAlchemy's
                if not passing or attempt == TRIES - 1:
                    raise
                time.sleep(min(2.0, PAUSE_S * 2**attempt))
            else:
                return

    def _taken(self, table: Table, group: str, batch: int, rows: pa.Table) -> pa.Table:
        """Rows without those whose partition cannot be named, which become dead letters before the commit."""
        ids = [field.source_id for field in table.spec().fields if isinstance(field.transform, IdentityTransform)]
        if not ids:
            return rows
        names = [table.schema().find_column_name(number) or "" for number in ids]
        is_local = table.location().partition("://")[0] in (table.location(), "file")
        rows, refused = without_refused(rows, names, self.uri, is_local=is_local, empty_is_null=False)
        if self.refusals is not None:
            self.refusals.write(group, batch, refused)
        elif refused:
            raise SinkError(f"Sink {self.files.name}: {refused[0].error}.")
        return rows

    def _stage(self, table: Table, change: Transaction, rows: pa.Table, told: dict[str, str]) -> None:
        """Append rows, or put them in place of those of their keys; of a key's rows the last one counts."""
        if not self._key:
            change.append(rows, snapshot_properties=told)
            return
        rows = last_of_each(rows, self._key)
        terms: list[BooleanExpression] = [
            In(term=Reference(name), values=rows[name].unique().to_pylist()) for name in self._key
        ]
        if len(terms) == 1:
            change.overwrite(rows, terms[0], snapshot_properties=told)
            return
        near = And(*terms)
        stay = _without(table.scan(near).to_arrow(), rows, self._key)
        stay = stay.cast(pa.schema([rows.schema.field(f.name) if f.name in self._schema.names else f for f in stay.schema]))
        change.overwrite(pa.concat_tables([stay, rows], promote_options="default"), near, snapshot_properties=told)

    def _expire(self) -> None:
        """Let go of old snapshots: a commit writes the list of them all."""
        before = datetime.now(UTC) - timedelta(seconds=self._kept_s)
        with suppress(*PASSING):  # another writer was quicker: it is done the next time
            self._opened().maintenance.expire_snapshots().older_than(before).commit()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except PenstockError:
            raise
        except Exception as error:  # the library's errors, and those of catalogs' and stores' own, are of no one tree
            raise SinkError(
                f"Sink {self.files.name}: {self.uri} cannot be written or read ({reason_of(error)}); mend that and run again, "
                "or choose another."
            ) from error


def _lineage(table: Table) -> Iterator[Snapshot]:
    """The current snapshot, and those that it was made of, as far as they are kept."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)


def _is_alone(table: Table) -> bool:
    """Whether all rows of a table are of runs: the last snapshot of ours says so, and others have since put none in."""
    for snapshot in _lineage(table):
        if snapshot.summary is not None and snapshot.summary.get(ALONE) is not None:
            return snapshot.summary.get(ALONE) == "yes"
        if snapshot.summary is None or snapshot.summary.operation not in (Operation.REPLACE, Operation.DELETE):
            return False
    return table.current_snapshot() is None


def _same(ours: pa.DataType, theirs: pa.DataType) -> bool:
    """Whether a column of a type takes values of ours as they are."""
    if not pa.types.is_nested(ours):
        return str(theirs).removeprefix("large_") == str(ours)
    try:
        pa.nulls(0, ours).cast(theirs)
    except pa.ArrowException:
        return False
    return True


def _without(rows: pa.Table, others: pa.Table, key: Sequence[str]) -> pa.Table:
    """Rows whose key no other row has."""
    names = list(key)
    kinds = pa.schema([others.schema.field(name) for name in names])
    numbered = rows.select(names).cast(kinds).append_column("", pa.array(range(len(rows)), pa.int64()))
    return rows.take(numbered.join(others.select(names), names, join_type="left anti")[""].sort())


def _bind(sink: Sink, uri: Uri, options: Options, context: SinkContext) -> IcebergSink:
    at = IcebergPlace.of(f"Sink {sink.name}", uri)
    files = SinkFiles(sink.name, "parquet", str(context.output), key=sink.key)
    return IcebergSink(sink, at, files, options.get("keep", KEPT_S), options.get("fresh"))


ICEBERG = SinkConnector(
    "iceberg",
    "CATALOG/NAMESPACE.TABLE",
    "an Iceberg table, appended, or merged by the sink's key",
    (
        FRESH,
        Option("keep", "how long snapshots are kept at least: a week unless given", DURATION),
        Option(f"{CATALOG}NAME", "a property of the catalog's, as `catalog.uri`"),
    ),
    reach="shared disk",
    bind=_bind,
)
