"""The client for asynchronous programs; each method is that of `penstock.client.Client`, awaited."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from types import TracebackType
from typing import Any

import httpx
import msgspec
from httpx_sse import aconnect_sse

from penstock.client.blocking import add
from penstock.client.protocol import TRY_AGAIN, Event, Patience, Post, Received, Sent, headers_of, refused, result_path


class AsyncClient:
    """Sends events to an adapter, and receives results. Parameters as for `penstock.client.Client`."""

    def __init__(
        self, url: str, *, token: str | None = None, patience: float = 60.0, timeout: float = 40.0, verify: Any = True
    ) -> None:
        self._patience = patience
        self._http = httpx.AsyncClient(base_url=url, headers=headers_of(token), timeout=timeout, verify=verify)

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def send(
        self, stream: str, events: Iterable[Event], *, key: str | None = None, id_field: str | None = None
    ) -> Sent:
        """See `Client.send`."""
        post = Post(stream, events, key, id_field)
        patience = Patience(self._patience, time.monotonic())
        while True:
            why: httpx.Response | httpx.TransportError
            try:
                why = await self._http.post(post.path, content=post.content, headers=post.headers, params=post.params)
                if why.status_code not in TRY_AGAIN:
                    return post.read(why, patience.retries)
            except httpx.TransportError as error:
                why = error
            await asyncio.sleep(patience.pause(time.monotonic(), why))

    def producer(self, stream: str, **options: Any) -> "AsyncProducer":
        """See `Client.producer`."""
        return AsyncProducer(self, stream, **options)

    async def receive(self, stream: str, offset: str | int = "latest") -> AsyncIterator[Received]:
        """See `Client.receive`."""
        position, path = str(offset), Post(stream, (), None, None).path
        patience = Patience(self._patience, time.monotonic())
        while True:
            why: httpx.Response | httpx.TransportError | None = None
            connected = False
            try:
                timeout = httpx.Timeout(40.0, read=45.0)  # it is pinged every 15 s
                async with aconnect_sse(
                    self._http, "GET", path, params={"offset": position}, timeout=timeout
                ) as source:
                    if source.response.status_code == 200:
                        connected, position = True, source.response.headers["x-offset"]
                        async for message in source.aiter_sse():
                            position = message.id
                            yield Received(position, msgspec.json.decode(message.data))
                    elif source.response.status_code in TRY_AGAIN:
                        why = source.response
                    else:
                        await source.response.aread()
                        raise refused(source.response)
            except httpx.TransportError as error:
                why = error
            if connected:
                patience = Patience(self._patience, time.monotonic())
            await asyncio.sleep(0.05 if why is None else patience.pause(time.monotonic(), why))

    async def result(self, stream: str, *key: object) -> Any:
        """See `Client.result`."""
        response = await self._http.get(result_path(stream, key))
        if response.status_code == 404:
            return None
        if response.status_code != 200:
            raise refused(response)
        return msgspec.json.decode(response.content)


class AsyncProducer:
    """Gathers events that are put one by one, and sends them in batches. Parameters as for `penstock.client.Producer`."""

    def __init__(
        self,
        client: AsyncClient,
        stream: str,
        *,
        batch_size: int = 500,
        flush_timer: float = 0.05,
        waiting: int = 10_000,
        id_field: str | None = None,
    ) -> None:
        self._client, self._stream, self._id_field = client, stream, id_field
        self._batch_size, self._flush_timer = batch_size, flush_timer
        self._queue: asyncio.Queue[Event] = asyncio.Queue(waiting)
        self._failure: BaseException | None = None
        self._done = 0
        self.sent = Sent()
        """The sums over all batches so far."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def __aenter__(self) -> "AsyncProducer":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def put(self, event: Event) -> None:
        """See `Producer.put`."""
        self._raise()
        await self._queue.put(event)

    async def flush(self) -> None:
        """See `Producer.flush`."""
        await self._queue.join()
        self._raise()

    async def close(self) -> None:
        """Flush, and end."""
        await self._queue.join()
        self._task.cancel()
        self._raise()

    def _raise(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _run(self) -> None:
        while True:
            batch = [await self._queue.get()]
            deadline = time.monotonic() + self._flush_timer
            while len(batch) < self._batch_size:
                try:
                    async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                        batch.append(await self._queue.get())
                except TimeoutError:
                    break
            if self._failure is None:
                try:
                    sent = await self._client.send(self._stream, batch, id_field=self._id_field)
                    add(self.sent, sent, self._done)
                    self._done += len(batch)
                except Exception as error:
                    self._failure = error
            for _ in batch:
                self._queue.task_done()
