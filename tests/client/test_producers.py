"""What a producer may not lose: events of a fork, of a task that ends, of its own callback, large ones, and the last ones."""

import asyncio
import gc
import os
import subprocess
import sys

import httpx
import msgspec
import pytest
from adapters import RunningAdapter
from client.test_client import texts

from penstock import Event
from penstock.client import AsyncClient, Client, MemoryTransport
from penstock.errors import ConfigurationError, RefusedError


class Refusing(MemoryTransport):
    """Rejects events whose text is no text, and large bodies, as the adapter does."""

    def _take(self, stream, request):
        events = msgspec.json.decode(request.content)
        if len(request.content) > 8 << 20:
            return httpx.Response(413, json={"detail": "too large"})
        wrong = [index for index, event in enumerate(events) if not isinstance(event["text"], str)]
        self.events.setdefault(stream, []).extend(event for index, event in enumerate(events) if index not in wrong)
        rejected = [{"index": index, "reason": "Expected str"} for index in wrong]
        return httpx.Response(200, json={"accepted": len(events) - len(wrong), "rejected": rejected})


def test_a_callback_may_put_an_event_again_mended():
    adapter = Refusing()
    with Client("http://adapter", transport=adapter) as client:

        def mend(event, reason):
            producer.put({"text": str(event["text"])})

        with client.producer("Words", waiting=10, batch_size=7, rejected=mend) as producer:
            for number in range(300):
                producer.put({"text": number if number % 3 == 0 else f"{number}"})
    assert sorted(int(event["text"]) for event in adapter.events["Words"]) == list(range(300))
    assert producer.sent.accepted == 300


def test_what_a_callback_raises_stops_no_other_event():
    adapter = Refusing()

    def complain(event, reason):
        raise LookupError(reason)

    producer = Client("http://adapter", transport=adapter).producer("Words", batch_size=1, rejected=complain)
    for text in ("a", 1, "b", 2, "c"):
        producer.put({"text": text})
    with pytest.raises(LookupError, match="Expected str"):
        producer.close()
    assert [event["text"] for event in adapter.events["Words"]] == ["a", "b", "c"]

    async def asynchronously():
        async with AsyncClient("http://adapter", transport=adapter) as client:
            other = client.producer("Others", batch_size=1, rejected=complain)
            for text in ("a", 1, "b"):
                await other.put({"text": text})
            with pytest.raises(LookupError, match="Expected str"):
                await other.close()

    asyncio.run(asynchronously())
    assert [event["text"] for event in adapter.events["Others"]] == ["a", "b"]


def test_large_events_are_sent_in_smaller_batches():
    adapter = Refusing()
    large = {"text": "y" * 40_000}
    with Client("http://adapter", transport=adapter) as client, client.producer("Words", flush_timer=5) as producer:
        for _ in range(600):
            producer.put(large)
    assert producer.sent.accepted == 600

    async def asynchronously():
        async with AsyncClient("http://adapter", transport=adapter) as other, other.producer("Others", flush_timer=5) as slow:
            for _ in range(600):
                await slow.put(large)
        return slow.sent.accepted

    assert asyncio.run(asynchronously()) == 600


def test_a_program_that_ends_with_a_task_that_uses_a_producer_ends_and_sends_all():
    """`asyncio.run` cancels all tasks at its end, the producer's own among them."""
    adapter, put = MemoryTransport(), list[int]()

    async def sensor():
        async with AsyncClient("http://adapter", transport=adapter) as client, client.producer("Words", waiting=5) as producer:
            while True:
                await producer.put({"n": len(put)})
                put.append(len(put))
                await asyncio.sleep(0.001)

    async def main():
        task = asyncio.create_task(sensor())
        await asyncio.sleep(0.3)
        return task

    asyncio.run(asyncio.wait_for(main(), 10))
    assert [event["n"] for event in adapter.events["Words"]] == put


def test_events_in_hand_when_the_task_is_cancelled_count_once():
    adapter, answering = MemoryTransport(), list[bool]()

    class Slow(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request):
            answer = await adapter.handle_async_request(request)
            answering.append(True)
            await asyncio.sleep(0.2)  # the events are there, and the answer is not
            return answer

    async def main():
        async with AsyncClient("http://adapter", transport=Slow()) as client:
            producer = client.producer("Words", flush_timer=0)
            await producer.put({"n": 1})
            while not answering:
                await asyncio.sleep(0.01)
            producer._task.cancel()
            await producer.close()
            return producer.sent

    sent = asyncio.run(main())
    assert (sent.accepted, sent.duplicates) == (0, 1)
    assert adapter.events["Words"] == [{"n": 1}]


def test_a_producer_of_another_process_is_refused():
    producer = Client("http://adapter", transport=MemoryTransport()).producer("Words")
    producer.put({"n": 1})
    producer.flush()
    child = os.fork()
    if not child:
        refused = 0
        for call in (lambda: producer.put({"n": 2}), producer.flush, producer.close):
            try:
                call()
            except RefusedError as error:
                refused += "before this process was forked" in str(error)
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    producer.close()


LAST = """
from penstock.client import Client

producer = Client("{url}").producer("Words", flush_timer=60)
for number in range(10):
    producer.put({{"text": f"n{{number}}"}})
"""
FORKED = """
import os
from penstock.client import Client

client = Client("{url}")
client.send("Words", [{{"text": "first"}}])
child = os.fork()
for number in range(200):
    sent = client.send("Words", [{{"text": "b"}}] if child else [{{"text": 1}}, {{"text": "a"}}])
    assert (sent.accepted, len(sent.rejected)) == ((1, 0) if child else (1, 1)), sent
if not child:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.servers
@pytest.mark.parametrize(("program", "events"), [(LAST, 10), (FORKED, 401)], ids=["end of the program", "fork"])
def test_with_a_real_adapter(tmp_path, program, events):
    with RunningAdapter(tmp_path / "spool") as adapter:
        done = subprocess.run([sys.executable, "-c", program.format(url=adapter.url)], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        assert len(texts(adapter)) == events


def test_what_cannot_be_sent_at_the_end_of_a_program_is_said():
    program = LAST.format(url="http://127.0.0.1:9").replace('9")', '9", patience=0.1)')
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "Not all events that were put for Words were sent: The adapter did not take the events: ConnectError" in done.stderr


def test_an_asynchronous_producer_that_is_not_closed_is_said(caplog):
    async def main():
        client = AsyncClient("http://adapter", transport=MemoryTransport())
        producer = client.producer("Words", flush_timer=60)
        await producer.put({"n": 1})

    asyncio.run(main())
    gc.collect()
    assert "A producer for Words was not closed: 1 events that were put were not sent." in caplog.text


class Word(Event):
    text: str


@pytest.mark.parametrize("single", [{"text": "q"}, "text", b'{"text": "q"}', Word("q")], ids=lambda one: type(one).__name__)
def test_a_single_event_is_no_list_of_events(single):
    client = Client("http://adapter", transport=MemoryTransport())
    with pytest.raises(ConfigurationError, match=r"put a single one into a list, as \[event\]"):
        client.send("Words", single)


@pytest.mark.parametrize("payload", [b'{"text": "y"', b'{"text": "y"},5', b"", b"\xff"], ids=repr)
def test_bytes_that_are_no_event_are_refused_where_they_are_put(payload):
    adapter = MemoryTransport()
    with Client("http://adapter", transport=adapter) as client, client.producer("Words") as producer:
        producer.put({"n": 1})
        with pytest.raises(ValueError, match="These bytes are no event as JSON"):
            producer.put(payload)
        producer.put(b'{"n": 2}')
    assert adapter.events["Words"] == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize("ask", ["send", "result", "receive"])
def test_what_is_no_adapter_is_said(ask):
    asked = {
        "send": lambda client: client.send("Words", [{"n": 1}]),
        "result": lambda client: client.result("Words", "a"),
        "receive": lambda client: next(client.receive("Words")),
    }
    page = httpx.MockTransport(lambda _: httpx.Response(200, text="<html>a proxy's page</html>"))
    client = Client("http://proxy", transport=page)
    with pytest.raises(RefusedError, match=r"What answers at http://proxy/\w+/Words\S* is no adapter"):
        asked[ask](client)


def test_a_result_is_asked_for_again_while_the_adapter_is_away():
    answers = [httpx.Response(503), httpx.Response(200, json={"seen": 3})]
    with Client("http://adapter", transport=httpx.MockTransport(lambda _: answers.pop(0))) as client:
        assert client.result("Counts", "gate") == {"seen": 3}
    with Client("http://127.0.0.1:9", patience=0.1) as client, pytest.raises(RefusedError, match="did not send the result"):
        client.result("Counts", "gate")
