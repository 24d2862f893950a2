"""Messages as a Kafka sink makes them: keys that tell results apart, and what is too large for one."""

import time
from decimal import Decimal

import pytest
from kind_cells import staged

from penstock import Event
from penstock.connectors.kafka.place import KafkaPlace
from penstock.connectors.kafka.topic import Topic
from penstock.connectors.uri import Uri

pytestmark = pytest.mark.servers


class Result(Event):
    n: int
    value: str
    more: str | None = None


class Amount(Event):
    n: int
    value: Decimal


@pytest.fixture
def uri(broker):
    return f"kafka:{broker.brokers}/t{time.time_ns()}"


def keys_in(uri):
    topic = Topic(KafkaPlace.of(Uri.parse(uri)))
    bounds = topic.bounds()
    starts, ends = ({partition: place[side] for partition, place in bounds.items()} for side in (0, 1))
    return [message.key() for messages in topic.read(starts, ends) for message in messages]


def test_keys_of_several_fields_are_told_apart(uri, tmp_path):
    results = [
        Result(0, "a/b", "c"),
        Result(1, "a", "b/c"),
        Result(2, "a", None),
        Result(3, "a", ""),
        Result(4, "a", "null"),
        Result(5, "a", "*"),
    ]
    passed = staged(uri, Result, results, tmp_path, ("value", "more"))
    assert passed.errors == {}
    assert sorted(keys_in(uri)) == sorted([b"a%2Fb/c", b"a/b%2Fc", b"a/*", b"a/", b"a/null", b"a/%2A"])


def test_one_key_is_written_in_one_way(uri, tmp_path):
    staged(uri, Amount, [Amount(0, Decimal("1.0")), Amount(1, Decimal("1.00")), Amount(2, Decimal(1))], tmp_path, ("value",))
    assert keys_in(uri) == [b"1"] * 3


def test_what_is_too_large_for_a_message_is_a_dead_letter(uri, tmp_path):
    results = [Result(0, "a"), Result(1, "b" * 2_000_000), Result(2, "c")]
    passed = staged(uri, Result, results, tmp_path)
    assert sorted(passed.events) == [0, 2]
    assert "larger than the topic takes" in passed.errors[1]
    assert "kafka.message.max.bytes" in passed.errors[1]


def test_what_is_almost_too_large_is_sent(uri, tmp_path):
    passed = staged(uri, Result, [Result(0, "b" * 1_040_000)], tmp_path)
    assert sorted(passed.events) == [0]
