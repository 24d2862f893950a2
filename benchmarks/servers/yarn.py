"""A real YARN on this machine: a ResourceManager and a NodeManager, over an HDFS."""

from collections.abc import Mapping
from pathlib import Path

import httpx

from penstock.bench.servers.process import HOST, Process, ServerProcess, await_ready, free_port, kill, spawn

from .hadoop import configuration, daemon
from .hdfs import Hdfs

DAEMONS = "org.apache.hadoop.yarn.server"
MEMORY_MB, CORES = 6144, 4


class Yarn(ServerProcess):
    """A context in which it runs.

    Args:
        directory: for its data and logs.
        hdfs: where applications and what they need are staged; runs already.

    Raises:
        ClusterError: it does not come up; names its log.
    """

    def __init__(self, directory: Path, hdfs: Hdfs) -> None:
        self._directory, self._hdfs = directory, hdfs
        self._ports = {
            name: free_port()
            for name in ("scheduler", "tracker", "manager", "admin", "web", "node", "localizer", "node-web", "collector")
        }
        self._started: dict[str, Process] = {}

    @property
    def environment(self) -> Mapping[str, str]:
        """What a process needs to know to use it, and its HDFS."""
        return {**self._hdfs.environment, "HADOOP_CONF_DIR": str(self._directory)}

    def __enter__(self) -> "Yarn":
        self._directory.mkdir(parents=True, exist_ok=True)
        for name in ("core-site.xml", "hdfs-site.xml"):
            (self._directory / name).write_text((self._hdfs.configuration / name).read_text())
        (self._directory / "yarn-site.xml").write_text(configuration(self._settings()))
        self.start()
        return self

    def start(self) -> None:
        """Start what does not run, and wait until a node is there."""
        for name, main in (("resourcemanager", "resourcemanager.ResourceManager"), ("nodemanager", "nodemanager.NodeManager")):
            if name not in self._started:
                self._started[name] = spawn(daemon(self._directory, f"{DAEMONS}.{main}"), self._log(name))
        for name, process in self._started.items():
            await_ready(name, process, self._log(name), self._answers)

    def kill(self) -> None:
        for name in list(self._started):
            self.kill_one(name)

    def kill_one(self, name: str) -> None:
        """``kill -9`` the ``resourcemanager``, or the ``nodemanager`` with the containers that it has started."""
        process = self._started.pop(name, None)
        if process is not None:
            kill(process)

    def _settings(self) -> dict[str, str]:
        return {
            "yarn.resourcemanager.scheduler.address": self._at("scheduler"),
            "yarn.resourcemanager.resource-tracker.address": self._at("tracker"),
            "yarn.resourcemanager.address": self._at("manager"),
            "yarn.resourcemanager.admin.address": self._at("admin"),
            "yarn.resourcemanager.webapp.address": self._at("web"),
            "yarn.resourcemanager.scheduler.class": f"{DAEMONS}.resourcemanager.scheduler.fifo.FifoScheduler",
            "yarn.nodemanager.hostname": HOST,
            "yarn.nodemanager.address": self._at("node"),
            "yarn.nodemanager.localizer.address": self._at("localizer"),
            "yarn.nodemanager.webapp.address": self._at("node-web"),
            "yarn.nodemanager.collector-service.address": self._at("collector"),
            "yarn.nodemanager.local-dirs": str(self._directory / "local"),
            "yarn.nodemanager.log-dirs": str(self._directory / "containers"),
            "yarn.nodemanager.delete.debug-delay-sec": "600",  # so that what failed can be looked at
            "yarn.nodemanager.resource.memory-mb": str(MEMORY_MB),
            "yarn.nodemanager.resource.cpu-vcores": str(CORES),
            "yarn.scheduler.minimum-allocation-mb": "256",
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "99.9",
            "yarn.nm.liveness-monitor.expiry-interval-ms": "5000",
        }

    def _answers(self) -> bool:
        """Whether a node is registered."""
        try:
            metrics = httpx.get(f"http://{self._at('web')}/ws/v1/cluster/metrics", timeout=1).json()
        except (httpx.HTTPError, ValueError):
            return False
        return bool(metrics["clusterMetrics"]["activeNodes"] > 0)

    def _at(self, port: str) -> str:
        return f"{HOST}:{self._ports[port]}"

    def _log(self, name: str) -> Path:
        return self._directory / f"{name}.log"
