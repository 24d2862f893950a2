"""The table sink for PostgreSQL, which loads rows with COPY."""

import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import quote, urlencode

from penstock.app.stream import Sink
from penstock.connectors.declaration import Option, Options, SinkConnector, SinkContext
from penstock.connectors.tables import rules
from penstock.connectors.tables.sink import Cursor, EventTable, Row, RowsRefused, TableSink, Unavailable, literal, quoted
from penstock.connectors.uri import Uri
from penstock.errors import SinkError
from penstock.extras import needs
from penstock.kinds.kind import Kind
from penstock.masked import shown
from penstock.runtime.output import SinkFiles

with needs():
    import psycopg


ARRIVED, ROW = 'pg_temp."penstock arrived"', '"penstock row"'
"""The temporary table of rows to upsert, and its column that numbers them in order."""

OF_ROWS = ("22", "23", "44", "P0")
"""Classes of SQLSTATE that concern a row's values: data, constraints, checks of views, and errors that triggers raise."""
ANYBODYS, SERVERS = "56789IJKLMNOQRSTUVWXYZ", ("53", "54", "55", "57", "58", "72", "XX")
"""First characters of the classes that the SQL standard leaves free, which triggers may raise to refuse a row; and those of
these classes that PostgreSQL itself uses.
"""
TOO_LONG = "54000"
"""The SQLSTATE of a row that is too large for an index or for the table."""
OUTAGES = ("08", "40", "53", "57", "58")
"""Classes of SQLSTATE after which a retry may succeed: the connection, a deadlock, resources, an operator, the system."""

LONGEST_NAME = 63
"""The most bytes of an identifier."""

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
"""For each column type that Penstock uses, the types of existing columns that store its values unchanged, or refuse them."""

COLUMNS = """
SELECT attname, format_type(atttypid, atttypmod),
    format_type(coalesce(nullif(typbasetype, 0), atttypid), CASE WHEN typbasetype = 0 THEN atttypmod ELSE typtypmod END),
    typtype = 'e', attnotnull, atthasdef OR attidentity <> '', attidentity = 'a' OR attgenerated <> '',
    EXISTS (SELECT FROM pg_trigger WHERE tgrelid = attrelid AND NOT tgisinternal AND tgtype & 6 = 6)
FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid
WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
"""
"""Selects for each column its name, its type, the base type if that is a domain, and whether it is an enumeration; is NOT NULL;
has a default or is an identity; is always generated; and the table has a BEFORE INSERT trigger, which may fill the column."""

IN_STATEMENTS = (
    "CASE WHEN strpos({0}, '.') = 0 THEN quote_ident({0}) ELSE "
    "quote_ident(regexp_replace({0}, '[.][^.]*$', '')) || '.' || quote_ident(regexp_replace({0}, '^.*[.]', '')) END"
)
"""SQL for a table's name as it is written in statements, as `Postgres.quoted` has it."""

FOUND = """
SELECT format('table %%s of %%s, of the server that was started at %%s', coalesce(to_regclass(%s)::oid::text, %s),
    current_database(), pg_postmaster_start_time())
"""
"""Selects a name of a table that does not depend on how it, or its server, is addressed."""

VARCHAR = re.compile(r"character varying\((\d+)\)")
"""A type with a length: PostgreSQL refuses longer texts, unless only blanks exceed the length, which it cuts."""

RELATION = "SELECT relkind::text, row_security_active(oid) FROM pg_class WHERE oid = to_regclass(%s)"
TABLES = "rpf"
"""The ``relkind`` of ordinary, partitioned and foreign tables."""

DEFERRABLE = """
SELECT EXISTS (
    SELECT FROM pg_index WHERE indrelid = to_regclass(%s) AND indisunique AND NOT indimmediate AND %s::text[] = (
        SELECT array_agg(attname::text ORDER BY attname) FROM pg_attribute WHERE attrelid = indrelid AND attnum = ANY (indkey)
    )
)
"""

LOCKED_S = 10
"""How long a statement waits for a lock before it fails, and the transaction is retried."""

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
"""Creates the trigger function. With SECURITY DEFINER, other users need no right to write to the books; the fixed search_path
keeps them from substituting other tables for the books."""


class Postgres:
    """A PostgreSQL database, addressed by a URI of libpq."""

    nested = "jsonb"
    mark = "%s"
    nan_is_null = False
    named = (  # `t` is `public.t` where the search path says so
        f"(SELECT name = asked OR to_regclass({IN_STATEMENTS.format('name')}) = to_regclass({IN_STATEMENTS.format('asked')}) "
        "FROM (SELECT %s::text AS asked) AS one)"
    )

    def __init__(self, uri: Uri) -> None:
        options = {name: value for name, value in uri.options.items() if name not in ("table", "fresh")}
        settings = {"connect_timeout": "10", "client_encoding": "utf8", **options}
        self._address = f"postgresql:{uri.place}?{urlencode(settings, quote_via=quote)}"
        host, _, database = uri.place.removeprefix("//").rpartition("@")[2].partition("/")
        self.uri = f"postgresql://{host}/{database}"
        self._secrets = re.split(r"[:@]", uri.place.removeprefix("//").rpartition("@")[0])[1:]
        public = "&".join(f"{name}={value}" for name, value in sorted(options.items()) if shown({name: value})[name] != "***")
        self.place = f"{self.uri}?{public}" if public else self.uri

    def type_of(self, kind: Kind) -> str:
        return kind.postgresql

    def spot(self, table: str) -> str:
        return f"{table} of {self.place}"

    def found(self, cursor: Cursor, table: EventTable) -> str:
        cursor.execute(FOUND, (table.quoted, table.quoted))
        (found,) = cursor.fetchone()
        return str(found)

    def is_there(self) -> bool:
        return True

    @contextmanager
    def transaction(self) -> Iterator[Cursor]:
        try:
            with psycopg.connect(self._address) as connection:
                connection.execute(f"SET LOCAL lock_timeout = '{LOCKED_S} s'")
                yield connection.cursor()
        except psycopg.errors.LockNotAvailable as error:
            mend = "end the session that holds the lock, which pg_stat_activity names: it may be a driver that is paused"
            raise Unavailable("another session has locked the table, or Penstock's own tables", mend) from error
        except psycopg.Error as error:
            if _is_outage(error):
                raise Unavailable(_first_line(error)) from error
            raise self._refused(error) from error

    @contextmanager
    def reading(self) -> Iterator[Cursor]:
        with self.transaction() as cursor:
            cursor.execute("SET TRANSACTION READ ONLY")
            yield cursor

    def load(self, cursor: Cursor, table: EventTable, rows: list[Row]) -> None:
        """Upserts go through a temporary table, from which the last row of each key is taken; a single row needs none."""
        assert isinstance(cursor, psycopg.Cursor)
        for place, most in table.limits.items():
            if any(row[place] is not None and len(row[place]) > most and not row[place][most:].strip(" ") for row in rows):
                raise RowsRefused(f"the blanks at the end of {table.names[place]}, of {most} characters, would be cut")
        if table.key and len(rows) > 1:  # outside the savepoint: each table that is made anew holds a lock until the end
            definition = f"SELECT {table.columns}, 0::bigint AS {ROW} FROM {table.quoted} WITH NO DATA"
            cursor.execute(_text(f"CREATE TEMPORARY TABLE IF NOT EXISTS {ARRIVED} ON COMMIT DROP AS {definition}"))
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

    def _upsert(self, cursor: "psycopg.Cursor[Any]", table: EventTable, rows: list[Row]) -> None:
        numbered = ((*row, number) for number, row in enumerate(rows))
        _copy(cursor, f"COPY {ARRIVED} ({table.columns}, {ROW}) FROM STDIN", numbered)
        key = ", ".join(map(quoted, table.key))
        last = f"SELECT DISTINCT ON ({key}) {table.columns} FROM {ARRIVED} ORDER BY {key}, {ROW} DESC"
        cursor.execute(_text(table.upserted(last)))
        cursor.execute(_text(f"DELETE FROM {ARRIVED}"))

    def lock_books(self, cursor: Cursor) -> None:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(hashtext('penstock'))"
        )  # CREATE ... IF NOT EXISTS fails if two sessions run it at once

    def watch(self, cursor: Cursor, table: EventTable) -> None:
        cursor.execute("SELECT to_regprocedure('penstock_note_others()') IS NULL, quote_ident(current_schema())")
        is_missing, schema = cursor.fetchone()
        if is_missing:
            cursor.execute(NOTE_OTHERS.replace("{schema}", schema))
        cursor.execute(
            f"CREATE TRIGGER penstock_others AFTER INSERT ON {table.quoted} REFERENCING NEW TABLE AS added FOR EACH STATEMENT "
            f"EXECUTE FUNCTION penstock_note_others({literal(table.name)})"
        )

    def watches(self, cursor: Cursor, table: EventTable) -> bool:
        cursor.execute(
            "SELECT 1 FROM pg_trigger WHERE tgrelid = to_regclass(%s) AND tgname = 'penstock_others'", (table.quoted,)
        )
        return cursor.fetchone() is not None

    @contextmanager
    def writing(self, cursor: Cursor, table: EventTable, run: str) -> Iterator[bool]:
        """Lock the table's row in the books: others can still set ``others`` in it, but no other run can claim the table."""
        cursor.execute(
            "SELECT set_config('penstock.writing', 'yes', true), set_config('application_name', %s, true)", (_session(run),)
        )
        cursor.execute("SELECT 1 FROM penstock_tables WHERE name = %s AND run = %s FOR KEY SHARE", (table.name, run))
        yield cursor.fetchone() is not None

    def release(self, runs: Collection[str]) -> None:
        """End the sessions of a paused driver, which would hold its locks until then."""
        with suppress(Unavailable), self.transaction() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = ANY(%s) AND usename = current_user AND datname = current_database()",
                (list(map(_session, runs)),),
            )

    def quoted(self, table: str) -> str:
        """Return a quoted name; the part before a dot is the schema."""
        return ".".join(map(quoted, table.rsplit(".", 1)))

    def too_long(self, name: str) -> bool:
        return len(name.encode()) > LONGEST_NAME

    def unfit(self, cursor: Cursor, table: EventTable) -> list[str]:
        cursor.execute(COLUMNS, (table.quoted,))
        wrong = []
        for name, declared, base, is_enum, never_null, has_default, is_own, filled in cursor.fetchall():
            if name not in table.kinds:
                if never_null and not (has_default or filled):
                    wrong.append(f"column {name} is NOT NULL without a default, and the event has no such field")
                continue
            kind = table.kinds[name]
            wanted = self.nested if kind is None else kind.postgresql
            if is_own:
                wrong.append(f"column {name} is generated always")
            elif base.partition("(")[0] not in TAKEN_BY[wanted] and not (is_enum and wanted == "text"):
                wrong.append(f"column {name} is {declared} and not {wanted}")
            elif wanted == "text" and (limit := VARCHAR.fullmatch(base)) is not None:
                table.limits[table.names.index(name)] = int(limit[1])  # `load` refuses texts that would be cut
            elif "(" in base and wanted != "text":
                wrong.append(f"column {name} is {declared}, which rounds; make it {wanted}")
        cursor.execute(RELATION, (table.quoted,))
        kind, by_row = cursor.fetchone()
        if kind not in TABLES:
            wrong.append("it is a view, into which no rows can be copied; name its table")
        if by_row:
            wrong.append("its row-level security holds for this role, so no rows can be copied; let the role bypass it")
        cursor.execute(DEFERRABLE, (table.quoted, sorted(table.key)))
        if cursor.fetchone()[0]:
            wrong.append(
                f"the unique key by {', '.join(table.key)} may be checked later, which forbids upserts; make it NOT DEFERRABLE"
            )
        return wrong

    def columns(self, cursor: Cursor, table: str) -> set[str]:
        cursor.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            (self.quoted(table),),
        )
        return {name for (name,) in cursor.fetchall()}

    def _refused(self, error: psycopg.Error) -> SinkError:
        reason = _first_line(error)
        for secret in filter(None, self._secrets):  # libpq quotes the parts of a URI that it does not understand
            reason = reason.replace(secret, "***")
        return SinkError(f"{self.uri} refuses: {reason}; mend that, and run again.")


def _is_of_rows(error: psycopg.Error) -> bool:
    """Whether an error is due to the values of a row, rather than to the statement or the table."""
    # Errors of psycopg itself, as about the character NUL, have no SQLSTATE.
    state = error.sqlstate or ""
    own = state != "" and state[0] in ANYBODYS and state[:2] not in SERVERS
    return isinstance(error, psycopg.DataError) or state[:2] in OF_ROWS or state == TOO_LONG or own


def _is_outage(error: psycopg.Error) -> bool:
    """Whether an error means that the database does not answer at present, rather than that it refuses."""
    if error.sqlstate is not None:
        return error.sqlstate[:2] in OUTAGES
    text = str(error)  # a connection that the server refuses has no SQLSTATE, but says FATAL
    return isinstance(error, psycopg.OperationalError) and (
        "FATAL" not in text
        or any(passing in text for passing in ("starting up", "shutting down", "too many", "reserved", "recovery"))
    )


def _session(run: str) -> str:
    """Return the ``application_name`` of a run's sessions while they write."""
    return f"penstock {run}"


def _copy(cursor: "psycopg.Cursor[Any]", statement: str, rows: Iterable[Row]) -> None:
    with cursor.copy(_text(statement)) as copy:
        for row in rows:
            copy.write_row(row)


def _text(statement: str) -> Any:
    """Return a composed statement as bytes, as psycopg's types accept only literals as `str`; its names are quoted."""
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
