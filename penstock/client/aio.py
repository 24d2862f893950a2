"""The client for asynchronous programs; it has the methods of `penstock.client.Client`, to be awaited."""

import asyncio
import atexit
import time
from collections.abc import AsyncIterator, Callable, Iterable
from types import TracebackType
from typing import Any
from weakref import WeakSet

import httpx
from httpx_sse import aconnect_sse

from penstock.client.protocol import (
    LOG,
    Event,
    Flow,
    Gathering,
    PerProcess,
    Post,
    Received,
    Sent,
    Subscription,
    Trouble,
    Waiting,
    closed,
    looking_up,
    payload_of,
    sending,
)


class AsyncClient:
    """Sends events to an adapter, and receives results. It has the parameters of `penstock.client.Client`."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        patience: float = 60.0,
        timeout: float = 40.0,
        verify: Any = True,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._patience = patience
        self._connections = PerProcess(httpx.AsyncClient, url, token, timeout=timeout, verify=verify, transport=transport)

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._connections.get().aclose()

    async def send(self, stream: str, events: Iterable[Event], *, key: str | None = None, id_field: str | None = None) -> Sent:
        """See `Client.send`."""
        return await self._deliver(Post(stream, events, key, id_field))

    async def _deliver(self, post: Post) -> Sent:
        sent: Sent = await self._drive(sending(post, self._patience))
        return sent

    def producer(self, stream: str, **options: Any) -> "AsyncProducer":
        """See `Client.producer`."""
        return AsyncProducer(self, stream, **options)

    async def receive(self, stream: str, offset: str | int = "latest") -> AsyncIterator[Received]:
        """See `Client.receive`."""
        subscription = Subscription(stream, offset, self._patience)
        while True:
            trouble: Trouble | None
            try:
                query = {"offset": subscription.position}
                http = self._connections.get()
                async with aconnect_sse(http, "GET", subscription.path, params=query, **subscription.options) as source:
                    if source.response.status_code != 200:
                        await source.response.aread()
                    trouble = subscription.opened(source.response)
                    if trouble is None:
                        async for message in source.aiter_sse():
                            yield subscription.received(message.id, message.data)
            except httpx.TransportError as error:
                trouble = error
            await asyncio.sleep(subscription.pause(trouble))

    async def result(self, stream: str, *key: object) -> Any:
        """See `Client.result`."""
        return await self._drive(looking_up(stream, key, self._patience))

    async def _drive(self, flow: Flow) -> Any:
        """Run a flow: make its requests and do its waits; returns its result."""
        answer: Any = None
        while True:
            try:
                step = flow.send(answer)
            except StopIteration as done:
                return done.value
            if isinstance(step, float):
                await asyncio.sleep(step)
                continue
            try:
                answer = await self._connections.get().request(step.method, step.path, **step.options)
            except httpx.TransportError as error:
                answer = error


class AsyncProducer:
    """Collects single events, and sends them in batches. It has the parameters of `penstock.client.Producer`."""

    def __init__(
        self,
        client: AsyncClient,
        stream: str,
        *,
        batch_size: int = 500,
        flush_timer: float = 0.05,
        waiting: int = 10_000,
        id_field: str | None = None,
        rejected: Callable[[Event, str], None] | None = None,
    ) -> None:
        self._client, self._stream, self._id_field = client, stream, id_field
        self._gathering = Gathering(batch_size, flush_timer, rejected)
        self._queue: asyncio.Queue[Waiting] = asyncio.Queue(waiting)
        self._putting, self._is_closed, self._left = 0, False, 0
        self._batch: list[Waiting] = []
        """The events in hand: if the task is cancelled, another goes on with them."""
        self._post: Post | None = None
        """The request that the events in hand are sent by; it is the same if they are sent again, so that they count once."""
        self._task = asyncio.get_running_loop().create_task(self._run())
        _MADE.add(self)

    @property
    def sent(self) -> Sent:
        """The totals of all batches so far; indices of ``rejected`` count from the first event that was put."""
        return self._gathering.sent

    async def __aenter__(self) -> "AsyncProducer":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def put(self, event: Event) -> None:
        """See `Producer.put`."""
        self._gathering.check()
        waiting = Waiting(event, payload_of(event))
        if self._is_closed:
            raise closed()
        self._go_on()
        self._putting += 1
        try:
            await self._queue.put(waiting)
            self._left += 1
        finally:
            self._putting -= 1

    async def flush(self) -> None:
        """See `Producer.flush`."""
        self._gathering.check_process()
        await self._drain()
        self._gathering.end()

    async def close(self) -> None:
        """Wait until all events are sent, those that other tasks are putting included, and end the task."""
        self._gathering.check_process()
        self._is_closed = True
        while self._putting:  # each waits for room in the queue, which there is then
            await self._drain()
            await asyncio.sleep(0)
        await self._drain()
        self._task.cancel()
        self._gathering.end()

    def __del__(self) -> None:
        self._say_left()

    def _say_left(self) -> None:
        """Say how many events were not sent, once."""
        left, self._left = self._left, 0
        if left and not self._gathering.failed:
            LOG.error("A producer for %s was not closed: %d events that were put were not sent.", self._stream, left)

    def _go_on(self) -> None:
        """Start the task again if it was cancelled, as `asyncio.run` cancels all tasks at its end."""
        if self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _drain(self) -> None:
        """Wait until all events in the queue are sent."""
        joined = asyncio.get_running_loop().create_task(self._queue.join())
        try:
            while not joined.done():
                self._go_on()
                await asyncio.wait({joined, self._task}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            joined.cancel()

    async def _run(self) -> None:
        while True:
            if self._post is None:
                await self._gather()
                self._post = Post(self._stream, [waiting.payload for waiting in self._batch], None, self._id_field)
            if not self._gathering.failed:
                try:
                    self._gathering.add(self._batch, await self._client._deliver(self._post))
                except Exception as error:
                    self._gathering.fail(error)
            for _ in self._batch:
                self._queue.task_done()
            self._left -= len(self._batch)
            self._batch, self._post = [], None

    async def _gather(self) -> None:
        """Wait for a batch."""
        if not self._batch:
            self._batch.append(await self._queue.get())
        deadline = time.monotonic() + self._gathering.flush_timer
        size = sum(len(waiting.payload) for waiting in self._batch)
        while self._gathering.takes(len(self._batch), size):
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    self._batch.append(await self._queue.get())
            except TimeoutError:
                return
            size += len(self._batch[-1].payload)


_MADE: "WeakSet[AsyncProducer]" = WeakSet()


@atexit.register
def _complain() -> None:
    """Say what was not sent of producers that nothing has collected by the end of the program."""
    for producer in list(_MADE):
        producer._say_left()
