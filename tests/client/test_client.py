"""The client against a real adapter, which is killed under it."""

import asyncio
import threading
import time

import pytest
from adapter.app import Word
from adapters import RunningAdapter

from penstock.adapter import EventLog
from penstock.client import AsyncClient, Client
from penstock.connectors.log.log import Parcel
from penstock.errors import RefusedError

pytestmark = pytest.mark.servers


@pytest.fixture
def adapter(tmp_path):
    with RunningAdapter(tmp_path / "spool") as running:
        yield running


def texts(adapter):
    log = EventLog(adapter.spool, create=False)
    found = [record.payload for record in log.read("Words", log.start("Words"), log.end("Words"))]
    log.close()
    return found


def test_dicts_events_and_bytes_are_sent(adapter):
    with Client(adapter.url) as client:
        sent = client.send("Words", [{"text": "a"}, Word("b"), b'{"text":"c"}', {"text": 4}])
    assert (sent.accepted, sent.duplicates, sent.retries) == (3, 0, 0)
    assert [(each.index, "str" in each.reason) for each in sent.rejected] == [(3, True)]
    assert len(texts(adapter)) == 3


def test_a_key_makes_a_second_send_harmless(adapter):
    with Client(adapter.url) as client:
        assert client.send("Words", [{"text": "a"}], key="k").accepted == 1
        assert client.send("Words", [{"text": "a"}], key="k").duplicates == 1


def test_a_refusal_says_why(adapter):
    with Client(adapter.url) as client, pytest.raises(RefusedError, match="there are Words") as refused:
        client.send("Nope", [{}])
    assert refused.value.status == 404


def test_patience_ends():
    with Client("http://127.0.0.1:9", patience=0.3) as client, pytest.raises(RefusedError, match="did not take the events"):
        client.send("Words", [{"text": "a"}])


def restarts(adapter, stop):
    while not stop.wait(0.6):
        adapter.kill()
        adapter.start()


def test_a_producer_sends_each_event_once_whatever_dies(adapter):
    stop = threading.Event()
    killer = threading.Thread(target=restarts, args=(adapter, stop), daemon=True)
    killer.start()
    rejected = []
    with (
        Client(adapter.url) as client,
        client.producer("Words", batch_size=20, rejected=lambda *why: rejected.append(why)) as producer,
    ):
        for number in range(3000):
            producer.put({"text": str(number)})
            if number % 10 == 0:
                time.sleep(0.01)
        producer.put({"text": None})
        producer.flush()
        stop.set()
        killer.join()
    assert texts(adapter) == [f'{{"text":"{number}"}}'.encode() for number in range(3000)]
    assert producer.sent.retries > 0
    assert [event for event, _ in rejected] == [{"text": None}]
    assert producer.sent.rejected[0].index == 3000


def test_an_asynchronous_producer_too(adapter):
    async def produce():
        stop = threading.Event()
        killer = threading.Thread(target=restarts, args=(adapter, stop), daemon=True)
        killer.start()
        async with AsyncClient(adapter.url) as client, client.producer("Words", batch_size=50, id_field="text") as producer:
            for number in range(3000):
                await producer.put({"text": str(number)})
                if number % 20 == 0:
                    await asyncio.sleep(0.01)
            await producer.flush()
            stop.set()
            await asyncio.to_thread(killer.join)
            return producer.sent

    sent = asyncio.run(produce())
    assert sent.accepted + sent.duplicates == 3000
    assert texts(adapter) == [f'{{"text":"{number}"}}'.encode() for number in range(3000)]


def add_results(adapter, *numbers):
    log = EventLog(adapter.spool).stream("Counts")
    payloads = [f'{{"text":"t","by":0,"seen":{number}}}'.encode() for number in numbers]
    log.append([Parcel(payloads, result_keys=["t/0"] * len(numbers))])
    log.close()


def test_results_are_received_over_a_restart(adapter):
    add_results(adapter, 0, 1)
    got = []
    with Client(adapter.url) as client:
        for received in client.receive("Counts", "earliest"):
            got.append(received.event["seen"])
            if got == [0, 1]:
                adapter.kill()
                add_results(adapter, 2, 3)
                adapter.start()
            if len(got) == 4:
                break
        assert got == [0, 1, 2, 3]
        assert client.result("Counts", "t", 0)["seen"] == 3
        assert client.result("Counts", "none", 0) is None
        with pytest.raises(RefusedError, match="no number|none of earliest"):
            next(client.receive("Counts", 99))


def test_what_comes_while_the_connection_is_broken_is_received(adapter):
    """Also where nothing had been received yet, from ``latest``."""
    add_results(adapter, 0)
    got = []
    with Client(adapter.url) as client:
        receiving = threading.Thread(target=lambda: got.append(next(client.receive("Counts")).event["seen"]))
        receiving.start()
        time.sleep(1.0)
        adapter.kill()
        add_results(adapter, 1)
        adapter.start()
        receiving.join(20)
    assert got == [1]


def test_results_are_received_asynchronously(adapter):
    add_results(adapter, 0, 1)

    async def receive():
        async with AsyncClient(adapter.url) as client:
            got = []
            async for received in client.receive("Counts", 0):
                got.append(received.event["seen"])
                if len(got) == 2:
                    break
            return got, await client.result("Counts", "t", 0)

    assert asyncio.run(receive()) == ([0, 1], {"text": "t", "by": 0, "seen": 1})
