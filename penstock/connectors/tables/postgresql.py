"""Tables in PostgreSQL, loaded with COPY."""

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlencode

from penstock.app.stream import Sink
from penstock.connectors.declaration import Option, Options, SinkConnector, SinkContext
from penstock.connectors.tables import rules
from penstock.connectors.tables.sink import Cursor, Row, Table, TableSink, Unavailable, literal, quoted
from penstock.connectors.uri import Uri
from penstock.errors import SinkError
from penstock.extras import needs
from penstock.kinds.kind import Kind
from penstock.masked import shown
from penstock.runtime.output import SinkFiles

with needs():
    import psycopg


LOCKED_S = 10
"""How long a statement waits for a lock, before it is said and tried again."""

NOTE_OTHERS = """
CREATE FUNCTION penstock_note_others() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = {schema}, pg_temp AS $$
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
        self._address = f"postgresql:{uri.place}?{urlencode({'connect_timeout': '10', **options})}"
        host, _, database = uri.place.removeprefix("//").rpartition("@")[2].partition("/")
        self.uri = f"postgresql://{host}/{database}"
        self._secrets = re.split(r"[:@]", uri.place.removeprefix("//").rpartition("@")[0])[1:]
        told = "&".join(
            f"{name}={value}" for name, value in sorted(options.items()) if shown({name: value})[name] != "***"
        )
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
            mend = (
                "end the session that holds the lock, which pg_stat_activity names: it may be a driver that is paused"
            )
            raise Unavailable("another session has locked what is to be written", mend) from error
        except psycopg.OperationalError as error:
            if isinstance(error, psycopg.errors.InvalidPassword | psycopg.errors.InvalidAuthorizationSpecification):
                raise self._refused(error) from error
            raise Unavailable(_first_line(error)) from error
        except psycopg.Error as error:
            raise self._refused(error) from error

    def load(self, cursor: Cursor, table: Table, rows: Iterator[Row]) -> None:
        """Upserts go through a temporary table, of which each key's last row counts."""
        assert isinstance(cursor, psycopg.Cursor)
        if not table.key:
            _copy(cursor, f"COPY {table.quoted} ({table.columns}) FROM STDIN", rows)
            return
        cursor.execute(_text(f"CREATE TEMPORARY TABLE arrived (LIKE {table.quoted} INCLUDING DEFAULTS) ON COMMIT DROP"))
        cursor.execute("ALTER TABLE arrived ADD COLUMN penstock_row bigint")
        numbered = ((*row, number) for number, row in enumerate(rows))
        _copy(cursor, f"COPY arrived ({table.columns}, penstock_row) FROM STDIN", numbered)
        key = ", ".join(map(quoted, table.key))
        last = f"SELECT DISTINCT ON ({key}) {table.columns} FROM arrived ORDER BY {key}, penstock_row DESC"
        cursor.execute(_text(table.upserted(last)))

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
            "SELECT set_config('penstock.writing', 'yes', true), set_config('application_name', %s, true)",
            (_session(run),),
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

    def columns(self, cursor: Cursor, table: str) -> set[str]:
        cursor.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            (quoted(table),),
        )
        return {name for (name,) in cursor.fetchall()}

    def _refused(self, error: psycopg.Error) -> SinkError:
        said = _first_line(error)
        for secret in filter(None, self._secrets):  # the library repeats what it does not understand
            said = said.replace(secret, "***")
        return SinkError(f"{self.uri} refuses: {said}; mend that, and run again.")


def _session(run: str) -> str:
    """What a run's sessions are called while they write."""
    return f"penstock {run}"


def _copy(cursor: "psycopg.Cursor[Any]", statement: str, rows: Iterator[Row]) -> None:
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
        *(
            Option(name, f"libpq's `{name}`")
            for name in ("host", "sslmode", "sslrootcert", "options", "connect_timeout")
        ),
    ),
    reach="shared disk",
    bind=_bind,
)
