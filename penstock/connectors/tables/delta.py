"""The sink for Delta tables, which appends rows, or merges them by key, exactly once for each micro-batch.

A micro-batch is one version of the table, so readers see all of it or nothing. The version records the batch's number under
a name made of run, sink and group (in the Delta protocol, a transaction identifier). By it a batch that is delivered again is
recognised, and if two drivers deliver one batch at once, Delta refuses the second.
"""

import math
from collections.abc import Collection, Iterator
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa

from penstock.app.stream import Sink
from penstock.connectors.declaration import WHOLE, Option, Options, SinkConnector, SinkContext
from penstock.connectors.sink import fenced
from penstock.connectors.tables.delta_log import meet
from penstock.connectors.tables.delta_place import STORAGE_OPTION, place_of, storage_of
from penstock.connectors.tables.kept import kept_rows, last_of_each
from penstock.connectors.tables.lake import OWNER, RULE, LakeSink, misfits
from penstock.connectors.tables.partitions import Judge, taken_apart, too_long, without_refused
from penstock.connectors.tables.rules import FRESH, refuse_alike, refuse_unfit
from penstock.connectors.tables.sink import quoted
from penstock.connectors.uri import Uri
from penstock.extras import needs
from penstock.runtime.output import SinkFiles
from penstock.storage import durable

with needs():
    from deltalake import CommitProperties, DeltaTable, QueryBuilder, Schema, Transaction, write_deltalake
    from deltalake.exceptions import CommitFailedError, TableNotFoundError
    from deltalake.schema import PrimitiveType

ALONE, AFTER = "penstock.alone", "penstock.after"
"""Commit properties of the versions that Penstock writes, about the version that each is based on: whether all its rows were
written by runs ("yes" or "no"), and its number."""

EMPTYING = "penstock.emptying"
"""The table property that is "yes" while a new owner removes the rows of a discarded run."""

NO_ROWS = {
    "ADD COLUMN",
    "ADD CONSTRAINT",
    "ADD FEATURE",
    "CHANGE COLUMN",
    "DELETE",
    "DROP CONSTRAINT",
    "OPTIMIZE",
    "SET TBLPROPERTIES",
    "UPDATE FIELD METADATA",
    "UPDATE TABLE METADATA",
    "VACUUM START",
    "VACUUM END",
}
"""Operations by which other writers change a table without adding a row to it."""

NEWEST = 5
"""How many versions are read at first to learn whether others have added rows; if these do not tell, all are read."""

NUMBER = "penstock row"
"""The column that numbers the rows in which `_violations` looks for refused ones."""

CONSTRAINT = "delta.constraints."
"""The prefix of table properties that hold a constraint."""

_GENERATED = {"delta.generationExpression", "delta.identity.start"}
"""Metadata by which the Delta protocol marks a column whose values the writer must generate."""

COMPACTED_EVERY = 100
"""The default number of micro-batches between two compactions."""


class DeltaSink(LakeSink[DeltaTable]):
    """A sink that writes to a Delta table; see `LakeSink`.

    Args:
        compacted_every: the number of micro-batches between two compactions; 0 for none.
        storage: settings of the object store, such as its endpoint; secrets belong in the environment.
    """

    KIND, FORM = "Delta", "delta:PLACE"

    def __init__(
        self, sink: Sink, at: str, files: SinkFiles, compacted_every: int, storage: dict[str, str], fresh: str | None
    ) -> None:
        uri, settings = f"delta:{at}", "&".join(f"{name}={value}" for name, value in sorted(storage.items()))
        super().__init__(sink, uri, f"{uri}?{settings}" if settings else uri, files, fresh)
        self._at, self._storage, self._compacted_every = at, storage, compacted_every
        self._alone_at: int | None = None
        """A version whose rows are known to be all written by runs."""
        refuse_alike(sink, "Delta", self._schema.names)

    def claim(self, run: str, discarded: Collection[str]) -> None:
        """Claim the table, and create it if there is none; an existing one must have a column for each field of the event."""
        with self._explained():
            table = self._table()
            if table is None:
                DeltaTable.create(
                    self._at,
                    self._schema,
                    configuration={OWNER: run},
                    storage_options=self._storage,
                    raise_if_key_not_exists=False,
                    commit_properties=CommitProperties({ALONE: "yes", AFTER: "-1"}),
                )
            else:
                self._take(table, run, discarded)
        self._run = run

    def reached(self, group: str) -> int | None:
        with self._explained():
            table = self._opened()
            version = table.transaction_version(self._application(group))
            return -1 if version is None or _is_restored(table) else version

    def read(self) -> list[Any]:
        """Return the events in the order in which the library returns the table's rows."""
        with self._explained():
            rows = self._opened().to_pyarrow_table(columns=self._schema.names).to_pylist(maps_as_pydicts="strict")
        return self._codec.from_rows(rows)

    # --- the table --------------------------------------------------------------------------------

    def _table(self) -> DeltaTable | None:
        meet(self._at, self._storage)
        try:
            return self._opened()
        except TableNotFoundError:
            return None

    def _opened(self) -> DeltaTable:
        return DeltaTable(self._at, storage_options=self._storage)

    def _owner_of(self, table: DeltaTable) -> str | None:
        return table.metadata().configuration.get(OWNER)

    def _is_discarded(self, table: DeltaTable, discarded: Collection[str]) -> bool:
        return super()._is_discarded(table, discarded) or _is_emptying(table)

    def _holds_others(self, table: DeltaTable) -> bool:
        return not self._is_alone(table) and table.count() > 0

    def _take(self, table: DeltaTable, run: str, discarded: Collection[str]) -> None:
        """Make the run the owner of a table, and remove a discarded run's rows. The owner changes first, so that commits of the
        discarded run's driver fail from then on. After a crash in between, the next start finds `EMPTYING`, and continues."""
        owner = self._refuse(table, run, discarded)
        emptying = self._is_discarded(table, discarded)
        if owner == run and not emptying:
            return
        self._own(table, run, emptying=emptying)
        if not emptying:
            return
        if self._fresh != "keep":
            self._refuse(table, run, discarded)  # others may have added rows before the owner changed
            table.delete(commit_properties=CommitProperties({ALONE: "yes", AFTER: str(table.version())}))
        self._own(table, run, emptying=False)

    def _own(self, table: DeltaTable, run: str, *, emptying: bool) -> None:
        properties = {OWNER: run, EMPTYING: "yes" if emptying else "no"}
        table.alter.set_table_properties(properties, raise_if_not_exists=False, commit_properties=self._properties(table))
        self._alone_at = None

    def _is_alone(self, table: DeltaTable) -> bool:
        """Whether runs have written all rows of a table's opened version."""
        version = table.version()
        if self._alone_at != version:
            newest = _alone_by(table.history(NEWEST))
            alone = _alone_by(table.history()) if newest is None else newest
            self._alone_at = version if alone else None
        return self._alone_at == version

    def _properties(self, table: DeltaTable, *transactions: Transaction) -> CommitProperties:
        """Return the commit properties of a new version that is based on the opened one."""
        keeps_rows = self._fresh == "keep" and _is_emptying(table) and table.count() > 0
        alone = "yes" if self._is_alone(table) and not keeps_rows else "no"
        return CommitProperties({ALONE: alone, AFTER: str(table.version())}, app_transactions=list(transactions) or None)

    def _refuse_unfit(self, table: DeltaTable) -> None:
        columns = {field.name: field for field in table.schema().fields}
        fields = {field.name: field for field in Schema.from_arrow(self._schema).fields}
        wrong = misfits(columns, fields, lambda ours, theirs: str(ours) == str(theirs))
        wrong += [f"column {name} is generated" for name, field in columns.items() if _GENERATED & field.metadata.keys()]
        wrong += [
            f"it is partitioned by {name}, whose bytes the library for Delta would change"
            for name in table.metadata().partition_columns
            if str(columns[name].type) == str(PrimitiveType("binary"))
        ]
        configuration = table.metadata().configuration
        if configuration.get("delta.columnMapping.mode", "none") != "none":
            wrong.append("its columns are mapped to other names in its files, which Penstock cannot write")
        if self._key and configuration.get("delta.appendOnly", "false").lower() == "true":
            wrong.append("it is append-only, and the sink has a key")
        refuse_unfit(self.files.name, self.uri, wrong)

    # --- versions ---------------------------------------------------------------------------------

    def _application(self, group: str) -> str:
        return f"penstock/{self._run}/{self.files.name}/{group}"

    def _commit(self, group: str, batch: int, staged: list[Path]) -> None:
        transaction = Transaction(self._application(group), batch)
        table = self._opened()
        if self._owner_of(table) != self._run:  # if the owner changes after this check, the commit below fails
            raise fenced(self.files, self.uri)
        commit, alone_at = self._properties(table, transaction), self._alone_at
        reached = table.transaction_version(transaction.app_id)
        if reached is not None and reached >= transaction.version:
            return self._make_durable(table, transaction.app_id)  # a driver that was killed may not have come so far
        if _may_refuse(table):
            self._put_what_is_taken(table, group, batch, staged, commit)
        else:
            self._put(table, kept_rows(staged, self._codec.schema, self._schema), commit)
        self._alone_at = None if alone_at is None or table.version() != alone_at + 1 else table.version()
        self._make_durable(table, transaction.app_id)

    def _may_pass(self, error: Exception) -> bool:
        return isinstance(error, CommitFailedError)

    def _put_what_is_taken(
        self, table: DeltaTable, group: str, batch: int, staged: list[Path], commit: CommitProperties
    ) -> None:
        """Write rows to a table that may refuse some of them; these become dead letters before the commit."""
        rows, refused = without_refused(
            kept_rows(staged, self._codec.schema, self._schema).read_all(), self._judges(table), self.uri
        )
        rows, violating = taken_apart(rows, _violations(table, rows), self.uri)
        self.write_refused(group, batch, [*refused, *violating])
        self._put(table, rows.to_reader(), commit)

    def _judges(self, table: DeltaTable) -> Iterator[tuple[str, Judge]]:
        """Yield the partition columns whose values may be no names of directories, and their judges."""
        for name in table.metadata().partition_columns:
            kind = self._schema.field(name).type if name in self._schema.names else pa.null()
            if pa.types.is_decimal(kind):
                yield name, _cannot_be_read
            if pa.types.is_string(kind):
                yield name, lambda text: None if text else "is empty, and would be read as null"
            if "://" not in self._at and pa.types.is_string(kind):
                yield name, too_long(name, str)
            if "://" not in self._at and pa.types.is_floating(kind):
                yield name, too_long(name, lambda number: f"{Decimal(number):f}" if math.isfinite(number) else str(number))

    def _put(self, table: DeltaTable, rows: pa.RecordBatchReader, commit: CommitProperties) -> None:
        if self._key:
            self._merge(table, last_of_each(rows.read_all(), self._key_types), commit)
        else:
            write_deltalake(table, rows, mode="append", schema_mode="merge", commit_properties=commit)

    def _merge(self, table: DeltaTable, rows: pa.Table, commit: CommitProperties) -> None:
        """Upsert rows by the sink's key; a key occurs at most once in ``rows``."""
        same_key = " AND ".join(f"ours.{quoted(name)} = theirs.{quoted(name)}" for name in self._key)
        merger = table.merge(rows, same_key, source_alias="ours", target_alias="theirs", commit_properties=commit)
        merger.when_matched_update_all().when_not_matched_insert_all().execute()

    def _tidy(self, batch: int) -> None:
        """Compact small files into few, and remove files that no version of the last week needs."""
        if not self._compacted_every or batch % self._compacted_every != self._compacted_every - 1:
            return
        table = self._opened()
        try:
            table.optimize.compact()
            table.vacuum(dry_run=False)
        except CommitFailedError:
            pass  # another writer was quicker; the next compaction will do it

    def _make_durable(self, table: DeltaTable, application: str) -> None:
        """Sync the last version of a group on a local disk, and what others have added since, so that it survives a power
        failure: its staged files will be removed next.
        """
        logs = Path(self._at) / "_delta_log"
        for version in range(table.version(), -1, -1) if "://" not in self._at else ():
            log = logs / f"{version:020}.json"
            if not log.exists():  # it is older than the table's logs are kept
                break
            actions = [msgspec.json.decode(line) for line in log.read_bytes().splitlines()]
            files = (Path(self._at) / unquote(action["add"]["path"]) for action in actions if "add" in action)
            added = [file for file in files if file.exists()]  # others may have removed it since
            for path in [*added, *{file.parent for file in added}, log, log.parent]:
                durable.sync_path(path)
            if any(action.get("txn", {}).get("appId") == application for action in actions):
                break


def _cannot_be_read(number: Decimal) -> str | None:
    """Refuse what the library for Delta would write as 0.-5, after which no version of the table can be read."""
    return "is a negative number with a fraction, by which the table could not be read" if number < 0 and number % 1 else None


def _may_refuse(table: DeltaTable) -> bool:
    """Whether a table may refuse rows because of their values: it is partitioned, or has constraints."""
    return bool(table.metadata().partition_columns or _constraints(table))


def _constraints(table: DeltaTable) -> dict[str, str]:
    """Return the conditions that a table's rows must meet, in SQL: constraints, and invariants of columns, by their names."""
    properties = table.metadata().configuration
    rules = {name.removeprefix(CONSTRAINT): rule for name, rule in properties.items() if name.startswith(CONSTRAINT)}
    for field in table.schema().fields:
        if "delta.invariants" in field.metadata:
            invariant = msgspec.json.decode(field.metadata["delta.invariants"])
            rules[field.name] = invariant["expression"]["expression"]
    return rules


def _violations(table: DeltaTable, rows: pa.Table) -> dict[int, str]:
    """Return the reasons for the rows that a table's constraints refuse, by the index of the row.

    The library's own SQL engine checks the rows, in a temporary table. By the Delta protocol a condition must be true, so rows
    for which it is null are refused, too.
    """
    rules = _constraints(table)
    if not rules or not len(rows):
        return {}
    for field in pa.schema(table.schema().to_arrow()):
        if field.name not in rows.column_names:
            rows = rows.append_column(field.name, pa.nulls(len(rows), field.type))
    reasons: dict[int, str] = {}
    with TemporaryDirectory() as place:
        write_deltalake(place, rows.append_column(NUMBER, pa.array(range(len(rows)), pa.int64())))
        engine = QueryBuilder().register("arrived", DeltaTable(place))
        for name, rule in rules.items():
            violating = engine.execute(f"SELECT {quoted(NUMBER)} FROM arrived WHERE ({rule}) IS NOT TRUE").read_all()
            for number in pa.table(violating)[NUMBER].to_pylist():
                reasons.setdefault(number, f"it is against the table's {name} ({rule})")
    return reasons


def _alone_by(history: list[dict[str, Any]]) -> bool | None:
    """Whether runs have written all rows of a table, by its newest versions, newest first; None if these do not tell.

    A version that Penstock wrote vouches for all up to the one that it is based on; between them, others may have added rows.
    """
    vouched = -2
    for commit in history:
        made_of = commit.get(AFTER)
        if made_of is not None and commit[ALONE] == "yes":
            vouched = max(vouched, int(made_of))
        elif made_of is not None or commit["operation"] not in NO_ROWS:
            return False
        if commit["version"] - 1 <= vouched:
            return True
    return None


def _is_restored(table: DeltaTable) -> bool:
    """Whether a table was restored to an earlier version since a run last wrote to it."""
    newest = table.history(NEWEST)
    commits = newest if any(AFTER in commit for commit in newest) else table.history()
    for commit in commits:
        if AFTER in commit or commit["operation"] == "RESTORE":
            return AFTER not in commit
    return False


def _is_emptying(table: DeltaTable) -> bool:
    return table.metadata().configuration.get(EMPTYING) == "yes"


def _bind(sink: Sink, uri: Uri, options: Options, context: SinkContext) -> DeltaSink:
    storage = storage_of(f"Sink {sink.name}", uri)
    files = SinkFiles(sink.name, "parquet", str(context.output), rule=RULE, key=sink.key)
    return DeltaSink(sink, place_of(uri), files, options.get("compact", COMPACTED_EVERY), storage, options.get("fresh"))


DELTA = SinkConnector(
    "delta",
    "PLACE",
    "a Delta table, appended, or merged by the sink's key",
    (
        Option("compact", f"after how many micro-batches small files are put together: {COMPACTED_EVERY}; 0 for never", WHOLE),
        FRESH,
        STORAGE_OPTION,
    ),
    reach="shared disk",
    bind=_bind,
)
