"""A server for the tries, in a process of its own: who forks has no threads of clients. Usage: crash_servers.py
kafka|postgresql|s3|hdfs DIRECTORY
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

KINDS = ("kafka", "postgresql", "s3", "hdfs")


@contextmanager
def running(kind: str, directory: Path) -> Iterator[dict[str, str]]:
    """Within the block a server runs; what a try has to know of it: ``at``, and variables of the environment."""
    directory.mkdir(parents=True)
    command = [sys.executable, __file__, kind, str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.communicate("")


def _serve(kind: str, directory: Path) -> None:
    if kind == "kafka":
        from penstock.bench.servers.broker import KafkaBroker

        with KafkaBroker(directory) as broker:
            _tell({"at": broker.brokers})
    elif kind == "postgresql":
        from benchmarks.servers.postgres import PostgresServer

        with PostgresServer(directory) as server:
            _tell({"at": server.uri})
    elif kind == "hdfs":
        from benchmarks.servers.hdfs import Hdfs

        with Hdfs(directory) as store:
            _tell({"at": store.uri, **store.environment})
    else:
        from benchmarks.servers.s3 import S3

        with S3(directory) as store:
            _tell({"at": store.uri, **store.environment})


def _tell(what: dict[str, str]) -> None:
    """Say what a try has to know, and wait until nobody wants the server any more."""
    print(json.dumps(what), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    _serve(sys.argv[1], Path(sys.argv[2]))
