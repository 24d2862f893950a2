"""A real HDFS on this machine: a NameNode and a DataNode, each a process to be killed."""

from collections.abc import Mapping
from pathlib import Path

import httpx

from penstock.bench.cluster.node import Node
from penstock.bench.servers.process import HOST, Process, ServerProcess, await_ready, free_port, kill, spawn

from .hadoop import configuration, daemon

DAEMONS = "org.apache.hadoop.hdfs.server"
AUDIT = f"{DAEMONS}.namenode.FSNamesystem.audit"


class Hdfs(ServerProcess):
    """A context in which it runs.

    Args:
        directory: for its data and logs.
        node: of a cluster, on which it runs; this machine unless given.
        audited: whether the NameNode's log has an entry for each call.

    Raises:
        ClusterError: it does not come up; names its log.
    """

    def __init__(self, directory: Path, node: Node | None = None, *, audited: bool = False) -> None:
        self._directory, self._audited = directory, audited
        self._ports = {name: free_port() for name in ("rpc", "http", "data", "data-http", "data-ipc")}
        self._host, self._spawn = (HOST, spawn) if node is None else (node.address, node.spawn)
        self._started: dict[str, Process] = {}

    @property
    def uri(self) -> str:
        """Of its root, without a slash."""
        return f"hdfs://{self._at('rpc')}"

    @property
    def configuration(self) -> Path:
        """The directory with what clients of Hadoop's read."""
        return self._directory

    @property
    def audit_log(self) -> Path:
        """Where the entry for each call is, besides what else the NameNode says."""
        return self._log("namenode")

    @property
    def environment(self) -> Mapping[str, str]:
        """What a process needs to know to use it."""
        return {"PENSTOCK_WEBHDFS": self._at("http")}

    def __enter__(self) -> "Hdfs":
        self._directory.mkdir(parents=True, exist_ok=True)
        local = {"fs.defaultFS": self.uri}
        (self._directory / "core-site.xml").write_text(configuration(local))
        (self._directory / "hdfs-site.xml").write_text(configuration(self._settings()))
        self._java("namenode", "namenode.NameNode", "-format", "-force").wait()
        self.start()
        return self

    def _settings(self) -> dict[str, str]:
        return {
            "dfs.namenode.name.dir": (self._directory / "name").as_uri(),
            "dfs.datanode.data.dir": (self._directory / "data").as_uri(),
            "dfs.namenode.rpc-address": self._at("rpc"),
            "dfs.namenode.http-address": self._at("http"),
            "dfs.datanode.address": self._at("data"),
            "dfs.datanode.http.address": self._at("data-http"),
            "dfs.datanode.ipc.address": self._at("data-ipc"),
            "dfs.datanode.hostname": self._host,
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",  # the addresses of namespaces have no names
            "dfs.replication": "1",
            "dfs.namenode.safemode.extension": "0",
            "dfs.heartbeat.interval": "1",
            "dfs.namenode.heartbeat.recheck-interval": "1000",
            "dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "20",
        }

    def start(self) -> None:
        """Start what does not run, and wait until it answers and has its blocks."""
        for name, main in (("namenode", "namenode.NameNode"), ("datanode", "datanode.DataNode")):
            if name not in self._started:
                self._started[name] = self._java(name, main)
        for name, process in self._started.items():
            await_ready(name, process, self._log(name), self._answers)

    def kill(self) -> None:
        """``kill -9`` both."""
        self.kill_one("namenode")
        self.kill_one("datanode")

    def kill_one(self, name: str) -> None:
        """``kill -9`` the ``namenode`` or the ``datanode``."""
        process = self._started.pop(name, None)
        if process is not None:
            kill(process)

    def _answers(self) -> bool:
        """Whether it is out of safe mode, and a DataNode is alive."""
        beans = f"http://{self._at('http')}/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
        try:
            state = httpx.get(beans, timeout=1).json()["beans"][0]
        except (httpx.HTTPError, ValueError, IndexError):
            return False
        return bool(state["FSState"] == "Operational" and state["NumLiveDataNodes"] > 0)

    def _at(self, port: str) -> str:
        return f"{self._host}:{self._ports[port]}"

    def _log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def _java(self, name: str, main: str, *arguments: str) -> Process:
        told = AUDIT if self._audited else ""
        return self._spawn(daemon(self._directory, f"{DAEMONS}.{main}", *arguments, told=told), self._log(name))
