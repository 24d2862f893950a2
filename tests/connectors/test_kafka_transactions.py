"""Micro-batches as transactions: a driver that dies or is followed by another leaves all of a batch once, or nothing."""

import shutil
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from penstock.app.stream import Sink, Source, Stream
from penstock.connectors.checkpoint import Position
from penstock.connectors.declaration import SourceContext
from penstock.connectors.kafka.courier import Transactions
from penstock.connectors.kafka.place import KafkaPlace
from penstock.connectors.kafka.topic import UNCOMMITTED, Topic
from penstock.connectors.registry import bind_sinks, bind_source
from penstock.connectors.uri import Uri
from penstock.errors import RunLockedError, SinkError, SourceError
from penstock.testing.contracts import SAMPLES, Sample, stage


@pytest.fixture
def uri(broker):
    return f"kafka:{broker.brokers}/transactions-{time.time_ns()}?transactions=yes"


def driver(uri, directory):
    """The sink as a driver of the run has it."""
    sink = bind_sinks([Sink("Out", Stream("Samples", Sample), uri, ())], {}, directory / "output")["Out"]
    sink.claim("run-1", ())
    return sink


def in_any_order(events):
    return sorted(map(repr, events))


def uncommitted(broker, uri):
    """How many messages those see who read all of them."""
    consumer = Consumer({"bootstrap.servers": broker.brokers, "group.id": "all", "isolation.level": "read_uncommitted"})
    topic = uri.partition("?")[0].rpartition("/")[2]
    try:
        partitions = consumer.list_topics(topic).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        found = [message for message in consumer.consume(1_000, 2.0) if message.error() is None]
    finally:
        consumer.close()
    return len(found)


def interrupted(monkeypatch, after):
    """Make the next transaction with messages end, after some of them, as if the driver had died there."""
    send = Transactions._send

    def dies(self, producer, messages):
        some = list(messages)
        send(self, producer, some[:after])
        if some:
            raise KeyboardInterrupt

    monkeypatch.setattr(Transactions, "_send", dies)


def test_who_reads_committed_sees_nothing_of_a_driver_that_died(uri, broker, tmp_path, monkeypatch):
    first = driver(uri, tmp_path)
    interrupted(monkeypatch, after=2)
    with pytest.raises(KeyboardInterrupt):
        first.deliver("main", 0, stage(first, SAMPLES))
    monkeypatch.undo()
    assert uncommitted(broker, uri) == 2
    second = driver(uri, tmp_path)
    second.deliver("main", 0, stage(second, SAMPLES))
    assert in_any_order(second.read()) == in_any_order(SAMPLES)
    assert uncommitted(broker, uri) == 2 + len(SAMPLES)


def test_a_driver_that_wakes_up_late_can_commit_nothing_more(uri, tmp_path, monkeypatch):
    zombie = driver(uri, tmp_path)
    files = stage(zombie, SAMPLES)
    send = Transactions._send

    def overtaken(self, producer, messages):
        monkeypatch.undo()
        send(self, producer, messages)
        follower = driver(uri, tmp_path)
        follower.deliver("main", 0, stage(follower, SAMPLES))
        follower.deliver("main", 1, stage(follower, SAMPLES[:1]))

    monkeypatch.setattr(Transactions, "_send", overtaken)
    with pytest.raises(RunLockedError, match="another driver delivers for this run"):
        zombie.deliver("main", 0, files)
    assert in_any_order(driver(uri, tmp_path).read()) == in_any_order([*SAMPLES, SAMPLES[0]])


def test_a_commit_whose_answer_was_lost_is_not_repeated(uri, tmp_path, monkeypatch):
    first = driver(uri, tmp_path)
    files = stage(first, SAMPLES)
    send = Transactions.send

    def commits_and_dies(self, group, batch, messages):
        send(self, group, batch, messages)
        raise KeyboardInterrupt

    monkeypatch.setattr(Transactions, "send", commits_and_dies)
    with pytest.raises(KeyboardInterrupt):
        first.deliver("main", 0, files)
    monkeypatch.undo()
    second = driver(uri, tmp_path)
    second.deliver("main", 0, files)
    assert in_any_order(second.read()) == in_any_order(SAMPLES)


@pytest.fixture(params=["", "?transactions=yes"], ids=["plain", "transactions"])
def topic(request, broker):
    return f"kafka:{broker.brokers}/open-{time.time_ns()}{request.param}"


@pytest.fixture
def open_transaction(broker, topic):
    """Another program, as Flink or Kafka Streams, that has a transaction open in the topic."""
    other = Producer({"bootstrap.servers": broker.brokers, "transactional.id": f"other-{time.time_ns()}"})
    other.init_transactions(20)

    def begin():
        other.begin_transaction()
        other.produce(topic.partition("?")[0].rpartition("/")[2], b'{"name": "other", "number": 0}')
        other.flush()

    yield begin
    other.abort_transaction(20)


def everything(topic):
    place = Topic(KafkaPlace.of(Uri.parse(topic.partition("?")[0])))
    messages = place.read({}, place.ends(**UNCOMMITTED), **UNCOMMITTED)
    return sum(message.headers() is not None for each in messages for message in each)


def test_a_batch_that_is_delivered_again_behind_anothers_open_transaction_is_known(topic, open_transaction, tmp_path):
    first = driver(topic, tmp_path)
    first.deliver("main", 0, stage(first, SAMPLES[:1]))
    open_transaction()
    files = stage(first, SAMPLES)
    kept = [(Path(file.staged), Path(file.staged).read_bytes()) for file in files]
    first.deliver("main", 1, files)
    for path, content in kept:  # as a driver that died before it had removed them
        path.write_bytes(content)
    second = driver(topic, tmp_path)
    assert second.reached("main") == 1
    second.deliver("main", 1, files)
    assert everything(topic) == 1 + len(SAMPLES)


def test_a_batch_that_was_never_committed_is_sent_behind_anothers_open_transaction(
    broker, open_transaction, topic, tmp_path, monkeypatch
):
    first = driver(topic, tmp_path)
    files = stage(first, SAMPLES)
    courier = type(first._courier)
    with monkeypatch.context() as patched:
        patched.setattr(courier, "_send", lambda *given: (_ for _ in ()).throw(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            first.deliver("main", 0, files)
    open_transaction()
    began = time.monotonic()
    second = driver(topic, tmp_path)
    second.deliver("main", 0, files)
    assert time.monotonic() - began < 10
    assert everything(topic) == len(SAMPLES)


def test_a_backup_of_the_run_that_was_put_back_is_told_by_the_topic(topic, tmp_path):
    sink = driver(topic, tmp_path)
    sink.deliver("main", 0, stage(sink, SAMPLES[:1]))
    shutil.copytree(tmp_path / "output", tmp_path / "backup")
    for batch in (1, 2):
        sink.deliver("main", batch, stage(sink, SAMPLES[:1]))
    shutil.rmtree(tmp_path / "output")
    (tmp_path / "backup").rename(tmp_path / "output")
    assert driver(topic, tmp_path).reached("main") == 2


def test_a_topic_that_was_deleted_and_made_anew_is_missed(topic, broker, tmp_path):
    sink = driver(topic, tmp_path)
    sink.deliver("main", 0, stage(sink, SAMPLES))
    source = bind_source(Source("Samples", Sample, uri=topic.partition("?")[0]), None, SourceContext())
    source.vouch(Position(tmp_path, 0, None))
    name = topic.partition("?")[0].rpartition("/")[2]
    admin = AdminClient({"bootstrap.servers": broker.brokers})
    admin.delete_topics([name])[name].result(20)
    time.sleep(2)
    anew = driver(topic, tmp_path)
    assert anew.reached("main") == -1
    with pytest.raises(SourceError, match="deleted and made anew while the run was on"):
        source.vouch(Position(tmp_path, 0, None))
    with pytest.raises(SinkError, match="is another topic than"):
        anew.deliver("main", 1, stage(anew, SAMPLES))
