"""The two ways to run a topology that the shared suite compares; the same random examples at every run of CI."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4
from zlib import crc32

import pytest
from adapters import required
from hypothesis import settings
from secure import SecureBroker
from support import Batches, load, write_batches

from benchmarks.servers.hdfs import Hdfs
from benchmarks.servers.postgres import PostgresServer, postgres_programs
from benchmarks.servers.registry import SchemaRegistry
from benchmarks.servers.s3 import S3, gateway
from penstock.audit.auditor import Auditor
from penstock.bench.servers.broker import KafkaBroker
from penstock.storage.place import path_of
from penstock.testing import TopologyDriver

# Times are not asserted: a first call may compile for seconds.
settings.register_profile("here", deadline=None)
settings.register_profile("ci", derandomize=True, deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "here")

# Spark's JVMs live for seconds here, and take a quarter less of the processor if they neither optimise nor collect in parallel.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Whoever asks for a server is marked as one who does; of those and of the slow ones CI takes a slice (`.ci/run`)."""
    for item in items:
        if {"broker", "registry", "postgres", "secure", "s3", "hdfs"}.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.servers)
    if wanted := os.environ.get("SLICE"):
        number, slices = map(int, wanted.split("/"))
        left = [item for item in items if long(item) and crc32(item.nodeid.encode()) % slices != number - 1]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in set(left)]


def pytest_report_header() -> list[str]:
    """Which slice this is."""
    wanted = os.environ.get("SLICE")
    return [f"slice {wanted} of the tests with servers and the slow ones; all of them: make test-all"] if wanted else []


def long(item: pytest.Item) -> bool:
    """Whether it is one of those that `make test` leaves out."""
    return any(item.iter_markers("servers")) or any(item.iter_markers("slow"))


@dataclass
class Outcome:
    """What a topology made of its input, whichever way it was run."""

    outputs: dict[str, list[Any]]
    dead_letters: list[dict[str, Any]]
    events: dict[str, int]
    late: int


def in_memory(name: str, batches: Batches, directory: Path, *, ends: bool) -> Outcome:
    app, _ = load(name)
    driver = TopologyDriver(app, dead_letters=True)
    for batch in batches:
        driver.batch({source: list(events) for source, events in batch.items()})
    if any(source.event_time for source in app.topology().sources):
        driver.batch()  # Spark, too, runs a batch without data when the watermark has advanced
    if ends:
        driver.finish()
    elements = driver.elements
    return Outcome(
        {sink.name: driver.output(sink) for sink in app.topology().sinks},
        driver.dead_letters,
        {name: tally.events for name, tally in elements.items()},
        sum(tally.late for tally in elements.values()),
    )


class SharedSpark:
    """One Spark for all tests of this process that need nothing special of it; starting one costs seconds."""

    def __init__(self, directory: Path) -> None:
        self._log = (directory / "spark.log").open("wb")
        self._session: Any = None

    def get(self) -> Any:
        """The session."""
        from penstock.engine.session.checkpoint import DISK
        from penstock.engine.session.spark import start_session, write_on_disk

        if self._session is None:
            self._session = start_session("tests", "local[2]", self._log, DISK)
            write_on_disk(self._session)
        return self._session

    def leave(self) -> None:
        """Stop it, for a test that starts its own."""
        if self._session is not None:
            self._session.stop()
            self._session = None


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedSpark]:
    """The Spark that tests share."""
    shared = SharedSpark(tmp_path_factory.mktemp("spark"))
    yield shared
    shared.leave()


def on_spark(name: str, batches: Batches, directory: Path, spark: SharedSpark, *, ends: bool) -> Outcome:
    from penstock.engine import RunOptions, run

    app, reference = load(name)
    options = RunOptions(
        runs=directory / "runs",
        spark=spark.get(),
        sources=write_batches(app, batches, directory),
        until_idle=True if ends else "pause",
        quiet=True,
    )
    result = run(app, options, application=reference)
    counts = result.report["counts"]
    assert counts["lost"] == counts["duplicated"] == counts["queued"] == 0
    assert counts["accepted"] == counts["processed"] + counts["dead_lettered"]
    audit = Auditor(result.directory, app, reference, sources=options.sources, sinks={}).audit()
    assert audit.verdict == ("cannot tell" if audit.unknown else "sound"), audit.to_text()
    return Outcome(
        {sink.name: result.output(sink.name) for sink in app.topology().sinks},
        result.dead_letters,
        {name: element["events"] for name, element in result.report["elements"].items() if element["events"]},
        counts["late"],
    )


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A Kafka broker; it may be killed, if it is started again."""
    with KafkaBroker(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchemaRegistry]:
    """A schema registry, which takes a schema only if it reads what the one before it has written."""
    with SchemaRegistry(tmp_path_factory.mktemp("registry")) as running:
        running.demand("BACKWARD")
        yield running


@pytest.fixture(scope="session")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    """A Kafka broker whose clients must prove who they are."""
    with SecureBroker(tmp_path_factory.mktemp("secure") / "all") as running:
        yield running


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A PostgreSQL server; it may be killed, if it is started again."""
    required(postgres_programs(), "PostgreSQL; on Debian: sudo apt-get install postgresql")
    with PostgresServer(tmp_path_factory.mktemp("postgres")) as running:
        yield running


@pytest.fixture(params=["driver", pytest.param("spark", marks=pytest.mark.spark)])
def outcome_of(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Runs a topology of `topologies.py` on batches of events, once each way; the input ends then if ``ends`` says so."""
    if request.param == "driver":
        return lambda name, batches, ends=False: in_memory(name, batches, tmp_path, ends=ends)
    shared = request.getfixturevalue("spark")
    return lambda name, batches, ends=False: on_spark(name, batches, tmp_path, shared, ends=ends)


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """A server of S3's API, by whose environment this process and what it starts reach it."""
    required(gateway(), "Go, to build the S3 gateway with; see https://go.dev/doc/install")
    with S3(tmp_path_factory.mktemp("s3")) as running, pytest.MonkeyPatch.context() as patched:
        for name, value in running.environment.items():
            patched.setenv(name, value)
        yield running


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    """An HDFS, by whose environment this process and what it starts reach it."""
    with Hdfs(tmp_path_factory.mktemp("hdfs")) as running, pytest.MonkeyPatch.context() as patched:
        for name, value in running.environment.items():
            patched.setenv(name, value)
        yield running


@pytest.fixture(params=["disk", pytest.param("s3", marks=pytest.mark.servers), pytest.param("hdfs", marks=pytest.mark.servers)])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A directory of its own in each kind of place that a run may lie in."""
    if request.param == "disk":
        return tmp_path
    return path_of(f"{request.getfixturevalue(request.param).uri}/{uuid4().hex}")
