"""What is run at each crash point: an application, where it reads and writes, and what must come out, reckoned without
Penstock.
"""

import json
import os
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pyarrow.parquet as pq
import s3fs
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from fsspec.implementations.webhdfs import WebHDFS

from penstock.app.application import App
from penstock.app.loader import AppReference, load_app
from penstock.connectors.kafka.topic import ID_HEADER
from penstock.engine.running.execution import rescale, run
from penstock.engine.running.options import RunOptions
from penstock.engine.running.steering import Change
from penstock.errors import ConfigurationError

APPS = Path(__file__).parent / "crash_apps.py"
Row = tuple[Any, ...]
Rows = dict[str, list[Row]]
"""The rows of each sink, in order."""

BEGAN = datetime(2026, 3, 1, 12, tzinfo=UTC)
TEXTS = ["ant", "bee", "bad", "ant", "cow", "bee", "ant", "bad", "dog", "ant", "bee", "cow", "ant", "bad", "bee", "dog"]
FILES = 4


@dataclass(frozen=True)
class Workload:
    """A workload.

    Args:
        app: its name in the file ``apps``.
        sources: URIs by name; ``{0}`` is the world, ``{at}`` where the server is, ``{name}`` a name that no other try has.
        sinks: the same; those without are JSON Lines in the run's directory.
        prepare: puts the input into a world.
        expected: of each sink, and the number of dead letters.
        server: which it needs; see `crash_servers`.
        before: what has been done before the first start under test.
        first: what each start does before the run: what a client and an adapter do, or a command before it.
        steering: makes what changes the run's settings on the way.
    """

    name: str
    app: str
    sources: Mapping[str, str]
    sinks: Mapping[str, str]
    prepare: Callable[[Path], None]
    expected: Callable[[], tuple[Rows, int]]
    groups: Mapping[str, str] = field(default_factory=dict)
    hops: str | None = None
    server: str = ""
    before: "Callable[[Workload, Path], None] | None" = None
    options: Mapping[str, Any] = field(default_factory=dict)
    by_spark: bool = False
    """Whether Spark itself has a part in it that the stand-in lacks."""
    ledger: str = "main"
    """What its first group's ledger is called."""
    first: Callable[[Path, RunOptions], None] | None = None
    steering: Callable[[Path], Any] | None = None
    apps: Path = APPS
    """The file of its application."""
    repeats_when_paused: bool = False
    """Whether a driver that is paused while it delivers, and followed, sends messages again, under the same identities: a Kafka
    sink without transactions cannot be fenced.
    """
    paces: Mapping[str, int] = field(default_factory=dict)
    """By the name of a group, how much slower it is than the others."""

    def load(self) -> tuple[App, AppReference]:
        """The application."""
        return load_app(f"{self.apps}:{self.app}")

    def start(self, world: Path, spark: Any, **options: Any) -> None:
        """A start of the run, as the command would."""
        app, application = self.load()
        asked = RunOptions(
            runs=world / "runs",
            quiet=True,
            spark=spark,
            groups=self.groups,
            hops=self.hops and self.filled(self.hops, world),
            sources={name: self.filled(uri, world) for name, uri in self.sources.items()},
            sinks={name: self.filled(uri, world) for name, uri in self.sinks.items()},
            **{"name": "run", "until_idle": True, "partitions": 2, **self.options, **options},
        )
        if self.first is not None:
            self.first(world, asked)
        if self.paces:
            spark.paces = self.paces
        run(app, asked, application=application, steering=None if self.steering is None else self.steering(world))

    def found(self, world: Path, *, paused: bool) -> Rows:
        """What the sinks hold; where a driver was paused, as one reads them whose sinks may then repeat messages."""
        uris = {name: self.filled(self.sinks.get(name, ""), world) for name in self.expected()[0]}
        once = paused and self.repeats_when_paused
        return {name: _once_each(uri) if once and uri else rows_of(name, uri, world) for name, uri in uris.items()}

    def filled(self, uri: str, world: Path) -> str:
        """A URI in a world."""
        at = SERVERS[self.server]["at"] if self.server else ""
        return uri.format(world, at=at, name=(world / "name").read_text())


SERVERS: dict[str, dict[str, str]] = {}
"""What is known of those that run, by their kinds."""


# --- what sinks hold, read without Penstock -----------------------------------------------------------


def rows_of(sink: str, uri: str, world: Path) -> list[Row]:
    """The rows of a sink."""
    scheme, _, place = uri.partition(":")
    place, _, asked = place.partition("?")
    if scheme == "sqlite":
        with closing(sqlite3.connect(place)) as connection:
            return sorted(connection.execute(f'SELECT * FROM "{sink}"').fetchall())
    if scheme == "delta":
        from deltalake import DeltaTable

        return _in_order(DeltaTable(place).to_pyarrow_table().to_pylist())
    if scheme == "iceberg":
        return _in_order(_iceberg(world / "lake.db"))
    if scheme == "kafka":
        return _in_order(_messages(*place.split("/")))
    if scheme == "postgresql":
        with psycopg.connect(f"{scheme}:{place}") as database:
            return sorted(database.execute(f"SELECT * FROM {asked.removeprefix('table=')}").fetchall())
    if place.startswith("s3a:"):
        return _in_order(_objects(place.removeprefix("s3a://")))
    if place.startswith("hdfs:"):
        return _in_order(_files_in_hdfs(urlsplit(place).path))
    if scheme == "log":
        return _in_order(_log(place, sink))
    directory = Path(place) if place else world / "runs" / "run" / "output" / sink
    if scheme == "parquet":
        return _in_order(row for path in directory.glob("[!._]*.parquet") for row in pq.read_table(path).to_pylist())
    return _in_order(json.loads(line) for path in directory.glob("[!._]*.jsonl") for line in path.read_bytes().splitlines())


def letters_of(world: Path) -> int:
    """How many dead letters there are."""
    return sum(len(path.read_bytes().splitlines()) for path in (world / "runs/run/dead-letters").glob("*.jsonl"))


def _iceberg(catalog: Path) -> list[dict[str, Any]]:
    from pyiceberg.table import StaticTable

    with closing(sqlite3.connect(catalog)) as connection:
        ((metadata,),) = connection.execute("SELECT metadata_location FROM iceberg_tables").fetchall()
    return StaticTable.from_metadata(metadata).scan().to_arrow().to_pylist()


def _messages(brokers: str, topic: str) -> Iterator[dict[str, Any]]:
    """The events in a topic whose transactions are committed."""
    return (json.loads(message.value()) for message in _committed(brokers, topic))


def _once_each(uri: str) -> list[Row]:
    """The events in a topic, by the identities that their messages have."""
    brokers, _, topic = uri.removeprefix("kafka:").partition("/")
    return _in_order({dict(one.headers())[ID_HEADER]: json.loads(one.value()) for one in _committed(brokers, topic)}.values())


def _committed(brokers: str, topic: str) -> Iterator[Message]:
    settings = {
        "bootstrap.servers": brokers,
        "group.id": "reader",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
    }
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    try:
        partitions = [TopicPartition(topic, number, 0) for number in consumer.list_topics(topic).topics[topic].partitions]
        consumer.assign(partitions)
        left = len(partitions)
        while left:
            message = consumer.poll(10)
            assert message is not None, "the broker does not answer"
            if message.error():
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                left -= 1
            else:
                yield message
    finally:
        consumer.close()


def _objects(place: str) -> Iterator[dict[str, Any]]:
    store = s3fs.S3FileSystem(endpoint_url=os.environ["AWS_ENDPOINT_URL"], skip_instance_cache=True)
    for path in store.glob(f"{place}/*.jsonl"):
        if not path.rpartition("/")[2].startswith("."):
            yield from map(json.loads, store.cat_file(path).splitlines())


def _hdfs() -> WebHDFS:
    host, _, port = os.environ["PENSTOCK_WEBHDFS"].partition(":")
    return WebHDFS(host, int(port), user="root", skip_instance_cache=True)


def _files_in_hdfs(directory: str) -> Iterator[dict[str, Any]]:
    store = _hdfs()
    for path in store.ls(directory, detail=False):
        if path.endswith(".jsonl") and not path.rpartition("/")[2].startswith("."):
            yield from map(json.loads, store.cat_file(path).splitlines())


def _log(place: str, sink: str) -> list[dict[str, Any]]:
    from penstock.connectors.log.log import EventLog

    log = EventLog(Path(place), create=False).stream({"Out": "Counts"}.get(sink, sink))
    return [json.loads(record.payload) for record in log.read(*log.bounds())]


def _in_order(rows: Iterable[dict[str, Any]]) -> list[Row]:
    return sorted(tuple(_plain(value) for value in row.values()) for row in rows)


def _plain(value: Any) -> Any:
    if isinstance(value, str) and value[:4] == "2026":
        value = datetime.fromisoformat(value)
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else "" if value is None else value


# --- words --------------------------------------------------------------------------------------------


def write_lines(directory: Path, files: list[list[bytes]], suffix: str, header: bytes = b"") -> None:
    """Files of lines, each a minute younger than the one before."""
    directory.mkdir(parents=True)
    for number, lines in enumerate(files):
        path = directory / f"{number:03d}.{suffix}"
        path.write_bytes(header + b"".join(line + b"\n" for line in lines))
        os.utime(path, (1_700_000_000 + 60 * number,) * 2)


def divided(rows: list[Any]) -> list[list[Any]]:
    """Rows in as many parts as there are files."""
    return [rows[number * len(rows) // FILES : (number + 1) * len(rows) // FILES] for number in range(FILES)]


def words_in(world: Path, kind: str = "jsonl") -> None:
    """Words as files."""
    pairs = list(enumerate(TEXTS))
    if kind == "csv":
        lines = [f"{text},{number}".encode() for number, text in pairs]
        write_lines(world / "in", divided(lines), "csv", b"text,number\n")
    else:
        lines = [json.dumps({"text": text, "number": number}).encode() for number, text in pairs]
        write_lines(world / "in", divided(lines), "jsonl")


def words_in_log(world: Path) -> None:
    """Words in a log."""
    from penstock.connectors.log.log import EventLog, Parcel

    stream = EventLog(world / "log").stream("Words")
    for part in divided(list(enumerate(TEXTS))):
        stream.append([Parcel([json.dumps({"text": text, "number": number}).encode() for number, text in part])])


def words_are_sent(world: Path, _: RunOptions) -> None:
    """A client sends all words, again at each start, to the store of an adapter's stream, under the names of their requests."""
    from penstock.adapter.store import LogStore
    from penstock.connectors.log.log import EventLog, Parcel

    log = EventLog(world / "log").stream("Words")
    store = LogStore(log)
    for request, part in enumerate(divided(list(enumerate(TEXTS)))):
        payloads = [json.dumps({"text": text, "number": number}).encode() for number, text in part]
        store.begin([Parcel(payloads, ids=[f"{request}-{number}" for number, _ in part])])()
    store.close()


def nothing_in(world: Path) -> None:
    """No input: each start brings its own."""


def words_in_store(world: Path) -> None:
    """Words as objects of a store."""
    directory = f"bucket/{(world / 'name').read_text()}-in"
    store = s3fs.S3FileSystem(endpoint_url=os.environ["AWS_ENDPOINT_URL"], skip_instance_cache=True)
    for number, part in enumerate(divided(list(enumerate(TEXTS)))):
        lines = "".join(json.dumps({"text": text, "number": place}) + "\n" for place, text in part)
        store.pipe_file(f"{directory}/{number:03d}.jsonl", lines.encode())


def words_in_hdfs(world: Path) -> None:
    """Words as files of HDFS."""
    directory, store = f"/{(world / 'name').read_text()}-in", _hdfs()
    store.mkdir(directory)
    for number, part in enumerate(divided(list(enumerate(TEXTS)))):
        with store.open(f"{directory}/{number:03d}.jsonl", "wb") as file:
            file.write("".join(json.dumps({"text": text, "number": place}) + "\n" for place, text in part).encode())


class Steered:
    """Wants another trigger after the first micro-batch, and another gate after the second."""

    def __init__(self, world: Path) -> None:
        self._committed = 0
        gate = {"Words": f"jsonl:{world}/in?max_files=2"}
        self._changes = {1: Change(0.5, "Slower."), 2: Change(0.0, "More at once.", gate)}

    def progressed(self, progress: dict[str, Any]) -> None:
        pass

    def committed(self, group: str, record: Any) -> None:
        self._committed += 1

    def wanted(self) -> Change | None:
        return self._changes.pop(self._committed, None)

    def changed(self, change: Change, *, restarted: bool) -> None:
        pass


def words_in_topic(world: Path) -> None:
    """Words in a topic of two partitions."""
    brokers, topic = SERVERS["kafka"]["at"], (world / "name").read_text() + "-in"
    client = AdminClient({"bootstrap.servers": brokers})
    for made in client.create_topics([NewTopic(topic, 2, 1)]).values():
        made.result()
    producer = Producer({"bootstrap.servers": brokers})
    for number, text in enumerate(TEXTS):
        producer.produce(topic, json.dumps({"text": text, "number": number}), partition=number % 2)
    producer.flush()


def counted() -> tuple[Rows, int]:
    """Each word that is not bad, and as often as it comes a count."""
    good = [(text, number) for number, text in enumerate(TEXTS) if text != "bad"]
    so_far: Counter[str] = Counter()
    counts = []
    for text, _ in good:
        so_far[text] += 1
        counts.append((text, so_far[text]))
    return {"Clean": sorted(good), "Out": sorted(counts)}, TEXTS.count("bad")


def counted_and_copied() -> tuple[Rows, int]:
    """The same, and each good word once more."""
    rows, letters = counted()
    return {**rows, "Copies": rows["Clean"]}, letters


def last_counted() -> tuple[Rows, int]:
    """The same, but of each word the last count."""
    rows, letters = counted()
    return {"Clean": rows["Clean"], "Out": sorted(Counter(text for text, _ in rows["Clean"]).items())}, letters


# --- events with times ----------------------------------------------------------------------------------

TIMES = [(f"k{second // 40}", BEGAN + timedelta(seconds=second)) for second in range(0, 320, 7)]
OTHERS = [(f"k{second // 40}", BEGAN + timedelta(seconds=second)) for second in range(3, 320, 21)]


def _timed_lines(rows: list[tuple[str, datetime]]) -> list[bytes]:
    return [json.dumps({"key": key, "at": at.isoformat()}).encode() for key, at in rows]


def times_in(world: Path) -> None:
    """Events in the order of their times."""
    write_lines(world / "in", divided(_timed_lines(TIMES)), "jsonl")


def spanned() -> tuple[Rows, int]:
    """How many of each key are in each minute, and how many of each key there are."""
    minutes = Counter((key, at.replace(second=0).isoformat()) for key, at in TIMES)
    keys = Counter(key for key, _ in TIMES)
    return {"Out": sorted((*each, seen) for each, seen in minutes.items()), "Alarms": sorted(keys.items())}, 0


def both_in(world: Path) -> None:
    """The two sides of a join."""
    write_lines(world / "left", divided(_timed_lines(TIMES)), "jsonl")
    write_lines(world / "right", divided(_timed_lines(OTHERS)), "jsonl")


def met() -> tuple[Rows, int]:
    """Each left event with each right one of its key up to 20 seconds later, or alone."""
    rows = []
    for key, at in TIMES:
        meets = [other for name, other in OTHERS if name == key and timedelta(0) <= other - at <= timedelta(seconds=20)]
        rows += [(key, at.isoformat(), other.isoformat()) for other in meets] or [(key, at.isoformat(), "")]
    return {"Out": sorted(rows)}, 0


# --- all of them ----------------------------------------------------------------------------------------

LAKE = "iceberg:lake/results.out?catalog.type=sql&catalog.uri=sqlite:///{0}/lake.db&catalog.warehouse=file://{0}/lake"
ONE_A_BATCH = {"Words": "jsonl:{}/in?max_files=1"}
FILES_OUT = Workload("jsonl", "words", ONE_A_BATCH, {}, words_in, counted)
TIMED = {"Timed": "jsonl:{}/in?max_files=1"}


def _into(name: str, uri: str, *, app: str = "words", **more: Any) -> Workload:
    expected = counted if app == "words" else last_counted
    return replace(FILES_OUT, name=name, app=app, sinks={"Out": uri}, expected=expected, **more)


def _run_before(workload: Workload, world: Path) -> None:
    """A whole run, which is then discarded."""
    from crashpoints.standin import Session

    workload.start(world, Session())


def _half_before(workload: Workload, world: Path) -> None:
    """The first half of the input, in two partitions; the start after it is to move the run to as many as it asks for."""
    later = sorted((world / "in").iterdir())[FILES // 2 :]
    for path in later:
        path.rename(world / path.name)
    command = [sys.executable, "-m", "crashpoints.on_spark", "--half", workload.name, str(world)]
    modules = os.pathsep.join((str(APPS.parents[2]), str(APPS.parents[1])))
    subprocess.run(command, env={**os.environ, "PYTHONPATH": modules}, check=True, start_new_session=True)
    for path in later:
        (world / path.name).rename(path)


def _rescale(world: Path, options: RunOptions) -> None:
    """What ``penstock rescale`` does, unless a start before has done it."""
    app, application = load_app(f"{APPS}:spans")
    try:
        rescale(app, options, application=application)
    except ConfigurationError as refused:
        if "nothing to move" not in str(refused):
            raise


def only(*sinks: str) -> Callable[[], tuple[Rows, int]]:
    """What must come out of events with times at some sinks."""
    return lambda: ({name: spanned()[0][name] for name in sinks}, 0)


SPANS = Workload("windows", "spans", TIMED, {}, times_in, spanned)

WORKLOADS = [
    FILES_OUT,
    _into("parquet", "parquet:{}/out"),
    _into("sqlite", "sqlite:{}/out.db"),
    _into("sqlite-key", "sqlite:{}/out.db", app="latest"),
    _into("delta", "delta:{}/out"),
    _into("delta-key", "delta:{}/out", app="latest"),
    _into("iceberg", LAKE),
    _into("iceberg-key", LAKE, app="latest"),
    _into("log", "log:{}/log", sources={"Words": "log:{}/log?max_rows=5"}, prepare=words_in_log),
    _into("spool", "log:{}/log", sources={"Words": "log:{}/log?max_rows=5"}, prepare=nothing_in, first=words_are_sent),
    replace(FILES_OUT, name="csv", sources={"Words": "csv:{}/in?max_files=1"}, prepare=lambda world: words_in(world, "csv")),
    replace(FILES_OUT, name="two-sinks", sinks={"Out": "sqlite:{}/out.db", "Clean": "delta:{}/clean"}),
    replace(FILES_OUT, name="two-groups", groups={"Counter": "second"}),
    _into("two-groups-sqlite", "sqlite:{}/out.db", groups={"Counter": "second"}),
    Workload(
        "two-readers",
        "shared",
        ONE_A_BATCH,
        {},
        words_in,
        counted_and_copied,
        groups={"Counter": "second", "copy": "third"},
        paces={"third": 4},
    ),
    SPANS,
    replace(SPANS, name="windows-two-groups", groups={"Watcher": "second"}),
    Workload("columns", "columns", TIMED, {"Alarms": "sqlite:{}/out.db"}, times_in, only("Alarms")),
    replace(SPANS, name="query", app="planned", expected=only("Out"), by_spark=True, ledger="main-SpannedAggregate"),
    replace(SPANS, name="moved", before=_half_before, options={"partitions": 3}, by_spark=True, ledger="main@1"),
    replace(
        SPANS,
        name="rescaled",
        before=_half_before,
        first=_rescale,
        options={"partitions": 3},
        groups={"Watcher": "second"},
        by_spark=True,
    ),
    Workload("join", "meets", {"Lefts": "jsonl:{}/left?max_files=1", "Rights": "jsonl:{}/right?max_files=1"}, {}, both_in, met),
    replace(FILES_OUT, name="steered", steering=Steered),
    replace(FILES_OUT, name="fresh", before=_run_before, options={"fresh": True}),
    _into("postgresql", "{at}?table={name}", server="postgresql"),
    _into("postgresql-key", "{at}?table={name}", app="latest", server="postgresql"),
    _into("kafka", "kafka:{at}/{name}", server="kafka", repeats_when_paused=True),
    _into("kafka-transactions", "kafka:{at}/{name}?transactions=yes", server="kafka"),
    replace(
        FILES_OUT, name="kafka-in", sources={"Words": "kafka:{at}/{name}-in?max_rows=5"}, prepare=words_in_topic, server="kafka"
    ),
    replace(FILES_OUT, name="hop-by-topic", groups={"Counter": "second"}, hops="kafka:{at}", server="kafka"),
    _into("s3", "jsonl:s3a://bucket/{name}", server="s3"),
    replace(
        FILES_OUT,
        name="s3-in",
        sources={"Words": "jsonl:s3a://bucket/{name}-in?max_files=1"},
        prepare=words_in_store,
        server="s3",
    ),
    _into("hdfs", "jsonl:{at}/{name}", server="hdfs"),
    replace(
        FILES_OUT, name="hdfs-in", sources={"Words": "jsonl:{at}/{name}-in?max_files=1"}, prepare=words_in_hdfs, server="hdfs"
    ),
    _into("fresh-sqlite", "sqlite:{}/out.db", before=_run_before, options={"fresh": True}),
]
