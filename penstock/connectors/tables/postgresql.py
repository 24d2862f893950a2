"""Tables in PostgreSQL, loaded with COPY."""

import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlencode

from penstock.app.stream import Sink
from penstock.connectors.declaration import Option, Options, SinkConnector, SinkContext
from penstock.connectors.tables import rules
from penstock.connectors.tables.sink import Cursor, Row, RowsRefused, Table, TableSink, Unavailable, literal, quoted
from penstock.connectors.uri import Uri
from penstock.errors import SinkError
from penstock.extras import needs
from penstock.kinds.kind import Kind
from penstock.masked import shown
from penstock.runtime.output import SinkFiles

with needs():
    import psycopg


ARRIVED, ROW = 'pg_temp."penstock arrived"', '"penstock row"'
"""The temporary table of rows that are to be upserted, and its column of their order."""

OF_ROWS = ("22", "23", "44", "P0")
"""Classes of SQLSTATE that concern what is in a row: data, constraints, views' checks, and what triggers raise."""
ANYBODYS, SERVERS = "56789IJKLMNOQRSTUVWXYZ", ("53", "54", "55", "57", "58", "72", "XX")
"""How classes begin that the standard leaves to others, as triggers, which raise them for a row; and PostgreSQL's own of
them.
"""
TOO_LONG = "54000"
"""Of a row that no index, or no table, can hold."""
OUTAGES = ("08", "40", "53", "57", "58")
"""Classes that pass, or that somebody will mend: the connection, a deadlock, resources, an operator, the system."""

LONGEST_NAME = 63
"""Bytes."""

TAKEN_BY = {
    "boolean": {"boolean"},
    "bigint": {"bigint", "integer", "smallint", "numeric", "text"},
    "double precision": {"double precision", "numeric"},
    "numeric": {"numeric", "text"},
    "text": {"text", "character varying", "citext", "uuid", "inet", "cidr", "macaddr", "xml", "ltree"},
    "bytea": {"bytea"},
    "timestamptz": {"timestamp with time zone"},
    "timestamp": {"timestamp without time zone"},
    "date": {"date"},
    "interval": {"interval"},
    "jsonb": {"jsonb", "json", "text"},
}
"""For each type of ours, those of columns that take its values as they are, or refuse a value."""

COLUMNS = """
SELECT attname, format_type(atttypid, atttypmod),
    format_type(coalesce(nullif(typbasetype, 0), atttypid), CASE WHEN typbasetype = 0 THEN atttypmod ELSE typtypmod END),
    typtype = 'e', attnotnull, atthasdef OR attidentity <> '', attidentity = 'a' OR attgenerated <> '',
    EXISTS (SELECT FROM pg_trigger WHERE tgrelid = attrelid AND NOT tgisinternal AND tgtype & 6 = 6)
FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid
WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
"""
"""Of each column its name, its type, that below a domain, whether that is an enumeration, may be null, has a default or is
generated in any way, is generated always; and whether a trigger may fill it before a row goes in."""

VARCHAR = re.compile(r"character varying\((\d+)\)")
"""A type whose longer texts are refused, but for blanks at their end, which are cut."""

RELATION = "SELECT relkind::text, row_security_active(oid) FROM pg_class WHERE oid = to_regclass(%s)"
TABLES = "rpf"
"""What a relation's kind is of tables, partitioned ones, and those of other servers."""

DEFERRABLE = """
SELECT EXISTS (
    SELECT FROM pg_index WHERE indrelid = to_regclass(%s) AND indisunique AND NOT indimmediate AND %s::text[] = (
        SELECT array_agg(attname::text ORDER BY attname) FROM pg_attribute WHERE attrelid = indrelid AND attnum = ANY (indkey)
    )
)
"""

LOCKED_S = 10
"""How long a statement waits for a lock, before it is said and tried again."""

NOTE_OTHERS = """
CREATE FUNCTION penstock_note_others() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = {schema}, pg_temp AS $$
BEGIN
    IF current_setting('penstock.writing', true) IS DISTINCT FROM 'yes' AND EXISTS (SELECT FROM added) THEN
        UPDATE penstock_tables SET others = true WHERE name = TG_ARGV[0] AND NOT others;
    END IF;
    RETURN NULL;
END $$
"""
"""Whoever inserts need not be allowed to write our books, and has no say in which these are."""


class Postgres:
    """A PostgreSQL database, by libpq's URI."""

    nested = "jsonb"
    mark = "%s"

    def __init__(self, uri: Uri) -> None:
        options = {name: value for name, value in uri.options.items() if name not in ("table", "fresh")}
        self._address = f"postgresql:{uri.place}?{urlencode({'connect_timeout': '10', 'client_encoding': 'utf8', **options})}"
        host, _, database = uri.place.removeprefix("//").rpartition("@")[2].partition("/")
        self.uri = f"postgresql://{host}/{database}"
        self._secrets = re.split(r"[:@]", uri.place.removeprefix("//").rpartition("@")[0])[1:]
        told = "&".join(f"{name}={value}" for name, value in sorted(options.items()) if shown({name: value})[name] != "***")
        self.place = f"{self.uri}?{told}" if told else self.uri

    def type_of(self, kind: Kind) -> str:
        return kind.postgresql

    @contextmanager
    def transaction(self) -> Iterator[Cursor]:
        try:
            with psycopg.connect(self._address) as connection:
                connection.execute(f"SET LOCAL lock_timeout = '{LOCKED_S} s'")
                yield connection.cursor()
        except psycopg.errors.LockNotAvailable as error:
            mend = "end the session that holds the lock, which pg_stat_activity names: it may be a driver that is paused"
            raise Unavailable("another session has locked what is to be written", mend) from error
        except psycopg.Error as error:
            if _is_outage(error):
                raise Unavailable(_first_line(error)) from error
            raise self._refused(error) from error

    @contextmanager
    def reading(self) -> Iterator[Cursor]:
        with self.transaction() as cursor:
            cursor.execute("SET TRANSACTION READ ONLY")
            yield cursor

    def load(self, cursor: Cursor, table: Table, rows: list[Row]) -> None:
        """Upserts go through a temporary table, of which each key's last row counts; a single row needs none."""
        assert isinstance(cursor, psycopg.Cursor)
        for place, most in table.limits.items():
            if any(row[place] is not None and len(row[place]) > most and not row[place][most:].strip(" ") for row in rows):
                raise RowsRefused(f"the blanks at the end of {table.names[place]}, of {most} characters, would be cut")
        if table.key and len(rows) > 1:  # not within what a refusal undoes, for each one that is made is locked until the end
            made = f"SELECT {table.columns}, 0::bigint AS {ROW} FROM {table.quoted} WITH NO DATA"
            cursor.execute(_text(f"CREATE TEMPORARY TABLE IF NOT EXISTS {ARRIVED} ON COMMIT DROP AS {made}"))
        try:
            with cursor.connection.transaction():
                if len(rows) == 1:
                    cursor.execute(_text(table.upserted(f"VALUES ({', '.join(['%s'] * len(table.names))})")), rows[0])
                elif table.key:
                    self._upsert(cursor, table, rows)
                else:
                    _copy(cursor, f"COPY {table.quoted} ({table.columns}) FROM STDIN", rows)
        except (psycopg.Error, UnicodeEncodeError) as error:
            if isinstance(error, psycopg.Error) and not _is_of_rows(error):
                raise
            raise RowsRefused(_first_line(error)) from error

    def _upsert(self, cursor: "psycopg.Cursor[Any]", table: Table, rows: list[Row]) -> None:
        numbered = ((*row, number) for number, row in enumerate(rows))
        _copy(cursor, f"COPY {ARRIVED} ({table.columns}, {ROW}) FROM STDIN", numbered)
        key = ", ".join(map(quoted, table.key))
        last = f"SELECT DISTINCT ON ({key}) {table.columns} FROM {ARRIVED} ORDER BY {key}, {ROW} DESC"
        cursor.execute(_text(table.upserted(last)))
        cursor.execute(_text(f"DELETE FROM {ARRIVED}"))

    def lock_books(self, cursor: Cursor) -> None:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(hashtext('penstock'))"
        )  # "if not exists" fails where two find that at once

    def watch(self, cursor: Cursor, table: Table) -> None:
        cursor.execute("SELECT to_regprocedure('penstock_note_others()') IS NULL, quote_ident(current_schema())")
        unknown, schema = cursor.fetchone()
        if unknown:
            cursor.execute(NOTE_OTHERS.replace("{schema}", schema))
        cursor.execute(
            f"CREATE TRIGGER penstock_others AFTER INSERT ON {table.quoted} REFERENCING NEW TABLE AS added FOR EACH STATEMENT "
            f"EXECUTE FUNCTION penstock_note_others({literal(table.name)})"
        )

    def watches(self, cursor: Cursor, table: Table) -> bool:
        cursor.execute(
            "SELECT 1 FROM pg_trigger WHERE tgrelid = to_regclass(%s) AND tgname = 'penstock_others'", (table.quoted,)
        )
        return cursor.fetchone() is not None

    @contextmanager
    def writing(self, cursor: Cursor, table: Table, run: str) -> Iterator[bool]:
        """The lock lets others note that they insert, and none claim the table."""
        cursor.execute(
            "SELECT set_config('penstock.writing', 'yes', true), set_config('application_name', %s, true)", (_session(run),)
        )
        cursor.execute("SELECT 1 FROM penstock_tables WHERE name = %s AND run = %s FOR KEY SHARE", (table.name, run))
        yield cursor.fetchone() is not None

    def release(self, runs: Collection[str]) -> None:
        """A driver that was paused in a delivery holds what it has locked until its session ends."""
        with suppress(Unavailable), self.transaction() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = ANY(%s) AND usename = current_user AND datname = current_database()",
                (list(map(_session, runs)),),
            )

    def quoted(self, table: str) -> str:
        """What stands before a dot is the schema."""
        return ".".join(map(quoted, table.rsplit(".", 1)))

    def too_long(self, name: str) -> bool:
        return len(name.encode()) > LONGEST_NAME

    def unfit(self, cursor: Cursor, table: Table) -> list[str]:
        cursor.execute(COLUMNS, (table.quoted,))
        wrong = []
        for name, given, base, is_enum, never_null, has_default, is_own, filled in cursor.fetchall():
            if name not in table.kinds:
                if never_null and not (has_default or filled):
                    wrong.append(f"column {name} is never null, has no default, and is no field")
                continue
            kind = table.kinds[name]
            wanted = self.nested if kind is None else kind.postgresql
            if is_own:
                wrong.append(f"column {name} is generated always")
            elif base.partition("(")[0] not in TAKEN_BY[wanted] and not (is_enum and wanted == "text"):
                wrong.append(f"column {name} is {given} and not {wanted}")
            elif wanted == "text" and (limit := VARCHAR.fullmatch(base)) is not None:
                table.limits[table.names.index(name)] = int(limit[1])
            elif "(" in base and wanted != "text":
                wrong.append(f"column {name} is {given}, which rounds; make it {wanted}")
        cursor.execute(RELATION, (table.quoted,))
        kind, by_row = cursor.fetchone()
        if kind not in TABLES:
            wrong.append("it is a view, into which no rows are copied; name its table")
        if by_row:
            wrong.append("its row-level security holds for this role, under which no rows are copied; let the role bypass it")
        cursor.execute(DEFERRABLE, (table.quoted, sorted(table.key)))
        if cursor.fetchone()[0]:
            wrong.append(
                f"the unique key by {', '.join(table.key)} may be checked later, and then no row is upserted; make it NOT "
                "DEFERRABLE"
            )
        return wrong

    def columns(self, cursor: Cursor, table: str) -> set[str]:
        cursor.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            (self.quoted(table),),
        )
        return {name for (name,) in cursor.fetchall()}

    def _refused(self, error: psycopg.Error) -> SinkError:
        said = _first_line(error)
        for secret in filter(None, self._secrets):  # the library repeats what it does not understand
            said = said.replace(secret, "***")
        return SinkError(f"{self.uri} refuses: {said}; mend that, and run again.")


def _is_of_rows(error: psycopg.Error) -> bool:
    """Whether it is a row that is refused, and not what is done with it."""
    # What psycopg refuses itself, as the character NUL, has no SQLSTATE.
    state = error.sqlstate or ""
    own = state != "" and state[0] in ANYBODYS and state[:2] not in SERVERS
    return isinstance(error, psycopg.DataError) or state[:2] in OF_ROWS or state == TOO_LONG or own


def _is_outage(error: psycopg.Error) -> bool:
    """Whether the database does not answer, and not that it refuses: who is refused at the door has no SQLSTATE."""
    if error.sqlstate is not None:
        return error.sqlstate[:2] in OUTAGES
    said = str(error)
    return isinstance(error, psycopg.OperationalError) and (
        "FATAL" not in said
        or any(passing in said for passing in ("starting up", "shutting down", "too many", "reserved", "recovery"))
    )


def _session(run: str) -> str:
    """What a run's sessions are called while they write."""
    return f"penstock {run}"


def _copy(cursor: "psycopg.Cursor[Any]", statement: str, rows: Iterable[Row]) -> None:
    with cursor.copy(_text(statement)) as copy:
        for row in rows:
            copy.write_row(row)


def _text(statement: str) -> Any:
    """A statement that is not a literal, as psycopg's types want it; its names are quoted."""
    return statement.encode()


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _bind(sink: Sink, uri: Uri, options: Options, context: SinkContext) -> TableSink:
    rule = f"{rules.__name__}:{rules.refuse_nul.__name__}"
    files = SinkFiles(sink.name, "parquet", str(context.output), rule=rule, wide=True)
    return TableSink(sink, Postgres(uri), options.get("table"), files, options.get("fresh"))


POSTGRESQL = SinkConnector(
    "postgresql",
    "//USER@HOST/DATABASE",
    "a table in PostgreSQL, appended, or upserted by the sink's key",
    (
        Option("table", "the table's name; the sink's unless given"),
        rules.FRESH,
        *(Option(name, f"libpq's `{name}`") for name in ("host", "sslmode", "sslrootcert", "options", "connect_timeout")),
    ),
    reach="shared disk",
    bind=_bind,
)
