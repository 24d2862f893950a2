"""The sink for Iceberg tables, which appends rows, or merges them by key, exactly once for each micro-batch.

A micro-batch is one commit to the table's catalog, so readers see all of it or nothing. The commit also sets a property of
the table to the batch's number, under a name made of run, sink and group. By it a batch that is delivered again is recognised,
even if its snapshot is gone. The catalog accepts a commit only if the table has not changed since the property was read, so
if two drivers deliver one batch at once, it refuses the second.
"""

import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.app.stream import Sink
from penstock.connectors.declaration import DURATION, Option, Options, SinkConnector, SinkContext
from penstock.connectors.sink import fenced
from penstock.connectors.tables.iceberg_place import CATALOG, IcebergPlace
from penstock.connectors.tables.kept import kept_rows, last_of_each
from penstock.connectors.tables.lake import OWNER, RULE, LakeSink, misfits
from penstock.connectors.tables.partitions import Judge, too_long, without_refused
from penstock.connectors.tables.rules import FRESH, refuse_unfit
from penstock.connectors.uri import Uri
from penstock.extras import needs
from penstock.runtime.output import SinkFiles

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
    from pyiceberg.transforms import IdentityTransform, Transform, TruncateTransform, VoidTransform
    from pyiceberg.types import DoubleType, FloatType, IcebergType

ALONE = "penstock.alone"
"""The property of each snapshot that Penstock writes: whether all rows in it were written by runs. It holds for certain, as the
catalog refuses the commit if another one came between the snapshot and its parent.
"""

REACHED = "penstock.reached."
"""The prefix of table properties that hold the number of the last batch that a group has delivered."""

TIDY = {TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true", TableProperties.METADATA_PREVIOUS_VERSIONS_MAX: "100"}
"""Properties of tables that Penstock creates. They limit old metadata files, of which each commit leaves one."""

PASSING = (CommitFailedException, CommitStateUnknownException, ServerError, ServiceUnavailableError, TooManyRequestsError)
"""Errors after which a commit is tried again. That is safe even if the commit succeeded, as each try first reads the table."""

EXPIRED_EVERY, KEPT_S = 100, 7 * 86400.0
"""The number of micro-batches between two removals of old snapshots, and the default age at which they are removed."""

warnings.filterwarnings("ignore", "Delete operation did not match any records")


class IcebergSink(LakeSink[Table]):
    """A sink that writes to an Iceberg table; see `LakeSink`.

    Args:
        kept_s: how long snapshots are kept, in seconds.
    """

    KIND, FORM = "Iceberg", "iceberg:CATALOG/NAMESPACE.TABLE"

    def __init__(self, sink: Sink, at: IcebergPlace, files: SinkFiles, kept_s: float, fresh: str | None) -> None:
        super().__init__(sink, str(at), at.place, files, fresh)
        self._at, self._kept_s, self._found = at, kept_s, ""

    @property
    def spot(self) -> str:
        return self._found or self.place

    def claim(self, run: str, discarded: Collection[str]) -> None:
        """Claim the table, and create it if there is none; an existing one must have a column for each field of the event."""
        with self._explained():
            table = self._table() or self._made(run)
            owner = self._refuse(table, run, discarded)
            if owner != run:
                self._take(table, run, emptied=owner in discarded and self._fresh != "keep")
        self._run, self._found = run, f"table {table.metadata.table_uuid}"

    def reached(self, group: str) -> int | None:
        with self._explained():
            table = self._opened()
            return -1 if self._is_rolled_back(table, group) else self._reached(table, group)

    def read(self) -> list[Any]:
        """Return the events in the order of the table's files."""
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

    def _owner_of(self, table: Table) -> str | None:
        return table.properties.get(OWNER)

    def _holds_others(self, table: Table) -> bool:
        return not _is_alone(table) and bool(table.scan().count())

    def _take(self, table: Table, run: str, *, emptied: bool) -> None:
        """Make the run the owner of a table. This always adds a snapshot, so that a discarded run's driver cannot commit."""
        old = [name for name in table.properties if name.startswith(REACHED)]
        keeps_rows = bool(table.properties.get(OWNER)) and not emptied and bool(table.scan().count())
        alone = "yes" if emptied or (_is_alone(table) and not keeps_rows) else "no"
        with table.transaction() as change:
            if emptied:
                change.delete(AlwaysTrue())
            change.append(self._schema.empty_table(), snapshot_properties={ALONE: alone})
            change.remove_properties(*old)
            change.set_properties({OWNER: run})

    def _refuse_unfit(self, table: Table) -> None:
        columns = {field.name: field for field in table.schema().as_arrow()}
        fields = {field.name: field for field in self._schema}
        wrong = misfits(columns, fields, _same)
        for part in table.spec().fields:
            if isinstance(part.transform, VoidTransform) and table.schema().find_field(part.source_id).required:
                name = table.schema().find_column_name(part.source_id)
                wrong.append(f"it was partitioned by {name}, which is never null, and so the library cannot write it")
        refuse_unfit(self.files.name, self.uri, wrong)

    # --- commits ----------------------------------------------------------------------------------

    def _mark(self, group: str) -> str:
        return f"{REACHED}{self._run}.{self.files.name}.{group}"

    def _reached(self, table: Table, group: str) -> int:
        return int(table.properties.get(self._mark(group), -1))

    def _is_rolled_back(self, table: Table, group: str) -> bool:
        """Whether a table was set back to a snapshot before the group's last one; False if that has expired."""
        summary = {"penstock.run": self._run, "penstock.sink": self.files.name, "penstock.group": group}
        delivered = [
            snapshot
            for snapshot in table.snapshots()
            if snapshot.summary is not None and all(snapshot.summary.get(name) == value for name, value in summary.items())
        ]
        last = max(delivered, key=lambda snapshot: snapshot.sequence_number or 0, default=None)
        return last is not None and last.snapshot_id not in {snapshot.snapshot_id for snapshot in _lineage(table)}

    def _commit(self, group: str, batch: int, staged: list[Path]) -> None:
        summary = {"penstock.run": self._run, "penstock.sink": self.files.name, "penstock.group": group}
        table = self._opened()
        if self._owner_of(table) != self._run:
            raise fenced(self.files, self.uri)
        if self._reached(table, group) >= batch:
            return
        summary |= {ALONE: "yes" if _is_alone(table) else "no", "penstock.batch": str(batch)}
        # The library's own retries would not check whether another driver has delivered the batch meanwhile.
        table.metadata.properties[TableProperties.COMMIT_NUM_RETRIES] = "0"
        rows = self._taken(table, group, batch, kept_rows(staged, self._codec.schema, self._schema).read_all())
        with table.transaction() as change:
            change.set_properties({self._mark(group): str(batch)})
            self._stage(table, change, rows, summary)

    def _may_pass(self, error: Exception) -> bool:
        return isinstance(error, PASSING) or type(error).__name__ == "OperationalError"  # SQLAlchemy's

    def _taken(self, table: Table, group: str, batch: int, rows: pa.Table) -> pa.Table:
        """Return the rows that the table can store; those whose partition cannot be named become dead letters."""
        rows, refused = without_refused(rows, _judges(table), self.uri)
        self.write_refused(group, batch, refused)
        return rows

    def _stage(self, table: Table, change: Transaction, rows: pa.Table, told: dict[str, str]) -> None:
        """Append rows, or replace the table's rows with the same keys; only the last row of each key is written."""
        if not self._key:
            change.append(rows, snapshot_properties=told)
            return
        rows = last_of_each(rows, self._key_types)
        terms: list[BooleanExpression] = [
            In(term=Reference(name), values=rows[name].unique().to_pylist()) for name in self._key
        ]
        if len(terms) == 1:
            change.overwrite(rows, terms[0], snapshot_properties=told)
            return
        # The terms together also match other combinations of the fields' values; those rows are written back unchanged.
        near = And(*terms)
        rest = _without(table.scan(near).to_arrow(), rows, self._key)
        rest = rest.cast(pa.schema([rows.schema.field(f.name) if f.name in self._schema.names else f for f in rest.schema]))
        change.overwrite(pa.concat_tables([rest, rows], promote_options="default"), near, snapshot_properties=told)

    def _tidy(self, batch: int) -> None:
        """Remove old snapshots, since each commit writes a list of all snapshots."""
        if batch % EXPIRED_EVERY != EXPIRED_EVERY - 1:
            return
        now = datetime.now(UTC)
        before = now - timedelta(seconds=min(self._kept_s, now.timestamp()))  # none is older than the epoch
        with suppress(*PASSING):  # another writer was quicker; the next call will remove them
            self._opened().maintenance.expire_snapshots().older_than(before).commit()


def _lineage(table: Table) -> Iterator[Snapshot]:
    """Yield the current snapshot and its ancestors, newest first, up to the first that has expired."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)


def _is_alone(table: Table) -> bool:
    """Whether runs have written all rows of a table: Penstock's last snapshot says so, and others have added none since."""
    for snapshot in _lineage(table):
        if snapshot.summary is not None and snapshot.summary.get(ALONE) is not None:
            return snapshot.summary.get(ALONE) == "yes"
        if snapshot.summary is None or snapshot.summary.operation not in (Operation.REPLACE, Operation.DELETE):
            return False
    return table.current_snapshot() is None


def _judges(table: Table) -> Iterator[tuple[str, Judge]]:
    """Yield the columns by whose values a table is partitioned, if some values may make no name of a partition, and a judge."""
    is_local = table.location().partition("://")[0] in (table.location(), "file")
    for part in table.spec().fields:
        name, kind = table.schema().find_column_name(part.source_id) or "", table.schema().find_type(part.source_id)
        if not isinstance(part.transform, IdentityTransform | TruncateTransform):
            continue  # a bucket, or a part of a time, has a short name
        if isinstance(kind, FloatType | DoubleType):
            yield name, lambda number: "is NaN, by which the library for Iceberg cannot part rows" if number != number else None
        elif is_local:
            yield name, too_long(part.name, partial(_text, part.transform, kind))


def _text(transform: Transform[Any, Any], kind: IcebergType, value: Any) -> str:
    return transform.to_human_string(kind, transform.transform(kind)(value))


def _same(ours: pa.DataType, theirs: pa.DataType) -> bool:
    """Whether a column of type ``theirs`` stores values of type ``ours`` unchanged."""
    if not pa.types.is_nested(ours):
        return str(theirs).removeprefix("large_") == str(ours)
    try:
        pa.nulls(0, ours).cast(theirs)
    except pa.ArrowException:
        return False
    return True


def _without(rows: pa.Table, others: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the rows whose key occurs in none of the other rows."""
    names = list(key)
    kinds = pa.schema([others.schema.field(name) for name in names])
    numbered = rows.select(names).cast(kinds).append_column("", pa.array(range(len(rows)), pa.int64()))
    return rows.take(numbered.join(others.select(names), names, join_type="left anti")[""].sort())


def _bind(sink: Sink, uri: Uri, options: Options, context: SinkContext) -> IcebergSink:
    at = IcebergPlace.of(f"Sink {sink.name}", uri)
    files = SinkFiles(sink.name, "parquet", str(context.output), rule=RULE, key=sink.key)
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
