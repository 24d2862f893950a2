"""Kafka, PostgreSQL, the log and the adapter on Spark."""

import fcntl
import json
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import apps_words
import httpx
import psycopg
import pytest
from apps_engine import MOMENT, stamp, stamped, stamps
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import functions as F
from secure import PASSWORD, SECRET

from penstock.adapter import EventLog
from penstock.app.loader import load_app
from penstock.app.stream import Sink, Source, Stream
from penstock.bench.servers.process import free_port
from penstock.connectors import Uri
from penstock.connectors.kafka.courier import Courier
from penstock.connectors.kafka.place import KafkaPlace
from penstock.connectors.kafka.sink import KafkaHopSink
from penstock.connectors.kafka.source import KafkaSource
from penstock.connectors.kafka.topic import Topic, name_of
from penstock.connectors.registry import bind_sinks, connector
from penstock.engine import RunOptions, run
from penstock.engine.query.native import conform
from penstock.engine.running.realtime import messages as messages_of
from penstock.engine.running.realtime import run_real_time
from penstock.errors import ConfigurationError, RunFailedError, RunLockedError, SinkError, SourceError
from penstock.kinds.text import joined, text_of
from penstock.planner import observe
from penstock.runs.follower import Follower
from penstock.runs.letters import letters_of
from penstock.runs.overview import overview
from penstock.runtime.output import SinkFiles
from penstock.testing.contracts import Sample, stage
from penstock.ui.causes import causes
from penstock.ui.forecast import Forecast
from penstock.ui.snapshot import snapshot

APPS = Path(__file__).parent / "apps_words.py"
ENGINE = Path(__file__).parent / "apps_engine.py"


def produce(broker, topic, *values, **options):
    Topic(KafkaPlace(broker.brokers, topic), create=True)
    producer = Producer({"bootstrap.servers": broker.brokers})
    for value in values:
        producer.produce(topic, value if isinstance(value, bytes) else json.dumps(value), **options)
    producer.flush()


def messages(broker, topic):
    topic = Topic(KafkaPlace(broker.brokers, topic))
    lows, ends = ({partition: place[side] for partition, place in topic.bounds().items()} for side in (0, 1))
    return [message for some in topic.read(lows, ends) for message in some]


def words(*texts):
    return [{"text": text} for text in texts]


def test_from_kafka_over_kafka_to_kafka(run_app, broker):
    """A source, a hop between two groups and a sink, all topics; and again, to resume."""
    produce(broker, "in", *words("a", "b", "a"), b"no json")
    options = {
        "file": APPS,
        "sources": {"Words": f"kafka:{broker.brokers}/in?max_rows=1000&min_rows=2&max_delay=1s&kafka.client.id=hush"},
        "sinks": {"Out": f"kafka:{broker.brokers}/out"},
        "groups": {"Counter": "second"},
        "hops": f"kafka:{broker.brokers}",
    }
    result = run_app("app", **options)
    counts = result.report["counts"]
    assert (counts["accepted"], counts["processed"], counts["dead_lettered"]) == (4, 3, 1)
    assert counts["lost"] == counts["duplicated"] == counts["queued"] == 0
    assert {count.text: count.seen for count in result.output("Out")} == {"a": 2, "b": 1}
    assert result.report["lag"] == {"Words": {"0": 0, "1": 0}}
    assert sorted(message.key() for message in messages(broker, "out")) == [b"a", b"b"]
    assert all(name_of(message) for message in messages(broker, "out"))
    recorded = [result.directory / name for name in ("starts.jsonl", "manifest.json")]
    assert not any("hush" in file.read_text() for file in recorded)  # it might be a password
    produce(broker, "in", *words("a", "c"))
    counts = run_app("app", **options).report["counts"]
    assert (counts["accepted"], counts["processed"], counts["lost"]) == (6, 5, 0)
    last = {json.loads(message.value())["text"]: json.loads(message.value())["seen"] for message in messages(broker, "out")}
    assert last == {"a": 3, "b": 1, "c": 1}


@pytest.mark.spark
def test_a_partition_that_lags_is_named_while_a_run_is_on(broker, spark, tmp_path):
    """On a real terminal, and by what the page and the metrics are made of; the summary at the end says it, too."""
    spark.leave()
    produce(broker, "skewed", *words(*"ab" * 10), partition=0)
    produce(broker, "skewed", *words(*"ab" * 2_000), partition=1)
    command = [
        sys.executable,
        "-m",
        "penstock",
        "run",
        f"{APPS}:app",
        "--runs",
        str(tmp_path),
        "--name",
        "lag",
        "--trigger",
        "1 s",
        "--source",
        f"Words=kafka:{broker.brokers}/skewed?max_rows=100",
        "--duration",
        "30 s",
        "--master",
        "local[2]",
    ]
    leader, follower_end = pty.openpty()
    fcntl.ioctl(follower_end, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 300, 0, 0))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=follower_end, text=True) as running:
        os.close(follower_end)
        seen = ""
        with suppress(OSError):  # the terminal ends with the run
            while some := os.read(leader, 65_536):
                seen += some.decode(errors="replace")
        summary = running.stdout.read()
    os.close(leader)
    assert running.returncode == 0
    assert re.search(r"waiting at Words: [\d,]+, of them [\d,]+ in partition 1", seen)
    assert re.search(r"lag +Words: [\d,]+, of them [\d,]+ in partition 1 \(measured\)", summary)
    recorded = Follower(tmp_path / "lag")
    lag = snapshot(recorded, Forecast())["lately"]["lag"]["Words"]
    report = json.loads((tmp_path / "lag" / "report.json").read_text())["lag"]["Words"]
    assert lag.keys() == report.keys()
    assert sum(lag.values()) - sum(report.values()) in (0, 100)  # the progress may lack the last micro-batch
    assert "skewed partition" in [one.kind for one in causes(recorded, [], "running")]


def test_a_crash_after_sending_to_kafka_doubles_nothing(run_app, broker, tmp_path, monkeypatch):
    produce(broker, "crash-in", *words("a", "b", "a"))
    options = {
        "file": APPS,
        "sources": {"Words": f"kafka:{broker.brokers}/crash-in"},
        "sinks": {"Out": f"kafka:{broker.brokers}/crash"},
    }
    send = Courier.send

    def send_one_and_fail(self, group, batch, messages):
        send(self, group, batch, list(messages)[:1])
        raise SinkError("the broker has gone")

    monkeypatch.setattr(Courier, "send", send_one_and_fail)
    with pytest.raises(RunFailedError, match="the broker has gone"):
        run_app("app", **options)
    assert len(messages(broker, "crash")) == 1
    monkeypatch.undo()
    run_app("app", **options)
    assert sorted(json.loads(message.value())["text"] for message in messages(broker, "crash")) == ["a", "b"]


@pytest.mark.slow
@pytest.mark.parametrize(("options", "events"), [("", 4), ("?kafka.isolation.level=read_uncommitted", 6)])
def test_what_a_transaction_leaves_behind_is_no_event(run_app, broker, options, events):
    """Aborted messages are none, and a transaction's end takes an offset."""
    topic = f"transactions-{events}"
    Topic(KafkaPlace(broker.brokers, topic), create=True)
    producer = Producer({"bootstrap.servers": broker.brokers, "transactional.id": topic})
    producer.init_transactions()
    for texts, end in (("ab", "commit"), ("xy", "abort"), ("a", "commit"), ("c", "commit")):
        producer.begin_transaction()
        for text in texts:
            producer.produce(topic, json.dumps({"text": text}))
        producer.flush()
        getattr(producer, f"{end}_transaction")()
    result = run_app("app", file=APPS, sources={"Words": f"kafka:{broker.brokers}/{topic}{options}"})
    counts = result.report["counts"]
    assert (counts["accepted"], counts["processed"]) == (events, events)
    assert counts["lost"] == counts["duplicated"] == counts["queued"] == 0
    assert counts["uncounted_sources"] == []


@pytest.mark.slow
@pytest.mark.parametrize(("listener", "options"), [("LOGIN", {}), ("LOGIN", {"sasl_mechanism": "OAUTHBEARER"}), ("MUTUAL", {})])
def test_topics_whose_brokers_ask_for_proof(run_app, secure, tmp_path, listener, options):
    """Source, hop and sink; and no file of the run holds the password, or the key."""
    way = "-".join([listener, *options.values()])
    place = KafkaPlace.of(Uri.parse(secure.uri(f"in-{way}", listener, **options)))
    producer = Producer(Topic(place, create=True).settings)
    for text in "aba":
        producer.produce(place.topic, json.dumps({"text": text}))
    producer.flush()
    result = run_app(
        "app",
        file=APPS,
        sources={"Words": secure.uri(place.topic, listener, **options)},
        sinks={"Out": secure.uri(f"out-{way}", listener, **options)},
        groups={"Counter": "second"},
        hops=secure.uri("", listener, **options).replace("/?", "?"),
    )
    assert {count.text: count.seen for count in result.output("Out")} == {"a": 2, "b": 1}
    assert result.report["counts"]["lost"] == result.report["counts"]["queued"] == 0
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    secrets = [SECRET.encode(), PASSWORD.encode(), PASSWORD.split('"')[1].encode(), secure.key.read_bytes().splitlines()[-3]]
    assert not [file for file in files for secret in secrets if secret in file.read_bytes()]


def test_a_user_who_may_do_no_more_than_a_run_needs(run_app, secure):
    """What the how-to names is enough, and with less Spark is not even started."""
    secure.create("acl-in")
    secure.create("acl-out")
    producer = Producer({"bootstrap.servers": secure.broker.brokers})
    for text in "aba":
        producer.produce("acl-in", json.dumps({"text": text}))
    producer.flush()
    secure.allow("acl-in", "WRITE")
    secure.allow("acl-out", "READ", "WRITE")
    secure.allow("penstock/", "WRITE", "DESCRIBE", kind="TRANSACTIONAL_ID", prefix=True)
    secure.allow("penstock/", "READ", kind="GROUP", prefix=True)
    options = {
        "file": APPS,
        "sources": {"Words": secure.uri("acl-in", sasl_username="carol")},
        "sinks": {"Out": secure.uri("acl-out", sasl_username="carol") + "&transactions=yes"},
    }
    with pytest.raises(SourceError, match="may not read this topic"):
        run_app("app", **options)
    secure.allow("acl-in", "READ")
    result = run_app("app", **options)
    assert {count.text: count.seen for count in result.output("Out")} == {"a": 2, "b": 1}
    assert result.report["counts"]["lost"] == result.report["counts"]["queued"] == 0


COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "200",
    "min.cleanable.dirty.ratio": "0.001",
    "max.compaction.lag.ms": "100",
}


def compact(broker, topic):
    """Wait until the broker has compacted more of a topic than before."""
    before = without_message(broker, topic)
    for _ in range(60):
        produce(broker, topic, {"text": "z"}, key="last")  # which closes the segment before it
        time.sleep(1)
        if without_message(broker, topic) > before:
            return
    raise AssertionError(f"{topic} was not compacted")


def without_message(broker, topic):
    """How many of a topic's offsets have no message."""
    bounds = Topic(KafkaPlace(broker.brokers, topic)).bounds().values()
    return sum(end - low for low, end in bounds) - len(messages(broker, topic))


@pytest.mark.slow
def test_offsets_without_messages_in_a_compacted_topic_are_not_lost(run_app, broker):
    client = AdminClient({"bootstrap.servers": broker.brokers})
    [made] = client.create_topics([NewTopic("compacted", config=COMPACTED)]).values()
    made.result()
    for key in "abcd" * 50:
        produce(broker, "compacted", {"text": key}, key=key)
    compact(broker, "compacted")
    options = {"file": APPS, "sources": {"Words": f"kafka:{broker.brokers}/compacted"}}
    there = len(messages(broker, "compacted"))
    counts = run_app("app", **options).report["counts"]
    assert counts["lost"] == counts["duplicated"] == counts["queued"] == 0
    assert 0 < counts["processed"] <= there
    for key in "abcd":
        produce(broker, "compacted", {"text": key}, key=key)
    compact(broker, "compacted")  # some of what was read is no more, so nobody can count it
    counts = run_app("app", **options).report["counts"]
    assert counts["lost"] == counts["duplicated"] == counts["queued"] == 0
    assert counts["uncounted_sources"] == ["Words"]


def test_messages_that_retention_has_deleted_are_said_to_be_lost(run_app, broker):
    topic = f"gone-{time.time_ns()}"
    produce(broker, topic, {"text": "a"}, partition=0)
    options = {"file": APPS, "sources": {"Words": f"kafka:{broker.brokers}/{topic}"}}
    run_app("app", **options)
    produce(broker, topic, {"text": "b"}, {"text": "c"}, partition=0)
    admin = AdminClient({"bootstrap.servers": broker.brokers})
    for deleted in admin.delete_records([TopicPartition(topic, 0, 2)]).values():
        deleted.result(20)
    with pytest.raises(RunFailedError, match="no longer in the topic.*They are lost.*--fresh.*retention.ms") as refused:
        run_app("app", **options)
    assert "Nothing is lost" not in str(refused.value)


def test_a_topic_that_is_made_anew_while_a_run_is_on_stops_it(run_app, broker, tmp_path):
    """Spark would go on behind the offset that it has reached, and pass over what the new topic begins with."""
    topic = f"anew-{time.time_ns()}"
    produce(broker, topic, {"text": "a"}, {"text": "b"}, partition=0)
    sources = {"Words": f"kafka:{broker.brokers}/{topic}"}
    ledger = tmp_path / "runs" / "app" / "batches-main.jsonl"
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(run_app, "app", file=APPS, sources=sources, until_idle=False, duration=90.0)
        deadline = time.monotonic() + 60
        while not (ledger.exists() and ledger.read_bytes()) and time.monotonic() < deadline:
            time.sleep(0.1)
        admin = AdminClient({"bootstrap.servers": broker.brokers})  # must outlive its answer
        admin.delete_topics([topic])[topic].result(20)
        time.sleep(1)
        produce(broker, topic, {"text": "c"}, partition=0)
        failure = running.exception(timeout=120)
    assert isinstance(failure, SourceError | RunFailedError), failure
    # Spark may be the first to notice, by the messages that it misses.
    assert re.search("made anew|there is no such topic|no longer in the topic", str(failure))
    with pytest.raises(ConfigurationError, match="Source Words is another kafka than the one"):
        run_app("app", file=APPS, sources=sources)


def test_tables_and_the_log_take_a_batch_together(run_app, postgres, tmp_path):
    log = EventLog(tmp_path / "spool")
    log.append("Words", [json.dumps({"text": text}).encode() for text in ("a", "b", "a", "nul \0", "c")])
    spool = f"log:{tmp_path / 'spool'}"
    options = {
        "file": APPS,
        "sources": {"Words": f"{spool}?max_rows=3"},
        "sinks": {"Out": spool, "Copy": postgres.uri, "Third": f"sqlite:{tmp_path / 'third.sqlite'}"},
    }
    result = run_app("several", **options)
    seen = {"a": 2, "b": 1, "c": 1}
    assert {count.text: count.seen for count in result.output("Copy")} == seen
    assert {count.text: count.seen for count in result.output("Third")} == seen | {"nul \0": 1}
    [letter] = result.dead_letters
    assert "the character NUL" in letter["error"]
    stream = EventLog(tmp_path / "spool").stream("Counts")
    assert json.loads(stream.latest("a").payload) == {"text": "a", "seen": 2}
    log.append("Words", [b'{"text":"a"}'])
    assert {count.text: count.seen for count in run_app("several", **options).output("Copy")} == seen | {"a": 3}
    with pytest.raises(SinkError, match="is not of this run"):
        run_app("several", name="another", **options)
    with psycopg.connect(postgres.uri) as connection:
        assert connection.execute('SELECT count(*) FROM "Copy"').fetchone() == (3,)


def test_what_spark_is_told_of_a_topic(broker):
    Topic(KafkaPlace(broker.brokers, "gated"), create=True)
    text = f"kafka:{broker.brokers}/gated?min_rows=10&max_rows=500&max_delay=250ms&start=latest&kafka.client.id=me"
    uri = Uri.parse(text)
    source = KafkaSource(Source("Words", apps_words.Word), uri, connector("sources", "kafka").read(uri))
    gate = {"minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "500", "maxTriggerDelay": "250ms"}
    assert gate.items() <= source.reading(None, 0).options.items()
    assert source.options()["kafka.client.id"] == "me"
    assert source.options()["startingOffsets"] == "latest"


@pytest.mark.parametrize(
    ("uri", "error", "sentence"),
    [
        ("kafka:127.0.0.1:9/in", SourceError, "cannot be reached"),
        ("kafka:BROKERS/not-there", SourceError, "there is no such topic"),
        ("kafka:BROKERS", ConfigurationError, "write kafka:HOST:PORT/TOPIC"),
        ("kafka:BROKERS/in?start=middle", ConfigurationError, "earliest, latest"),
        ("kafka:BROKERS/in?min_rows=9&max_rows=2", ConfigurationError, "min_rows=9 is above"),
        ("kafka:BROKERS/in?rows=9", ConfigurationError, "takes no option"),
        ("kafka:BROKERS/in?key=word", ConfigurationError, "key=word is no field of Word, which has text, size"),
    ],
)
def test_topics_that_cannot_be_read(run_app, broker, uri, error, sentence, monkeypatch):
    monkeypatch.setattr("penstock.connectors.kafka.topic.PATIENCE_S", 1.0)
    with pytest.raises(error, match=sentence):
        run_app("app", file=APPS, sources={"Words": uri.replace("BROKERS", broker.brokers)})


@pytest.mark.parametrize(
    ("header", "sentence"),
    [("penstock-id=text", "penstock-id is Penstock's own"), ("count=size", "count=size is no field of Count")],
)
def test_headers_that_cannot_be_written(header, sentence, tmp_path):
    sink = Sink("Out", Stream("Counts", apps_words.Count), f"kafka:broker:9092/out?header.{header}")
    with pytest.raises(ConfigurationError, match=sentence):
        bind_sinks([sink], {}, tmp_path)


def test_a_batch_is_known_to_the_log_however_late_it_comes_again(tmp_path):
    stream = Stream("Counts", Sample)
    sink = bind_sinks([Sink("Out", stream, f"log:{tmp_path / 'spool'}", ("name",))], {}, tmp_path / "output")["Out"]
    sink.claim("r1", ())
    for _ in range(2):
        sink.deliver("main", 0, stage(sink, [Sample("a", 1)]))
        EventLog(tmp_path / "spool").stream("Counts").expire(0, time.time() + 10)  # all ids are forgotten
    assert len(sink.read()) == 1


ADA = {"firstName": "Ada"}


def test_groups_hand_on_times_of_all_kinds_by_topics(run_app, broker):
    produce(broker, "handed-in", ADA)
    sources, hops = {"Persons": f"kafka:{broker.brokers}/handed-in"}, f"kafka:{broker.brokers}"
    result = run_app("handed", file=ENGINE, sources=sources, hops=hops)
    assert (result.output("Out"), result.report["counts"]["dead_lettered"]) == ([MOMENT], 0)


def test_a_querys_keys_are_in_the_words_of_other_dialects(run_app, broker, spark):
    produce(broker, "stamps-in", ADA)
    at = f"kafka:{broker.brokers}/stamps"
    run_app("stamped", file=ENGINE, sources={"Persons": f"{at}-in"}, sinks={"Out": f"{at}-out?header.at=at_noon&header.by=by"})
    [written] = messages(broker, "stamps-out")
    key = joined(map(text_of, (MOMENT.how_long, MOMENT.at_noon, MOMENT.local)))
    headers = {"at": text_of(MOMENT.at_noon).encode(), "by": MOMENT.by}
    assert written.key().decode() == key
    assert headers.items() <= dict(written.headers()).items()
    frame = conform("stamp", stamp(spark.get().range(1)), stamps)
    [real_time] = messages_of(frame, stamped.topology().sinks[0], {"at": "at_noon", "by": "by"}).collect()
    assert (real_time.key.decode(), real_time.value.encode()) == (key, written.value())
    assert {header.key: bytes(header.value) for header in real_time.headers} == headers
    sink = Sink("Out", stamps, None, ("by",))
    [by_bytes] = messages_of(frame, sink, {}).collect()
    assert by_bytes.key == MOMENT.by


@pytest.mark.parametrize(
    "length", [timedelta(0), timedelta(days=3), timedelta(days=-1), timedelta(days=2, seconds=10), timedelta(microseconds=10)]
)
def test_lengths_of_time_are_in_the_words_of_other_dialects(spark, length):
    frame = stamp(spark.get().range(1)).withColumn("how_long", F.lit(length))
    [message] = messages_of(frame, stamped.topology().sinks[0], {}).collect()
    assert message.key.decode().partition("/")[0] == joined([text_of(length)])


# --- real-time mode ---------------------------------------------------------------------------------


def real_time(which, broker, tmp_path, spark, **options):
    spark.leave()
    app, reference = load_app(f"{APPS}:{which}")
    given = {
        "sources": {"Words": f"kafka:{broker.brokers}/rt-in"},
        "sinks": {"Out": f"kafka:{broker.brokers}/rt-out"},
        "until_idle": True,
        "quiet": True,
        "master": "local[8]",
        "partitions": 1,
        "runs": tmp_path,
        "checkpoint_every": 5.0,
    }
    return run_real_time(app, RunOptions(**{**given, **options}), application=reference)


def test_real_time_mode_counts_and_keeps_dead_letters(broker, tmp_path, spark):
    produce(broker, "rt-in", *words("a", "b", "a"), b"garbage", {"size": 1})
    result = real_time("native", broker, tmp_path, spark)
    assert result.report["counts"] == {"accepted": 5, "processed": 3, "dead_lettered": 2, "queued": 0}
    counted = [json.loads(message.value()) for message in messages(broker, "rt-out")]
    assert max(each["seen"] for each in counted if each["text"] == "a") == 2
    assert sorted(letter["raw"] for letter in result.dead_letters) == ["garbage", '{"size": 1}']
    with pytest.raises(ConfigurationError, match="Sink Out is kafka:.*read the topic"):
        result.output("Out")
    _is_known_as_in_real_time(result.directory)
    app, reference = load_app(f"{APPS}:native")
    places = {"sources": {"Words": f"kafka:{broker.brokers}/rt-in"}, "sinks": {"Out": f"kafka:{broker.brokers}/rt-out"}}
    with pytest.raises(ConfigurationError, match="was begun in real time, and would now run in micro-batches"):
        run(app, RunOptions(**places, runs=tmp_path, until_idle=True, quiet=True), application=reference)
    produce(broker, "rt-in", {}, key="a")
    produce(broker, "rt-in", *words("a"), headers={"length": b"seven"})
    fields = {
        "sources": {"Words": f"kafka:{broker.brokers}/rt-in?key=text&header.length=size"},
        "sinks": {"Out": f"kafka:{broker.brokers}/rt-out?header.count=seen"},
    }
    counts = real_time("native", broker, tmp_path, spark, **fields).report["counts"]
    assert counts == {"accepted": 7, "processed": 4, "dead_lettered": 3, "queued": 0}
    last = messages(broker, "rt-out")[-1]
    assert (last.key(), dict(last.headers())["count"]) == (b"a", b"3")
    counted = [json.loads(message.value()) for message in messages(broker, "rt-out")]
    assert max(each["seen"] for each in counted if each["text"] == "a") == 3


def test_real_time_mode_takes_each_message_or_says_why_not(broker, tmp_path, spark):
    """Two events in one message, one that is too large for a letter, one in a transaction; and letters of a run before."""
    source = {"Words": f"kafka:{broker.brokers}/rt-odd"}
    options = {"sources": source, "sinks": {"Out": f"kafka:{broker.brokers}/rt-odd-out"}, "name": "odd"}
    twice = b'{"text": "a"}\n{"text": "b"}'
    produce(broker, "rt-odd", *words("a"), twice, b"[" + twice, bytes(200_000))
    producer = Producer({"bootstrap.servers": broker.brokers, "transactional.id": "odd"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("rt-odd", json.dumps({"text": "c"}), partition=0)
    producer.commit_transaction(30)
    result = real_time("native", broker, tmp_path, spark, **options)
    counts = result.report["counts"]
    assert (counts["dead_lettered"], counts["queued"]) == (3, 0)
    assert {json.loads(message.value())["text"] for message in messages(broker, "rt-odd-out")} == {"a", "c"}
    errors = {letter["raw"][:1]: letter["error"] for letter in result.dead_letters}
    assert errors["{"] == "is no single Word in JSON"
    assert errors["\0"].endswith("cut, of 200000 characters")
    with pytest.raises(ConfigurationError, match="--duration is 4 s and --checkpoint-every 5 s"):
        real_time("native", broker, tmp_path, spark, **options, duration=4.0)
    manifest = result.directory / "manifest.json"
    kept = manifest.read_text()
    manifest.write_text(json.dumps({**json.loads(kept), "places": {"Other": json.loads(kept)["places"]["Out"]}}))
    with pytest.raises(ConfigurationError, match="The sinks were Other when this run began, and are now Out"):
        real_time("native", broker, tmp_path, spark, **options)
    manifest.write_text(kept)
    again = real_time("native", broker, tmp_path, spark, **options, fresh=True)
    assert again.report["counts"] == counts
    produce(broker, "rt-odd", *words("e", "f", "g", "h"))
    delete_first(broker, "rt-odd", 99)
    with pytest.raises(SourceError, match="has deleted messages of partition . that the run had not read"):
        real_time("native", broker, tmp_path, spark, **options)


def delete_first(broker, topic, count):
    """Delete the first messages of each partition, as retention does."""
    admin = AdminClient({"bootstrap.servers": broker.brokers})
    ends = {partition: end for partition, (_, end) in Topic(KafkaPlace(broker.brokers, topic)).bounds().items()}
    places = [TopicPartition(topic, partition, min(end, count)) for partition, end in ends.items()]
    for done in admin.delete_records(places).values():
        done.result(30)


def test_real_time_mode_counts_from_where_it_began(broker, tmp_path, spark):
    source = f"kafka:{broker.brokers}/rt-late?start=latest"
    options = {"sources": {"Words": source}, "sinks": {"Out": f"kafka:{broker.brokers}/rt-late-out"}}
    produce(broker, "rt-late", *words("old", "older"), b"garbage")
    assert real_time("native", broker, tmp_path, spark, **options).report["counts"]["accepted"] == 0
    produce(broker, "rt-late", *words("a", "b"), b"more garbage")
    result = real_time("native", broker, tmp_path, spark, **options)
    assert result.report["counts"] == {"accepted": 3, "processed": 2, "dead_lettered": 1, "queued": 0}
    assert [letter["raw"] for letter in result.dead_letters] == ["more garbage"]
    another = real_time("native", broker, tmp_path, spark, **options, name="another")  # the letter is of the one before
    assert another.report["counts"] == {"accepted": 0, "processed": 0, "dead_lettered": 0, "queued": 0}


def _is_known_as_in_real_time(directory):
    """By what looks into a run's directory: there is no ledger to count by, and no letter in it."""
    found = overview(directory)
    assert (found.accepted, found.dead_lettered, found.p95_s) == (5, 2, None)
    assert found.batches >= 2
    with pytest.raises(SourceError, match="dead letters are messages of kafka:.*/rt-in-dead-letters"):
        list(letters_of(directory))
    with pytest.raises(SourceError, match="ran in real time.*without --real-time"):
        observe(directory)


def test_real_time_mode_needs_no_slots_but_those_it_asks_for(broker, tmp_path):
    """In a session of its own: nothing of ours may run beside it there."""
    produce(broker, "slots-in", *words("a", "b", "a"), b"garbage")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "penstock",
            "run",
            f"{APPS}:native",
            "--real-time",
            "--checkpoint-every",
            "5s",
            "--master",
            "local[5]",
            "--partitions",
            "1",
            "--source",
            f"Words=kafka:{broker.brokers}/slots-in",
            "--sink",
            f"Out=kafka:{broker.brokers}/slots-out",
            "--until-idle",
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "4 events accepted = 3 processed + 1 dead-lettered + 0 queued" in done.stdout
    assert "dead letters        in the topic slots-in-dead-letters" in done.stdout


def test_a_sink_and_a_stream_of_one_name_do_not_fence_each_other(broker, tmp_path):
    """Both send by transactions, from one group."""
    app, _ = load_app(f"{APPS}:app")
    stream, place = app.topology().stream("Counts"), KafkaPlace(broker.brokers, "of-one-name")
    sink = Sink("Counts", stream, "")
    uri = f"kafka:{broker.brokers}/of-one-name?transactions=yes"
    own = bind_sinks([sink], {"Counts": uri}, tmp_path / "output")["Counts"]
    files = SinkFiles("Counts", "parquet", str(tmp_path / "hops"), role="hop")
    hop = KafkaHopSink(stream, place, tmp_path, files, transactions=True)
    for each in (own, hop):
        each.claim("run-of-one-name", ())
        assert each.reached("main") is None
        each._courier.begin("main")
    for each in (own, hop):
        each._courier.send("main", 0, ())
        assert each.reached("main") == 0
    follower = KafkaHopSink(stream, place, tmp_path, files, transactions=True)
    follower.claim("run-of-one-name", ())
    assert follower.reached("main") == 0
    with pytest.raises(RunLockedError, match="another driver delivers for this run"):
        hop._courier.begin("main")  # by a driver that wakes: it would set the record back
    assert follower._courier._looked_up("main") == 0


def test_the_same_topology_counts_in_micro_batches(run_app, broker):
    """And fields of events come from keys and headers, and go there."""
    produce(broker, "mb-in", *words("a", "b"), b"garbage")
    produce(broker, "mb-in", {}, {"text": "b"}, key="a", headers={"length": b"7"})
    produce(broker, "mb-in", *words("a"), headers={"length": b"seven"})
    produce(broker, "mb-in", *words("a"), key=b"\xff")
    options = {
        "sources": {"Words": f"kafka:{broker.brokers}/mb-in?key=text&header.length=size"},
        "sinks": {"Out": f"kafka:{broker.brokers}/mb-out?header.count=seen"},
    }
    result = run_app("native", file=APPS, **options)
    assert {count.text: count.seen for count in result.output("Out")} == {"a": 3, "b": 1}
    assert result.report["counts"]["dead_lettered"] == 3
    assert any("Expected `int`, got `str` - at `$.size`" in letter["error"] for letter in result.dead_letters)
    written = {message.key(): dict(message.headers())["count"] for message in messages(broker, "mb-out")}
    assert written == {b"a": b"3", b"b": b"1"}


@pytest.mark.parametrize(
    ("which", "options", "sentence"),
    [
        ("app", {}, "Element keep is of the event dialect"),
        ("lasting", {}, "reads no lengths of time from JSON, and Lasting has length"),
        ("windowed", {}, "Element sums is a window or a join"),
        ("native", {"sinks": {}}, "Sink Out is jsonl:.*writes to Kafka only"),
        ("native", {"sources": {"Words": "jsonl:."}}, "reads Kafka only"),
        ("native", {"master": "local[1]"}, "slots: use --master local"),
        ("native", {"checkpoint_every": 1.0}, "5 s at least"),
    ],
)
def test_real_time_mode_says_what_prevents_it(broker, tmp_path, spark, which, options, sentence):
    Topic(KafkaPlace(broker.brokers, "rt-in"), create=True)
    with pytest.raises(ConfigurationError, match=sentence):
        real_time(which, broker, tmp_path, spark, **options)


def test_real_time_mode_reads_a_topic_once(broker, tmp_path, spark):
    """By whose offsets it counts."""
    Topic(KafkaPlace(broker.brokers, "rt-in"), create=True)
    sources = dict.fromkeys(("Words", "More"), f"kafka:{broker.brokers}/rt-in")
    with pytest.raises(ConfigurationError, match="Sources Words and More both read a topic called rt-in"):
        real_time("twice", broker, tmp_path, spark, sources=sources)


# --- a run with its adapter ---------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_with_an_adapter_survives_kills_of_both(tmp_path):
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [
        sys.executable,
        "-m",
        "penstock",
        "run",
        f"{APPS}:app",
        "--adapter",
        "--port",
        str(port),
        "--spool",
        str(tmp_path / "spool"),
        "--runs",
        str(tmp_path),
        "--name",
        "run",
    ]

    def start():
        process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
        await_answer("/health")
        return process

    def await_answer(path):
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            try:
                answer = httpx.get(url + path)
                if answer.status_code == 200:
                    return answer.json()
            except httpx.TransportError:
                pass
            time.sleep(0.1)
        raise AssertionError(path)

    def send(*texts):
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                return httpx.post(f"{url}/streams/Words", json=words(*texts)).json()
            except httpx.TransportError:
                time.sleep(0.1)
        raise AssertionError(texts)

    process = start()
    assert send("a", "b")["accepted"] == 2
    adapters = subprocess.run(
        ["pgrep", "-f", f"penstock adapter .*--port {port}"], capture_output=True, text=True
    ).stdout.split()
    os.kill(int(adapters[0]), signal.SIGKILL)
    time.sleep(0.5)
    assert send("a")["accepted"] == 1  # by the one that took its place
    assert await_answer("/results/Counts/b") == {"text": "b", "seen": 1}
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    process = start()
    assert send("b")["accepted"] == 1
    while await_answer("/results/Counts/b")["seen"] < 2:
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    said, complaint = process.communicate(timeout=60)
    assert process.returncode == 0, complaint
    assert "4 events accepted = 4 processed" in said
    assert await_answer_gone(url)


def test_a_port_that_is_taken_stops_a_run_with_an_adapter(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "penstock", "run", f"{APPS}:app", "--adapter", "--port", port]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith(f"penstock: Something listens on 127.0.0.1:{port} already")


def await_answer_gone(url):
    for _ in range(100):
        try:
            httpx.get(f"{url}/health")
        except httpx.TransportError:
            return True
        time.sleep(0.1)
    return False


def test_a_topic_that_was_made_anew_is_refused(run_app, broker):
    produce(broker, "renewed", *words("a", "b"))
    options = {"file": APPS, "sources": {"Words": f"kafka:{broker.brokers}/renewed"}, "name": "renewed"}
    run_app("app", **options)
    admin = AdminClient({"bootstrap.servers": broker.brokers})
    admin.delete_topics(["renewed"])["renewed"].result(30)
    deadline = time.monotonic() + 30
    while "renewed" in admin.list_topics(timeout=10).topics and time.monotonic() < deadline:
        time.sleep(0.1)
    produce(broker, "renewed", *words("c", "d", "e"))
    with pytest.raises(ConfigurationError, match="Source Words is another kafka than the one that this run began with"):
        run_app("app", **options)
