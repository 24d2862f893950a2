"""A real PostgreSQL server on this machine, from the system's packages: a process to be killed."""

import os
import pwd
import shutil
import subprocess
import time
from pathlib import Path

import psycopg

from penstock.bench.servers.process import HOST, ServerProcess, await_ready, free_port, spawn
from penstock.errors import ClusterError

ACCOUNTS = ("postgres", "nobody")
"""PostgreSQL refuses to run as root. Where we are root, it runs as the first of these that exists."""
ATTEMPTS = 10


def postgres_programs() -> Path | None:
    """The directory of ``initdb`` and ``postgres``, or None where they are not installed."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name), reverse=True)
    on_path = [Path(found).resolve().parent for found in [shutil.which("initdb")] if found]
    return next((path for path in (*debian, *on_path) if (path / "initdb").exists()), None)


class PostgresServer(ServerProcess):
    """A context in which the server runs, with a database ``penstock`` that anyone on this machine may write.

    Raises:
        ClusterError: it is not installed, or does not come up.
    """

    def __init__(self, directory: Path) -> None:
        programs = postgres_programs()
        if programs is None:
            raise ClusterError("PostgreSQL is not installed; on Debian: sudo apt-get install postgresql.")
        self._programs, self._directory = programs, directory
        self._port = free_port()

    @property
    def uri(self) -> str:
        """Of the database."""
        return self._uri("penstock")

    def __enter__(self) -> "PostgresServer":
        self._directory.mkdir(parents=True, exist_ok=True)
        self._let_through()
        data = self._directory / "data"
        data.mkdir()
        if os.geteuid() == 0:
            account = self._account()
            os.chown(data, account.pw_uid, account.pw_gid)
        arguments = ["-D", str(data), "-U", "penstock", "-A", "trust", "-E", "UTF8", "--locale", "C", "--no-sync"]
        made = subprocess.run([*self._as_account(), self._programs / "initdb", *arguments], capture_output=True, text=True)
        if made.returncode:
            raise ClusterError(f"initdb failed: {made.stderr.strip().splitlines()[-1]}")
        self.start()
        with psycopg.connect(self._uri("postgres"), autocommit=True) as connection:
            connection.execute("CREATE DATABASE penstock")
        return self

    def start(self) -> None:
        """Start it, after a crash too, and wait until it answers.

        It refuses to start for as long as a process of a server that was killed has yet to notice.
        """
        self._let_through()
        log = self._directory / "postgres.log"
        data = self._directory / "data"
        settings = ["-c", f"unix_socket_directories={data}", "-c", f"listen_addresses={HOST}", "-p", str(self._port)]
        for left in reversed(range(ATTEMPTS)):
            self._process = spawn([*self._as_account(), self._programs / "postgres", "-D", data, *settings], log)
            try:
                await_ready("PostgreSQL server", self._process, log, self._answers)
            except ClusterError:
                if self._process.poll() is None or not left:
                    raise
                time.sleep(1)
            else:
                return

    def _let_through(self) -> None:
        """Let the server's account get to its data; at each start, for every pytest that begins closes its temporary
        directory.
        """
        for path in (self._directory, *self._directory.parents):
            if os.geteuid() == 0 and path.stat().st_uid == 0 and path != Path("/"):
                path.chmod(path.stat().st_mode | 0o011)

    def _answers(self) -> bool:
        try:
            with psycopg.connect(self._uri("postgres"), connect_timeout=1):
                return True
        except psycopg.OperationalError:
            return False

    def _uri(self, database: str) -> str:
        return f"postgresql://penstock@{HOST}:{self._port}/{database}"

    def _as_account(self) -> list[str]:
        if os.geteuid() != 0:
            return []
        account = self._account()
        return ["setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]

    def _account(self) -> pwd.struct_passwd:
        names = {account.pw_name: account for account in pwd.getpwall()}
        return next(names[name] for name in ACCOUNTS if name in names)
