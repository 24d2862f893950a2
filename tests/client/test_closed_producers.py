"""A producer that is closed takes no event that it would lose; and what a client asks again for, or not at all."""

import asyncio
import threading

import httpx
import pytest

from penstock import Event
from penstock.client import AsyncClient, Client, MemoryTransport
from penstock.errors import ConfigurationError, RefusedError


def test_a_closed_producer_takes_nothing_and_may_be_closed_again():
    adapter = MemoryTransport()
    producer = Client("http://adapter", transport=adapter).producer("Words")
    producer.put({"n": 1})
    producer.close()
    with pytest.raises(RefusedError, match="The producer is closed, so the event was not taken"):
        producer.put({"n": 2})
    producer.flush()
    producer.close()
    assert adapter.events["Words"] == [{"n": 1}]


def test_of_what_other_threads_put_while_it_closes_each_event_is_sent_or_refused():
    for _ in range(20):
        adapter = MemoryTransport()
        producer = Client("http://adapter", transport=adapter).producer("Words", waiting=3, batch_size=2)
        taken, barrier = [], threading.Barrier(5)

        def put(first, producer=producer, taken=taken, barrier=barrier):
            barrier.wait()
            for number in range(first, first + 50):
                try:
                    producer.put({"n": number})
                except RefusedError:
                    return
                taken.append(number)

        threads = [threading.Thread(target=put, args=(100 * number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        barrier.wait()
        producer.close()
        for thread in threads:
            thread.join()
        assert sorted(event["n"] for event in adapter.events.get("Words", [])) == sorted(taken)


def test_an_event_that_is_being_put_is_sent_before_the_end():
    adapter, entered, going = MemoryTransport(), threading.Event(), threading.Event()
    producer = Client("http://adapter", transport=adapter).producer("Words")
    put = producer._queue.put

    def slow(event):
        if event is not None:
            entered.set()
            going.wait()
        put(event)

    producer._queue.put = slow
    putting = threading.Thread(target=producer.put, args=({"n": 1},))
    closing = threading.Thread(target=producer.close)
    putting.start()
    entered.wait()
    closing.start()
    closing.join(0.3)
    going.set()
    putting.join()
    closing.join()
    assert adapter.events == {"Words": [{"n": 1}]}


def test_the_asynchronous_producer_does_as_the_other():
    async def run():
        adapter = MemoryTransport()
        async with AsyncClient("http://adapter", transport=adapter) as client:
            producer = client.producer("Words", waiting=1, batch_size=1)
            puts = [asyncio.create_task(producer.put({"n": number})) for number in range(20)]
            await asyncio.sleep(0)
            await producer.close()
            outcomes = await asyncio.gather(*puts, return_exceptions=True)
            with pytest.raises(RefusedError, match="closed"):
                await producer.put({"n": 99})
            await producer.flush()
            await producer.close()
        taken = [number for number, outcome in enumerate(outcomes) if outcome is None]
        assert sorted(event["n"] for event in adapter.events["Words"]) == taken

    asyncio.run(asyncio.wait_for(run(), 20))


@pytest.mark.parametrize("status", [408, 429, 502, 503, 504])
def test_what_a_proxy_answers_while_the_adapter_starts_is_no_refusal(status):
    answers = [httpx.Response(status), httpx.Response(200, json={"accepted": 1})]
    with Client("http://adapter", transport=httpx.MockTransport(lambda _: answers.pop(0))) as client:
        assert client.send("Words", [{"n": 1}]).accepted == 1


@pytest.mark.parametrize("url", ["127.0.0.1:8470", "adapter", "ws://adapter", ""])
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_an_address_without_http_is_refused_at_once(kind, url):
    with pytest.raises(ConfigurationError, match=r"is no address of an adapter: write http://HOST:PORT"):
        kind(url)


class Measured(Event):
    x: float | None
    more: list[float] = []


UNSENDABLE = [{"x": float("inf")}, {"x": [1.0, {"y": float("-inf")}]}, Measured(float("inf")), Measured(None, [float("inf")])]


@pytest.mark.parametrize("event", UNSENDABLE, ids=str)
def test_an_infinite_number_is_refused_where_it_is_given(event):
    adapter = MemoryTransport()
    client = Client("http://adapter", transport=adapter)
    with pytest.raises(ValueError, match="holds an infinite number"):
        client.send("Words", [event])
    with client.producer("Words") as producer:
        with pytest.raises(ValueError, match="holds an infinite number"):
            producer.put(event)
        producer.put({"x": None})
    assert adapter.events["Words"] == [{"x": None}]

    async def asynchronously():
        async with AsyncClient("http://adapter", transport=adapter) as other, other.producer("Others") as producer:
            with pytest.raises(ValueError, match="holds an infinite number"):
                await producer.put(event)
            await producer.put(Measured(None))

    asyncio.run(asynchronously())
    assert adapter.events["Others"] == [{"x": None, "more": []}]


@pytest.mark.parametrize("key", [(".",), ("..",), ("a", ".."), (".", "a")])
def test_a_key_that_http_takes_for_a_step_is_refused(key):
    with pytest.raises(ValueError, match="cannot be asked for, as HTTP takes"):
        Client("http://adapter", transport=MemoryTransport()).result("Counts", *key)
