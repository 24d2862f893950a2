"""Takes the events that clients send, by requests and by WebSockets."""

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.websockets import WebSocket

from penstock.adapter.body import MOST_EVENTS, Malformed, Rejection, gunzip
from penstock.adapter.door import KeyReused
from penstock.adapter.names import EventNames, key_of, unwrap
from penstock.adapter.room import Hold, Room
from penstock.adapter.sockets import Sockets
from penstock.adapter.streams import Input, Limits
from penstock.connectors.log import Parcel
from penstock.errors import SinkError
from penstock.web.problem import RequestProblem, refusal

LARGEST_SOCKET_MESSAGE = 1 << 20
"""The most bytes of a WebSocket message, which is in memory before it can be counted; larger bodies go by POST."""
READ_ASIDE = 128 << 10
"""Bodies with more bytes are split and checked in a thread, so that other requests need not wait."""
SOCKETS = 2_000
"""The most WebSockets that may be open."""
SLOWEST_S = 60.0
"""How long a client may take to read an answer over a WebSocket."""


class Answer(msgspec.Struct):
    """The answer to a request: ``accepted`` events are now durable, ``duplicates`` were so before."""

    accepted: int = 0
    duplicates: int = 0
    rejected: list[Rejection] = []


class Producers:
    """Takes events from clients, and answers when they are durable.

    Args:
        client: returns the name of a request's client; Idempotency-Keys are unique per client.
    """

    def __init__(
        self, limits: Limits, room: Room, client: Callable[[HTTPConnection], str], sockets: Sockets, stopping: asyncio.Event
    ) -> None:
        self._limits, self._room, self._client = limits, room, client
        self._sockets, self._stopping = sockets, stopping
        self._aside = ThreadPoolExecutor(1)

    async def post(self, request: Request, stream: Input) -> Response:
        """Answer a request with events, once they are durable."""
        began = time.monotonic()
        headers = headers_of(request)
        lines = _is_ndjson(headers.get(b"content-type", b"application/json").decode("latin-1"))
        key = headers[b"idempotency-key"].decode("latin-1") if b"idempotency-key" in headers else None
        if key is not None and sum(name == b"idempotency-key" for name, _ in request.scope["headers"]) > 1:
            raise refusal(400, "There are several Idempotency-Keys: send one.")
        names = EventNames(key, _field_of(request), stream.event_type, self._client(request))
        with Hold(self._room) as hold:
            body = await self.receive(request, hold)
            answer = await self._accept(stream, *await self._read(stream, body, names, lines))
        stream.acknowledged.observe(time.monotonic() - began)
        none_fits = bool(answer.rejected) and not answer.accepted and not answer.duplicates
        return Response(msgspec.json.encode(answer), 422 if none_fits else 200, media_type="application/json")

    async def receive(self, request: Request, hold: Hold) -> bytes:
        """Receive a request's body; returns it unpacked.

        Raises:
            Problem: the body is too large, comes too slowly, or has an unknown encoding.
        """
        limit = self._limits.body
        headers = headers_of(request)
        packed = headers.get(b"content-encoding", b"identity").decode("latin-1").lower()
        if packed not in ("identity", "gzip"):
            raise refusal(415, f"Content-Encoding {packed} is not understood; send the body plain or as gzip.")
        announced = headers.get(b"content-length", b"")
        expected = int(announced) if announced.isdigit() and len(announced) < 20 else None
        if expected is not None and expected > limit:
            raise self._too_large()
        body, chunks = b"", bytearray()
        try:
            async with asyncio.timeout(self._limits.receive):
                async for chunk in request.stream():
                    hold.add(len(chunk))
                    if len(chunks) + len(chunk) > limit:
                        raise self._too_large()
                    if len(chunk) == expected:  # complete: do not wait a turn of the loop for the end mark
                        body = chunk
                        break
                    chunks += chunk
        except TimeoutError:
            raise refusal(408, f"The body did not come within {self._limits.receive:g} s; nothing was accepted.") from None
        body = body or bytes(chunks)
        if packed == "identity":
            return body
        try:
            body = gunzip(body, limit)
        except OverflowError:
            raise self._too_large() from None
        except Malformed as error:
            raise refusal(400, str(error)) from None
        hold.add(len(body))
        return body

    async def _read(self, stream: Input, body: bytes, names: EventNames, lines: bool) -> tuple[Parcel, list[Rejection]]:
        """Parse a body; returns the valid events, named, and the rejected ones."""
        try:
            if len(body) <= READ_ASIDE:
                parsed = stream.reader.read(body, lines=lines)
            else:
                reading = asyncio.get_running_loop().run_in_executor(self._aside, lambda: stream.reader.read(body, lines=lines))
                parsed = await asyncio.wait_for(reading, self._limits.answer)
        except Malformed as error:
            raise refusal(400, str(error)) from None
        except OverflowError:
            raise self._too_large() from None
        except TimeoutError:
            raise refusal(503, "Other large bodies are being read; try again later, or send smaller ones.") from None
        return names.parcel(parsed), parsed.rejected

    async def _accept(self, stream: Input, parcel: Parcel, rejected: list[Rejection]) -> Answer:
        """Make events durable, and count them."""
        answer = Answer(rejected=rejected)
        if rejected:
            stream.rejected.inc(len(rejected))
        if not parcel.payloads:
            return answer
        stream.arrivals.note(len(parcel.payloads))
        try:
            answer.accepted = await stream.door.deliver(parcel)
        except KeyReused as error:
            stream.refused.inc()
            raise refusal(409, str(error)) from None
        except SinkError as error:
            stream.refused.inc()
            known = "send them again with the same Idempotency-Key or ids"
            raise refusal(503, f"{error} These events may or may not have been kept: {known}.") from None
        answer.duplicates = len(parcel.payloads) - answer.accepted
        stream.accepted.inc(answer.accepted)
        if answer.duplicates:
            stream.duplicate.inc(answer.duplicates)
        return answer

    def _too_large(self) -> RequestProblem:
        most = f"more than {self._limits.body} bytes, unpacked, or {MOST_EVENTS} events"
        return refusal(413, f"The body has {most}; send fewer events at a time.")

    async def converse(self, socket: WebSocket, stream: Input) -> None:
        """Answer each message of a WebSocket as POST would; a message is a body as for POST, or an envelope with a key."""
        self._room.check()
        if len(self._sockets) >= SOCKETS:
            raise refusal(503, f"There are {SOCKETS} WebSockets, as many as are served; try again later.")
        await socket.accept()
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            with self._sockets.open(sends=True):
                await self._answer_each(socket, stream, stopping)
        except asyncio.CancelledError:
            if not self._room.memory.is_full:
                raise
            await socket.close(1013, "The adapter has too little memory; send again what was not answered.")
        finally:
            stopping.cancel()

    async def _answer_each(self, socket: WebSocket, stream: Input, stopping: "asyncio.Task[Any]") -> None:
        while True:
            coming = asyncio.create_task(socket.receive())
            try:
                await asyncio.wait((coming, stopping), return_when=asyncio.FIRST_COMPLETED)
            finally:
                coming.cancel()
            if not coming.done():
                await asyncio.wait({coming})
                await socket.close(1001, "The adapter stops; send again what was not answered.")
                return
            message = coming.result()
            if message["type"] == "websocket.disconnect":
                return
            self._sockets.hear()
            text = message.get("text")
            body = text.encode() if text is not None else message.get("bytes") or b""
            if len(body) > LARGEST_SOCKET_MESSAGE:
                await socket.close(1009, f"A message may have {LARGEST_SOCKET_MESSAGE} bytes; send more by POST.")
                return
            async with asyncio.timeout(SLOWEST_S + self._limits.answer):
                await socket.send_text(await self._reply(socket, stream, body))

    async def _reply(self, socket: WebSocket, stream: Input, body: bytes) -> str:
        try:
            with Hold(self._room) as hold:
                hold.add(len(body))
                if len(body) > self._limits.body:
                    raise self._too_large()
                key, events, lines = unwrap(body, stream.event_type)
                names = EventNames(key, _field_of(socket), stream.event_type, self._client(socket))
                parcel, rejected = await self._read(stream, events, names, lines)
                answer: Any = msgspec.to_builtins(await self._accept(stream, parcel, rejected))
        except RequestProblem as problem:
            key, answer = key_of(body), {"status": problem.status_code, "detail": problem.detail}
        return msgspec.json.encode({"key": key, **answer}).decode()


def headers_of(request: Request) -> Mapping[bytes, bytes]:
    """Return the headers as a dict, for many look-ups: Starlette's mapping scans all headers each time."""
    return dict(request.scope["headers"])


def _field_of(asked: HTTPConnection) -> str | None:
    """Return the field that holds the events' ids, which the query names; None where it names none."""
    return asked.query_params.get("id") if asked.scope["query_string"] else None


def _is_ndjson(content_type: str) -> bool:
    media = content_type.partition(";")[0].strip().lower()
    if media in ("application/x-ndjson", "application/ndjson", "application/jsonl"):
        return True
    if media in ("application/json", "application/x-www-form-urlencoded"):  # the latter is the default of curl -d
        return False
    raise refusal(415, "The Content-Type is not understood; send application/json or application/x-ndjson.")
