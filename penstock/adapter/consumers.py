"""Sends results to clients: a stream's events as they come, and the last event of a key."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import accumulate

from sse_starlette import EventSourceResponse
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from penstock.adapter.metrics import Metrics
from penstock.adapter.room import Room
from penstock.adapter.sockets import Sockets
from penstock.adapter.store import Stored
from penstock.adapter.streams import OutputStream
from penstock.errors import ConfigurationError
from penstock.kinds.text import key_of_path
from penstock.web.problem import refusal

CHUNK, CHUNK_BYTES = 500, 256 << 10
"""The most events read at once for a consumer, and about the most bytes of them held while it does not read."""
PIECE = 16 << 10
"""Bytes sent at once; small, as the server buffers some pieces for a consumer that does not read."""
READERS = 2
"""The most threads that read for consumers at once; more would slow down producers, by the interpreter's lock."""
CONSUMERS = 500
"""The most consumers served at once."""
SLOWEST_S = 60.0
"""How long a consumer may take to read a piece or a message."""


class Consumers:
    """Sends results to consumers."""

    def __init__(self, metrics: Metrics, room: Room, sockets: Sockets, stopping: asyncio.Event) -> None:
        self._metrics, self._room, self._sockets, self._stopping = metrics, room, sockets, stopping
        self._count = 0
        self._reading = asyncio.Semaphore(READERS)

    async def send_events(self, request: Request, stream: OutputStream) -> Response:
        """Send the events of a stream from an offset on, as they come, as server-sent events."""
        asked = request.headers.get("last-event-id") or request.query_params.get("offset", "latest")
        position = _position(stream, asked)

        async def send() -> AsyncIterator[bytes]:
            yield f": events of {stream.name} from {position} on, as they come\n\n".encode()
            async for events in self._follow(stream, position):
                for piece in _pieces(map(_server_sent, events)):
                    yield piece

        headers = {"X-Offset": str(position)}
        if request.method == "HEAD":
            return Response(headers=headers, media_type="text/event-stream")
        self._enter()
        return _Feed(send(), self._leave, headers)

    async def last_result(self, request: Request, stream: OutputStream) -> Response:
        """Send the last event of a key."""
        if not stream.key:
            raise refusal(409, f"Stream {stream.name} has no key; declare one, as app.sink(..., key='field').")
        # The path still percent-encoded, so that an encoded slash within a value does not separate values.
        path = request.scope["raw_path"].decode("latin-1").partition("?")[0]
        parts = path.split("/")[3:]
        if len(parts) != len(stream.key):
            raise refusal(
                400, f"The key of stream {stream.name} is {'/'.join(stream.key)}; give a value for each, as in a URL."
            )
        event = stream.store.latest(key_of_path(parts, stream.event_type, stream.key))
        if event is None:
            raise refusal(404, f"Stream {stream.name} has had no event of this key.")
        return Response(event.payload, media_type="application/json", headers={"X-Offset": str(event.offset)})

    async def feed(self, socket: WebSocket, stream: OutputStream) -> None:
        """Send the events of a stream over a WebSocket."""
        position = _position(stream, socket.query_params["offset"])
        self._enter()
        try:
            await socket.accept()
            with self._sockets.open(sends=False):
                await self._feed(socket, stream, position)
        except asyncio.CancelledError:
            if not self._room.memory.is_full:
                raise
            await socket.close(1013, "The adapter has too little memory; resume from the last offset.")
        finally:
            self._leave()

    async def _feed(self, socket: WebSocket, stream: OutputStream, position: int) -> None:
        gone = asyncio.create_task(_until_gone(socket))
        try:
            async for events in self._follow(stream, position, gone):
                for event in events:
                    text = f'{{"next":"{event.next}","event":{event.payload.decode()}}}'
                    async with asyncio.timeout(SLOWEST_S):
                        await socket.send_text(text)
            if not gone.done():
                gone.cancel()
                await asyncio.wait({gone})
                await socket.close(1001, "The adapter stops; resume from the last offset.")
        except TimeoutError:
            return
        finally:
            gone.cancel()

    async def _follow(
        self, stream: OutputStream, position: int, gone: "asyncio.Task[None] | None" = None
    ) -> AsyncIterator[list[Stored]]:
        """Yield chunks of events from a position on, as they come, until the adapter stops or the consumer is gone."""
        sent = self._metrics.sent.labels(stream.name)
        over = [asyncio.create_task(self._stopping.wait()), *([] if gone is None else [gone])]
        try:
            while not any(task.done() for task in over):
                async with self._reading:
                    events = _not_more(await asyncio.to_thread(stream.store.read, position, CHUNK))
                if events:
                    yield events
                    sent.inc(len(events))
                    position = int(events[-1].next)
                    await asyncio.sleep(0)  # a consumer that is always ready must not keep the others waiting
                    continue
                news = asyncio.create_task(stream.tail.passes(position))
                try:
                    await asyncio.wait([news, *over], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    news.cancel()
        finally:
            over[0].cancel()

    def _enter(self) -> None:
        self._room.check()
        if self._count >= CONSUMERS:
            raise refusal(503, f"There are {CONSUMERS} consumers, as many as are served; try again later.")
        self._count += 1

    def _leave(self) -> None:
        self._count -= 1


class _Feed(EventSourceResponse):
    """A response of server-sent events that calls ``over`` at its end, even if it never began."""

    def __init__(self, events: AsyncIterator[bytes], over: Callable[[], None], headers: Mapping[str, str]) -> None:
        super().__init__(events, headers=headers, ping=15, send_timeout=SLOWEST_S)
        self._over = over

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._over()


def _pieces(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Join small parts to pieces of at least `PIECE` bytes."""
    held = bytearray()
    for part in parts:
        held += part
        if len(held) >= PIECE:
            yield bytes(held)
            held.clear()
    if held:
        yield bytes(held)


def _not_more(events: list[Stored]) -> list[Stored]:
    """Return the first events, at least one, with at most `CHUNK_BYTES` together."""
    sizes = accumulate(len(event.payload) for event in events)
    return events[: max(1, sum(size <= CHUNK_BYTES for size in sizes))]


def _server_sent(event: Stored) -> bytes:
    """Encode a server-sent event; a payload of several lines becomes several data lines, as the standard requires."""
    data = b"\r\ndata: ".join(event.payload.splitlines())
    return b"id: %b\r\ndata: %b\r\n\r\n" % (event.next.encode(), data)


def _position(stream: OutputStream, asked: str) -> int:
    try:
        return stream.store.position(asked)
    except ConfigurationError as error:
        raise refusal(400, str(error)) from None
    except LookupError as error:
        raise refusal(410, str(error)) from None


async def _until_gone(socket: WebSocket) -> None:
    with suppress(RuntimeError):  # Starlette raises it where the client has gone already
        while (await socket.receive())["type"] != "websocket.disconnect":
            pass
