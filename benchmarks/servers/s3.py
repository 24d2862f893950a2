"""A real server of S3's API on this machine, a process to be killed: the Versity gateway before a directory.

It is built from its Go module when it is first needed; it has what runs need of a store, files created only where there are
none.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import httpx

from penstock.bench.cluster.node import Node
from penstock.bench.servers.process import HOST, ServerProcess, await_ready, free_port, spawn
from penstock.errors import ClusterError

MODULE = "github.com/versity/versitygw/cmd/versitygw"
VERSION = "v1.8.0"
BUILD_S = 900.0
KEYS = {"AWS_ACCESS_KEY_ID": "penstock", "AWS_SECRET_ACCESS_KEY": "penstock-secret", "AWS_REGION": "us-east-1"}


def gateway() -> Path | None:
    """Its program, built if need be; None where there is no Go to build it with.

    Raises:
        ClusterError: it cannot be built.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock" / f"versitygw-{VERSION}"
    program = cache / "versitygw"
    if program.exists():
        return program
    go = shutil.which("go")
    if go is None:
        return None
    built = subprocess.run(
        [go, "install", f"{MODULE}@{VERSION}"],
        env={**os.environ, "GOBIN": str(cache)},
        capture_output=True,
        text=True,
        timeout=BUILD_S,
    )
    if built.returncode:
        raise ClusterError(f"{MODULE}@{VERSION} cannot be built: {built.stderr.strip()[-500:]}")
    return program


class S3(ServerProcess):
    """A context in which it runs.

    Args:
        directory: for its data and log.
        node: of a cluster, on which it runs; this machine unless given.

    Raises:
        ClusterError: it does not come up; names its log.
    """

    def __init__(self, directory: Path, node: Node | None = None) -> None:
        self._directory = directory
        self._port = free_port()
        self._host, self._spawn = (HOST, spawn) if node is None else (node.address, node.spawn)

    @property
    def uri(self) -> str:
        """Of its only bucket."""
        return "s3a://bucket"

    @property
    def access_log(self) -> Path:
        """An entry for each request, with its operation, key and client."""
        return self._directory / "access.log"

    @property
    def environment(self) -> Mapping[str, str]:
        """What a process needs to know to use it."""
        return {**KEYS, "AWS_ENDPOINT_URL": f"http://{self._host}:{self._port}"}

    def __enter__(self) -> "S3":
        (self._directory / "data" / "bucket").mkdir(parents=True, exist_ok=True)
        self.start()
        return self

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = [
            gateway(),
            "--port",
            f"{self._host}:{self._port}",
            "--keep-alive",
            "--access-log",
            self.access_log,
            "posix",
            self._directory / "data",
        ]
        keys = {"ROOT_ACCESS_KEY": KEYS["AWS_ACCESS_KEY_ID"], "ROOT_SECRET_KEY": KEYS["AWS_SECRET_ACCESS_KEY"]}
        log = self._directory / "s3.log"
        self._process = self._spawn(command, log, keys)
        await_ready("S3 gateway", self._process, log, self._answers)

    def _answers(self) -> bool:
        try:
            return httpx.get(self.environment["AWS_ENDPOINT_URL"], timeout=1).status_code > 0
        except httpx.HTTPError:
            return False
