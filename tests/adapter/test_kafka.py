"""The adapter on a real Kafka broker, either of which is killed."""

import json
import threading
import time

import httpx
import pytest
from adapters import RunningAdapter
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from penstock import Event
from penstock.adapter import EventLog, mirror
from penstock.adapter.kafka_store import KafkaStore
from penstock.connectors.kafka.place import KafkaPlace
from penstock.connectors.kafka.topic import Topic, name_of
from penstock.connectors.log import Parcel, Request
from penstock.errors import SinkError

pytestmark = pytest.mark.servers


def messages(brokers, topic):
    topic = Topic(KafkaPlace(brokers, topic))
    bounds = topic.bounds()
    lows, ends = ({partition: place[side] for partition, place in bounds.items()} for side in (0, 1))
    return [message for some in topic.read(lows, ends) for message in some]


def texts(brokers, topic):
    return sorted(json.loads(message.value())["text"] for message in messages(brokers, topic))


def test_events_go_to_the_topic_once(broker, tmp_path):
    with RunningAdapter(tmp_path, "--stream", f"Words=kafka:{broker.brokers}/once") as adapter:
        assert adapter.post('[{"text":"a"},{"text":"b"},{"text":1}]', headers={"Idempotency-Key": "k"}).json()["accepted"] == 2
        assert adapter.post('{"text":"c"}').json()["accepted"] == 1
        assert adapter.post('[{"text":"a"},{"text":"b"}]', headers={"Idempotency-Key": "k"}).status_code == 409
        adapter.kill()
        adapter.start()
        again = adapter.post('[{"text":"a"},{"text":"b"},{"text":"d"}]', headers={"Idempotency-Key": "k"})
        assert again.json()["duplicates"] == 2  # and the third, which was rejected, is new
    assert texts(broker.brokers, "once") == ["a", "b", "c", "d"]
    names = [name_of(message) or "none" for message in messages(broker.brokers, "once")]
    assert sorted(name.rpartition("/")[0] or name for name in names) == [  # of two partitions, so in any order
        "none",
        "request /k/3/0",
        "request /k/3/1",
        "request /k/3/2",
    ]


def test_ids_are_known_from_the_topic_where_the_note_of_them_is_lost(broker, tmp_path):
    stream = ("--stream", f"Words=kafka:{broker.brokers}/reread")
    with RunningAdapter(tmp_path / "one", *stream) as adapter:
        adapter.post('{"text":"a"}', params={"id": "text"})
    with RunningAdapter(tmp_path / "two", *stream) as adapter:
        assert adapter.post('[{"text":"a"},{"text":"b"}]', params={"id": "text"}).json() == {
            "accepted": 1,
            "duplicates": 1,
            "rejected": [],
        }
    assert texts(broker.brokers, "reread") == ["a", "b"]


def test_kills_of_the_adapter_and_the_broker_lose_and_double_nothing(broker, tmp_path):
    """By ids: every event that was acknowledged is in the topic, and none is there twice."""
    total, done = 60, []
    arguments = ("--stream", f"Words=kafka:{broker.brokers}/kills", "--answer-within", "3 s")
    with RunningAdapter(tmp_path, *arguments) as adapter:

        def send():
            for number in range(total):
                content = json.dumps([{"text": f"{number}/{index}"} for index in range(5)])
                while True:
                    try:
                        answer = adapter.post(content, params={"id": "text"})
                        if answer.status_code == 200:
                            break
                        assert answer.status_code == 503
                    except httpx.TransportError:
                        time.sleep(0.05)
                done.append(number)
                time.sleep(0.05)

        sender = threading.Thread(target=send)
        sender.start()
        time.sleep(1.0)
        adapter.kill()
        adapter.start()
        time.sleep(0.5)
        broker.kill()
        time.sleep(4.0)
        assert adapter.get("/health").status_code == 200
        broker.start()
        sender.join(120)
        assert len(done) == total
        adapter.kill()
    assert texts(broker.brokers, "kills") == sorted(f"{number}/{index}" for number in range(total) for index in range(5))


def test_an_event_too_large_for_kafka_is_rejected_and_the_others_are_not(broker, tmp_path):
    with RunningAdapter(tmp_path, "--stream", f"Words=kafka:{broker.brokers}/large") as adapter:
        answer = adapter.post(json.dumps([{"text": "a"}, {"text": "x" * 960_000}, {"text": "b"}])).json()
        assert (answer["accepted"], [each["index"] for each in answer["rejected"]]) == (2, [1])
    assert texts(broker.brokers, "large") == ["a", "b"]


def test_a_transfer_that_fails_half_way_doubles_nothing(broker, tmp_path, monkeypatch):
    log = EventLog(tmp_path).stream("Words in Kafka")
    store = KafkaStore(KafkaPlace(broker.brokers, "doubt"), log, 3600)
    note = log.note_ids

    def fail_once(ids, positions):
        monkeypatch.setattr(log, "note_ids", note)
        raise SinkError("the disk is full")

    monkeypatch.setattr(log, "note_ids", fail_once)
    entry = Parcel([b'{"text":"a"}', b'{"text":"b"}'], request=Request("", "k", 2, range(2)))
    with pytest.raises(SinkError, match="disk is full"):
        store.begin([entry])()
    assert store.begin([entry])() == [0]  # they had arrived, as the topic says
    assert texts(broker.brokers, "doubt") == ["a", "b"]
    store.stop()
    with pytest.raises(SinkError, match="The adapter stops"):
        store.begin([entry])()
    store.close()


def test_it_stops_although_no_broker_answers(broker, tmp_path):
    arguments = ("--stream", f"Words=kafka:{broker.brokers}/stop", "--answer-within", "60 s")
    with RunningAdapter(tmp_path, *arguments) as adapter:
        broker.kill()
        answers = []
        thread = threading.Thread(target=lambda: answers.append(adapter.post('{"text":"a"}').status_code))
        thread.start()
        time.sleep(0.5)
        try:
            code, _ = adapter.stop()
        finally:
            broker.start()
        assert code == 0
        thread.join()
        assert answers in ([], [503])


def test_results_in_a_topic_are_served(broker, tmp_path):
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.brokers})
    with RunningAdapter(tmp_path, "--stream", f"Counts=kafka:{broker.brokers}/results") as adapter:
        for garbage in (b"no json", b"{}", b"5", None):  # somebody else's
            producer.produce("results", garbage)
        for number in range(3):
            producer.produce(
                "results", json.dumps({"text": "a", "by": 1, "seen": number}), headers={"penstock-id": f"r{min(number, 1)}"}
            )
        producer.flush()
        deadline = time.monotonic() + 20
        while adapter.get("/results/Counts/a/1").status_code != 200 and time.monotonic() < deadline:
            time.sleep(0.1)
        got = []
        with httpx.stream("GET", f"{adapter.url}/streams/Counts", params={"offset": "earliest"}, timeout=20) as response:
            for line in response.iter_lines():
                if line.startswith("data:"):
                    got.append(json.loads(line[5:])["seen"])
                    if len(got) == 2:
                        break
    assert sorted(got) in ([0, 1], [0, 2])  # of two messages with one id the second is left out


def test_a_broker_that_is_not_there_is_one_sentence(tmp_path):
    with pytest.raises(AssertionError, match="penstock: kafka:127.0.0.1:9/x cannot be reached"):
        RunningAdapter(tmp_path, "--stream", "Words=kafka:127.0.0.1:9/x")


class Counted(Event):
    text: str


def test_a_mirror_follows_a_topic_that_grows_or_is_made_anew(broker, tmp_path, monkeypatch):
    monkeypatch.setattr(mirror, "LOOK_AGAIN_S", 0.2)
    admin = AdminClient({"bootstrap.servers": broker.brokers})
    log, place = EventLog(tmp_path).stream("Counts"), KafkaPlace(broker.brokers, "grown")

    def make():
        admin.create_topics([NewTopic("grown", 1, 1)])["grown"].result(10)

    def send(partition, *names):
        producer = Producer({"bootstrap.servers": broker.brokers})
        for name in names:
            producer.produce("grown", json.dumps({"text": name}), partition=partition)
        producer.flush(10)

    def copied():
        return sorted(json.loads(record.payload)["text"] for record in log.read(*log.bounds()))

    def await_copied(expected):
        deadline = time.monotonic() + 30
        while copied() != expected and time.monotonic() < deadline:
            time.sleep(0.1)
        assert copied() == expected

    make()
    send(0, "a0", "a1", "a2")
    for again in (False, True):
        follower = mirror.KafkaMirror(place, log, Counted, ("text",))
        thread = threading.Thread(target=follower.run)
        thread.start()
        if not again:
            await_copied(["a0", "a1", "a2"])
            admin.create_partitions([NewPartitions("grown", 2)])["grown"].result(10)
            time.sleep(1)
            send(1, "a3")
            await_copied(["a0", "a1", "a2", "a3"])
        await_copied(["a0", "a1", "a2", "a3", *(["b0", "b1"] if again else [])])
        follower.stop()
        thread.join(10)
        if not again:
            admin.delete_topics(["grown"])["grown"].result(10)
            time.sleep(1)
            make()
            send(0, "b0", "b1")
