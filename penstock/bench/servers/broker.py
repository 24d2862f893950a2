"""A real Kafka broker on this machine: one node in KRaft mode, in a process that tests can kill."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from penstock.bench.cluster.node import Node
from penstock.bench.servers.process import HOST, Process, ServerProcess, await_ready, free_port, spawn
from penstock.connectors.declaration import Jars, Release
from penstock.engine.session.java import java_home
from penstock.engine.session.maven import fetch

BROKER = Jars("org.apache.kafka", "kafka_2.13", (Release("4.1.0"),))

SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}{more}
advertised.listeners=PLAINTEXT://{host}:{port}{more}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT{protocols}
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
log.dirs={data}
num.partitions={partitions}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
log.cleaner.backoff.ms=500
broker.heartbeat.interval.ms=300
broker.session.timeout.ms=1500
"""


class KafkaBroker(ServerProcess):
    """A context in which the broker runs.

    Args:
        directory: for its data and log.
        partitions: default number of partitions of a topic.
        node: node of a cluster on which it runs; by default, this machine.
        java_options: options of its JVM.
        listeners: further listeners, on which clients must authenticate: name to protocol and settings.
        settings: further settings of the broker.

    Raises:
        ClusterError: the broker does not start; the error names its log.
    """

    def __init__(
        self,
        directory: Path,
        partitions: int = 2,
        node: Node | None = None,
        java_options: Sequence[str] = (),
        listeners: Mapping[str, tuple[str, Mapping[str, str]]] = MappingProxyType({}),
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._directory = directory
        self._port, self._controller = free_port(), free_port()
        self._partitions, self._listeners, self._java_options = partitions, listeners, java_options
        self._settings = settings
        self._ports = {name: free_port() for name in listeners}
        self._host, self._spawn = (HOST, spawn) if node is None else (node.address, node.spawn)

    @property
    def brokers(self) -> str:
        """The value of ``bootstrap.servers``."""
        return f"{self._host}:{self._port}"

    def at(self, listener: str) -> str:
        """The value of ``bootstrap.servers`` for another listener."""
        return f"{self._host}:{self._ports[listener]}"

    def __enter__(self) -> "KafkaBroker":
        self._directory.mkdir(parents=True, exist_ok=True)
        settings = SETTINGS.format(
            host=self._host,
            port=self._port,
            controller=self._controller,
            data=self._directory / "data",
            partitions=self._partitions,
            more="".join(f",{name}://{self.at(name)}" for name in self._listeners),
            protocols="".join(f",{name}:{protocol}" for name, (protocol, _) in self._listeners.items()),
        )
        settings += "".join(
            f"listener.name.{name.lower()}.{key}={value}\n"
            for name, (_, options) in self._listeners.items()
            for key, value in options.items()
        )
        settings += "".join(f"{name}={value}\n" for name, value in self._settings.items())
        (self._directory / "server.properties").write_text(settings)
        arguments = ["format", "-t", "cGVuc3RvY2sgYnJva2Vycw", "-c", self._directory / "server.properties"]
        formatting = self._java("kafka.tools.StorageTool", *arguments)
        formatting.wait()
        self.start()
        return self

    def start(self) -> None:
        """Start the broker, and wait until it answers."""
        self._process = self._java("kafka.Kafka", self._directory / "server.properties")
        await_ready("broker", self._process, self._directory / "broker.log", self._answers)

    def _answers(self) -> bool:
        try:
            return bool(AdminClient({"bootstrap.servers": self.brokers, "log_level": 0}).list_topics(timeout=1).brokers)
        except KafkaException:
            return False

    def _java(self, main: str, *arguments: object) -> Process:
        jars = fetch(BROKER)
        command = [java_home() / "bin" / "java", "-Xmx512m", *self._java_options, "-cp", f"{jars}/*", main, *arguments]
        return self._spawn(command, self._directory / "broker.log")
