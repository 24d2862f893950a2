"""A real Spark standalone cluster on this machine: a master and workers, and nodes for a driver, a broker and a client."""

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import pyspark

from penstock.bench.cluster import cgroups, network
from penstock.bench.cluster.cgroups import ControlGroup
from penstock.bench.cluster.network import Link, NodeNetwork
from penstock.bench.cluster.node import Node
from penstock.bench.servers.process import HOST, Process, await_ready, free_port
from penstock.engine.session.java import java_home
from penstock.errors import ClusterError

BESIDES = ("master", "driver", "broker", "client")
"""Nodes besides those of the workers."""
MEGABYTE = 1 << 20
EXECUTOR_SHARE = 0.5
"""Fraction of a node's memory for the executor's heap; the rest is for Python, the worker and the JVM's other memory."""


class Cluster:
    """A context in which the cluster runs.

    As root, where the kernel allows it, each node has a network namespace, with its own address, routes and counters, and a
    control group with its share of the processor and the memory. Otherwise nodes are processes on this machine's own
    address, and `notes` says so.

    Args:
        nodes: number of workers, each on a node.
        cores: cores that each offers to Spark.
        cpu: processor time that each may use, in cores; None for no limit.
        memory: limit of each, in megabytes.
        directory: for logs and the nodes' scratch files; by default, a temporary one.
        isolated: True requires isolation, False does without, None uses it if it is available.
        link: delay and bandwidth of the nodes' network links.
        private: whether each node sees an empty disk of its own in place of the directory `disk`; needs isolation.

    Raises:
        ClusterError: a process does not start (the error names its log), or isolation is required but not available.

    Examples:
        ::

            with Cluster(nodes=3, cpu=0.5) as cluster:
                cluster.driver.spawn(["penstock", "run", "app.py", "--master", cluster.master, ...], log)
                cluster.nodes[0].kill()
    """

    def __init__(
        self,
        nodes: int = 2,
        *,
        cpu: float | None = None,
        memory: int = 1024,
        cores: int = 1,
        directory: Path | None = None,
        isolated: bool | None = None,
        link: Link | None = None,
        private: bool = False,
    ) -> None:
        if nodes < 1 or cores < 1 or memory < 512 or (cpu is not None and not 0 < cpu <= 64):
            raise ClusterError(
                f"A cluster of {nodes} nodes with {cores} cores, cpu={cpu} and {memory} MB: give one node and core at least, "
                "512 MB or more, and a cpu above 0, up to 64."
            )
        able = isolated is not False and network.available() and cgroups.available()
        if isolated and not able:
            raise ClusterError("Nodes cannot be isolated here: that needs root, network namespaces and control groups.")
        self.isolated = able
        self.notes = [] if able else ["Nodes share this machine's address, processor and memory: they are not isolated."]
        if cpu is not None and not able:
            self.notes.append("The nodes' share of the processor is not limited.")
        self.nodes: list[Node] = []
        self._wanted, self._cores, self._cpu, self._memory = nodes, cores, cpu, memory
        self._given, self._link, self._private = directory, link, private
        self._stack = ExitStack()
        self._besides: dict[str, Node] = {}
        self._port = 0

    @property
    def master(self) -> str:
        """The URL for ``--master``."""
        return f"spark://{self._besides['master'].address}:{self._port}"

    @property
    def disk(self) -> Path:
        """The directory in whose place each node sees its own disk, if nodes have private disks."""
        return self._directory / "disk"

    @property
    def driver(self) -> Node:
        """The node for a driver."""
        return self._besides["driver"]

    @property
    def broker(self) -> Node:
        """The node for a broker."""
        return self._besides["broker"]

    @property
    def client(self) -> Node:
        """The node for a client, which sends the load."""
        return self._besides["client"]

    @property
    def everything(self) -> Sequence[Node]:
        """All nodes, those of workers first."""
        return [*self.nodes, *self._besides.values()]

    @property
    def conf(self) -> dict[str, str]:
        """Spark settings of a driver."""
        address = self.driver.address
        return {"spark.driver.host": address, "spark.driver.bindAddress": address, **executor_conf(self._memory)}

    def __enter__(self) -> "Cluster":
        try:
            self._directory = self._given or Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
            self._directory.mkdir(parents=True, exist_ok=True)
            self.disk.mkdir(exist_ok=True)
            self._network = self._stack.enter_context(NodeNetwork(self._link)) if self.isolated else None
            for name in BESIDES:
                self._besides[name] = self._node(name)
            self._port = 7077 if self.isolated else free_port()
            self._start_master()
            started = [self._start(self._new_worker()) for _ in range(self._wanted)]  # all at once
            for node, wait in zip(self.nodes, started, strict=True):
                wait()
                self._limit(node)
        except BaseException:
            self._stack.close()
            raise
        if self._network is not None:
            self.notes += self._network.notes
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def add_node(self) -> Node:
        """Add a node with a worker, and wait until the worker has registered with the master."""
        node = self._new_worker()
        self.start(node)
        return node

    def start(self, node: Node) -> None:
        """Start the worker of a node, for example after a kill, and wait until it has registered with the master."""
        node.limit_processor(None)
        self._start(node)()
        self._limit(node)

    def _new_worker(self) -> Node:
        node = self._node(f"node-{len(self.nodes) + 1}", self._memory * MEGABYTE)
        self.nodes.append(node)
        return node

    def _limit(self, node: Node) -> None:
        """Limit a node's processor, to be called once its worker is up: a JVM takes half a minute to start on half a core."""
        if self._cpu is not None:
            node.limit_processor(self._cpu)

    def _start(self, node: Node) -> Callable[[], None]:
        """Start a node's worker; return a function that waits until the worker has registered with the master."""
        log = self._log(node.name)
        registrations = log.read_text(errors="replace").count(REGISTERED) if log.exists() else 0
        offered = ["--cores", str(self._cores), "--memory", f"{round(self._memory * EXECUTOR_SHARE)}m", "--host", node.address]
        files = ["--webui-port", "0", "--work-dir", str(node.directory / "work")]
        process = self._spawn(node, "org.apache.spark.deploy.worker.Worker", *offered, *files, self.master)

        def registered() -> bool:
            return log.read_text(errors="replace").count(REGISTERED) > registrations

        return lambda: await_ready(f"cluster's {node.name}", process, log, registered)

    def _start_master(self) -> None:
        node = self._besides["master"]
        arguments = ["--host", node.address, "--port", str(self._port), "--webui-port", "0"]
        process = self._spawn(node, "org.apache.spark.deploy.master.Master", *arguments)
        log = self._log("master")
        await_ready("cluster's master", process, log, lambda: "Starting Spark master" in log.read_text(errors="replace"))

    def _node(self, name: str, memory: int | None = None) -> Node:
        directory = self._directory / name
        if self._network is None:
            node = Node(name, HOST, directory)
        else:
            group = ControlGroup(self._network.namespace(name), memory)
            disk = self.disk if self._private and name != "broker" else None
            node = Node(name, self._network.add(name), directory, self._network, group, disk)
        self._stack.callback(node.close)
        return node

    def _spawn(self, node: Node, main: str, *arguments: Any) -> Process:
        home = Path(pyspark.__file__).parent
        environment = {
            "JAVA_HOME": str(java_home()),
            "SPARK_HOME": str(home),
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_LOCAL_IP": node.address,
            "SPARK_DAEMON_MEMORY": "256m",
        }
        return node.spawn([home / "bin" / "spark-class", main, *arguments], self._log(node.name), environment)

    def _log(self, name: str) -> Path:
        return self._directory / f"{name}.log"


def executor_conf(memory: int) -> dict[str, str]:
    """Spark settings of an executor on a node with ``memory`` megabytes."""
    return {"spark.executor.memory": f"{round(memory * EXECUTOR_SHARE)}m"}


REGISTERED = "Successfully registered with master"
