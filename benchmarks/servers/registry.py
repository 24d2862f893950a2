"""A real schema registry on this machine: Apicurio's, whose interface is also Confluent's, with its schemas in memory."""

from pathlib import Path

import httpx

from penstock.bench.cluster.node import Node
from penstock.bench.servers.process import HOST, ServerProcess, await_ready, free_port, spawn
from penstock.connectors.declaration import Jars, Release
from penstock.engine.session.java import java_home
from penstock.engine.session.maven import fetch

APICURIO = Jars("io.apicurio", "apicurio-registry-app", (Release("2.6.13.Final"),), archive="all")
"""The newest that Java 17 runs and that Maven Central has with all that it is part of."""


class SchemaRegistry(ServerProcess):
    """A context in which it runs.

    Args:
        directory: for its log.
        node: of a cluster, on which it runs; this machine unless given.

    Raises:
        ClusterError: it does not come up; names its log.
    """

    def __init__(self, directory: Path, node: Node | None = None) -> None:
        self._directory, self._port = directory, free_port()
        self._host, self._spawn = (HOST, spawn) if node is None else (node.address, node.spawn)

    @property
    def url(self) -> str:
        """For a Kafka URI's ``registry``."""
        return f"http://{self._host}:{self._port}/apis/ccompat/v7"

    def __enter__(self) -> "SchemaRegistry":
        self._directory.mkdir(parents=True, exist_ok=True)
        runner = next(fetch(APICURIO).glob("*-runner.jar"))
        settings = {"QUARKUS_HTTP_HOST": self._host, "QUARKUS_HTTP_PORT": str(self._port)}
        log = self._directory / "registry.log"
        self._process = self._spawn([java_home() / "bin" / "java", "-Xmx256m", "-jar", runner], log, settings)
        await_ready("schema registry", self._process, log, self._answers)
        return self

    def demand(self, rule: str) -> None:
        """Take only schemas that go with those before by a rule, as ``BACKWARD``."""
        httpx.put(f"{self.url}/config", json={"compatibility": rule}).raise_for_status()

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/subjects", timeout=1).is_success
        except httpx.HTTPError:
            return False
