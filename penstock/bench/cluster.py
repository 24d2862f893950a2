"""A real Spark standalone cluster on this machine: a master and some workers, each a process to be killed."""

import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

import pyspark

from penstock.engine.java import java_home
from penstock.errors import ClusterError

HOST = "127.0.0.1"
PATIENCE_S = 60.0


class StandaloneCluster:
    """A context in which the cluster runs.

    Parameters
    ----------
    directory: for logs and the workers' files.
    workers: how many, each with one core.
    memory: of each worker, as Spark writes it.

    Raises
    ------
    ClusterError: a process does not come up; names its log.
    """

    def __init__(self, directory: Path, workers: int = 2, memory: str = "1g") -> None:
        self._directory = directory
        self._count, self._memory = workers, memory
        self._port = _free_port()
        self._master: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []

    @property
    def master(self) -> str:
        """The URL for ``--master``."""
        return f"spark://{HOST}:{self._port}"

    @property
    def conf(self) -> dict[str, str]:
        """Settings that a driver on this machine needs."""
        return {"spark.driver.host": HOST, "spark.executor.memory": "512m"}

    def __enter__(self) -> "StandaloneCluster":
        self._directory.mkdir(parents=True, exist_ok=True)
        arguments = ["--host", HOST, "--port", str(self._port), "--webui-port", "0"]
        self._master = self._spawn("master", "org.apache.spark.deploy.master.Master", *arguments)
        self._await("master", "Starting Spark master", self._master)
        for _ in range(self._count):
            self.add_worker()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number in range(len(self.workers)):
            self.kill_worker(number)
        if self._master is not None:
            _kill(self._master)

    def add_worker(self) -> None:
        """Start a worker and wait until the master knows it."""
        number = len(self.workers)
        arguments = ["--cores", "1", "--memory", self._memory, "--host", HOST, "--webui-port", "0"]
        files = ["--work-dir", str(self._directory / f"work-{number}")]
        process = self._spawn(
            f"worker-{number}", "org.apache.spark.deploy.worker.Worker", *arguments, *files, self.master
        )
        self.workers.append(process)
        self._await(f"worker-{number}", "Successfully registered with master", process)

    def kill_worker(self, number: int) -> None:
        """``kill -9`` a worker and the executors it has started."""
        _kill(self.workers[number])

    def _spawn(self, name: str, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        home = Path(pyspark.__file__).parent
        environment = {**os.environ, "JAVA_HOME": str(java_home()), "SPARK_HOME": str(home), "SPARK_NO_DAEMONIZE": "1"}
        with (self._directory / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [home / "bin" / "spark-class", main, *arguments],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )

    def _await(self, name: str, sign: str, process: subprocess.Popen[bytes]) -> None:
        log = self._directory / f"{name}.log"
        deadline = time.monotonic() + PATIENCE_S
        while sign not in log.read_text(errors="replace"):
            if process.poll() is not None or time.monotonic() > deadline:
                raise ClusterError(f"The cluster's {name} did not come up; {log} has the reason.")
            time.sleep(0.1)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all that it has started: they share a session of its own."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
