"""Micro-batches as transactions: a driver that dies or is followed by another leaves all of a batch once, or nothing."""

import time

import pytest
from confluent_kafka import Consumer, TopicPartition

from penstock.app.stream import Sink, Stream
from penstock.connectors.kafka.courier import Transactions
from penstock.connectors.registry import bind_sinks
from penstock.errors import SinkError
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
    """Make the next transaction end, after some messages, as if the driver had died there."""
    send = Transactions._send

    def dies(self, producer, messages):
        send(self, producer, list(messages)[:after])
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
    with pytest.raises(SinkError, match="another driver delivers for this run"):
        zombie.deliver("main", 0, files)
    assert in_any_order(driver(uri, tmp_path).read()) == in_any_order([*SAMPLES, SAMPLES[0]])


def test_a_commit_whose_answer_was_lost_is_not_repeated(uri, tmp_path, monkeypatch):
    first = driver(uri, tmp_path)
    files = stage(first, SAMPLES)
    send = Transactions._send

    def commits_and_dies(self, producer, messages):
        send(self, producer, messages)
        producer.commit_transaction(10)
        raise KeyboardInterrupt

    monkeypatch.setattr(Transactions, "_send", commits_and_dies)
    with pytest.raises(KeyboardInterrupt):
        first.deliver("main", 0, files)
    monkeypatch.undo()
    second = driver(uri, tmp_path)
    second.deliver("main", 0, files)
    assert in_any_order(second.read()) == in_any_order(SAMPLES)
