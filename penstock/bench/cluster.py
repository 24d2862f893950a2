"""A real Spark standalone cluster on this machine: a master and some workers, each a process to be killed."""

from pathlib import Path
from types import TracebackType

import pyspark

from penstock.bench.servers.process import HOST, Process, await_ready, free_port, kill, spawn
from penstock.engine.java import java_home


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
        self._port = free_port()
        self._master: Process | None = None
        self.workers: list[Process] = []

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
            kill(self._master)

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
        kill(self.workers[number])

    def _spawn(self, name: str, main: str, *arguments: str) -> Process:
        home = Path(pyspark.__file__).parent
        environment = {"JAVA_HOME": str(java_home()), "SPARK_HOME": str(home), "SPARK_NO_DAEMONIZE": "1"}
        return spawn([home / "bin" / "spark-class", main, *arguments], self._log(name), environment)

    def _log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def _await(self, name: str, sign: str, process: Process) -> None:
        log = self._log(name)
        await_ready(f"cluster's {name}", process, log, lambda: sign in log.read_text(errors="replace"))
