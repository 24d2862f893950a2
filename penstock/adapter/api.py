"""The HTTP and WebSocket API of the adapter."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from hashlib import blake2b
from ipaddress import ip_address
from itertools import accumulate
from typing import Any
from urllib.parse import urlsplit

import msgspec
from sse_starlette import EventSourceResponse
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from penstock.adapter.access import Access, Role
from penstock.adapter.asked import Asked, Problem, refusal
from penstock.adapter.body import MOST_EVENTS, Malformed, Rejection, gunzip
from penstock.adapter.door import KeyReused
from penstock.adapter.metrics import Metrics
from penstock.adapter.names import Names, key_of, unwrap
from penstock.adapter.openapi import description
from penstock.adapter.page import page
from penstock.adapter.routes import route_of
from penstock.adapter.store import Stored
from penstock.adapter.streams import Input, Limits, Output
from penstock.connectors.log import Parcel
from penstock.errors import ConfigurationError, PenstockError, SinkError
from penstock.kinds.coding import json_schema
from penstock.kinds.text import key_of_path
from penstock.runs.gate import Gate

IDLE_POLL_S = (0.01, 0.25)
"""How often a consumer's stream is looked at: at first, and after nothing has come for a while."""
CHUNK, CHUNK_BYTES = 500, 256 << 10
"""Events that are read for a consumer at a time, and about how many bytes of them are held while it does not read."""
READERS = 2
"""Threads that read for consumers at a time: more would keep the interpreter from who sends."""
CONSUMERS = 500
"""How many are served at a time."""


class Answer(msgspec.Struct):
    """What became of a request's events: ``accepted`` are durable, ``duplicates`` had been before."""

    accepted: int = 0
    duplicates: int = 0
    rejected: list[Rejection] = []


class Api:
    """The routes over some streams.

    Parameters
    ----------
    inputs, outputs: by the name of the stream.
    origins: web origins whose pages may use it.
    hosts: names, besides localhost and addresses, by which it may be asked where there are no tokens.
    """

    def __init__(
        self,
        title: str,
        inputs: Mapping[str, Input],
        outputs: Mapping[str, Output],
        access: Access,
        limits: Limits,
        metrics: Metrics,
        origins: tuple[str, ...] = (),
        hosts: tuple[str, ...] = (),
    ) -> None:
        self._hosts = {"localhost", *hosts}
        self._inputs, self._outputs = inputs, outputs
        self.limits = limits
        self._access, self._metrics, self._origins = access, metrics, origins
        self.held = self._consumers = 0
        self._stopping = asyncio.Event()
        self._reading = asyncio.Semaphore(READERS)
        described = description(title, inputs, outputs, limits.body)
        self._openapi, self._docs = msgspec.json.encode(described), page(described)
        self.application: ASGIApp = self
        if origins:
            self.application = CORSMiddleware(self, list(origins), ["*"], ["*"])

    def stop(self) -> None:
        """End the streams of all consumers; they can resume elsewhere."""
        self._stopping.set()

    # --- events in ------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take an ASGI call: a request, or a WebSocket."""
        if scope["type"] == "websocket":
            await self._open_socket(WebSocket(scope, receive, send))
            return
        response: Response
        try:
            route, parts = route_of(scope["method"], scope["path"])
            asked = Asked(scope, receive, parts)
            if route.role != "nobody":
                self._check(asked, route.role)
            response = await getattr(self, route.handler)(asked)
        except Problem as problem:
            response = _shown_problem(problem)
        except ClientDisconnect:
            return
        except asyncio.CancelledError:  # by the server, which has waited long enough for us
            response = _shown_problem(refusal(503, "The adapter stops before the store has answered; send it again."))
        except Exception as error:
            response = _shown_failure(error)
        await response(scope, receive, send)

    async def post_events(self, request: Asked) -> Response:
        stream = self._input(request)
        began = time.monotonic()
        lines = _is_ndjson(request.headers)
        names = Names(
            request.headers.get("idempotency-key"),
            request.query_params.get("id"),
            stream.event_type,
            self._client(request),
        )
        hold = _Hold(self)
        try:
            body = await self._receive(request, hold)
            answer = await self._accept(stream, *self._read(stream, body, names, lines))
        finally:
            hold.release()
        stream.acknowledged.observe(time.monotonic() - began)
        none_fits = bool(answer.rejected) and not answer.accepted and not answer.duplicates
        return _json(answer, 422 if none_fits else 200)

    async def _receive(self, request: Asked, hold: "_Hold") -> bytes:
        """The body, unpacked, of a client that sends it in time."""
        limit = self.limits.body
        packed = request.headers.get("content-encoding", "identity").lower()
        if packed not in ("identity", "gzip"):
            raise refusal(415, f"Content-Encoding {packed} is not understood; send the body plain or as gzip.")
        announced = request.headers.get("content-length", "")
        if announced.isdigit() and int(announced) > limit:
            raise self._too_large()
        chunks = bytearray()
        try:
            async with asyncio.timeout(self.limits.receive):
                async for chunk in request.stream():
                    hold.add(len(chunk))
                    chunks += chunk
                    if len(chunks) > limit:
                        raise self._too_large()
        except TimeoutError:
            raise refusal(
                408, f"The body did not come within {self.limits.receive:g} s; nothing was accepted."
            ) from None
        if packed == "identity":
            return bytes(chunks)
        try:
            body = gunzip(bytes(chunks), limit)
        except OverflowError:
            raise self._too_large() from None
        except Malformed as error:
            raise refusal(400, str(error)) from None
        hold.add(len(body))
        return body

    def _read(self, stream: Input, body: bytes, names: Names, lines: bool) -> tuple[Parcel, list[Rejection]]:
        """The events of a body that fit, and the others."""
        try:
            parsed = stream.reader.read(body, lines=lines)
        except Malformed as error:
            raise refusal(400, str(error)) from None
        except OverflowError:
            raise self._too_large() from None
        return names.parcel(parsed), parsed.rejected

    async def _accept(self, stream: Input, parcel: Parcel, rejected: list[Rejection]) -> Answer:
        """Have events made durable."""
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
        stream.duplicate.inc(answer.duplicates)
        return answer

    def _too_large(self) -> Problem:
        most = f"more than {self.limits.body} bytes, unpacked, or {MOST_EVENTS} events"
        return refusal(413, f"The body has {most}; send fewer events at a time.")

    # --- events out -----------------------------------------------------------------------------

    async def get_events(self, request: Asked) -> Response:
        stream = self._output(request)
        asked = request.headers.get("last-event-id") or request.query_params.get("offset", "latest")
        position = _position(stream, asked)

        async def send() -> AsyncIterator[bytes]:
            yield f": events of {stream.name} from {position} on, as they come\n\n".encode()
            async for events in self._follow(stream, position):
                yield b"".join(map(_server_sent, events))

        self._check_room()
        return EventSourceResponse(send(), headers={"X-Offset": str(position)}, ping=15, send_timeout=60)

    async def get_result(self, request: Asked) -> Response:
        stream = self._output(request)
        if not stream.key:
            raise refusal(409, f"Stream {stream.name} has no key; declare one, as app.sink(..., key='field').")
        # As it came, still quoted, so that a slash within a value is no division between two.
        found = stream.store.latest(key_of_path(request.raw_path.split("/")[3:], stream.event_type, stream.key))
        if found is None:
            raise refusal(404, f"Stream {stream.name} has had no event of this key.")
        return Response(found.payload, media_type="application/json", headers={"X-Offset": str(found.offset)})

    async def _follow(self, stream: Output, position: int) -> AsyncIterator[list[Stored]]:
        """The events of a stream from a position on, some at a time as they come, until the adapter stops."""
        sent = self._metrics.sent.labels(stream.name)
        idle, longest = IDLE_POLL_S
        pause = idle
        self._consumers += 1
        try:
            while not self._stopping.is_set():
                async with self._reading:
                    events = _not_more(await asyncio.to_thread(stream.store.read, position, CHUNK))
                if events:
                    yield events
                    sent.inc(len(events))
                    position, pause = int(events[-1].next), idle
                    await asyncio.sleep(0)  # a consumer that is always ready must not keep the others waiting
                    continue
                try:
                    await asyncio.wait_for(self._stopping.wait(), pause)
                except TimeoutError:
                    pause = min(longest, pause * 1.5)
        finally:
            self._consumers -= 1

    def _check_room(self) -> None:
        if self._consumers >= CONSUMERS:
            raise refusal(503, f"There are {CONSUMERS} consumers, as many as are served; try again later.")

    # --- both, over a WebSocket -----------------------------------------------------------------

    async def _open_socket(self, socket: WebSocket) -> None:
        """With an ``offset`` in the query the socket sends a stream's events; without, it receives them."""
        receiving = "offset" not in socket.query_params
        try:
            route, parts = route_of("GET", socket.scope["path"])
            if route.path != "/streams/{name}":
                raise refusal(404, "A WebSocket is for /streams/NAME.")
            socket.scope["path_params"] = parts
            self._check(socket, "produce" if receiving else "consume")
            if receiving:
                await self._receive_from(socket, self._input(socket))
            else:
                stream = self._output(socket)
                await self._send_to(socket, stream, _position(stream, socket.query_params["offset"]))
        except Problem as problem:
            await socket.close(1008, problem.detail[:120])
        except PenstockError as error:
            await socket.close(1011, str(error)[:120])
        except (WebSocketDisconnect, RuntimeError):  # Starlette raises the latter where a client has gone while we send
            return

    async def _receive_from(self, socket: WebSocket, stream: Input) -> None:
        """Answer each message, which is a body as POST takes it or an envelope, as POST would."""
        await socket.accept()
        field = socket.query_params.get("id")
        while True:
            message = await socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            text = message.get("text")
            body = text.encode() if text is not None else message.get("bytes") or b""
            hold = _Hold(self)
            try:
                hold.add(len(body))
                if len(body) > self.limits.body:
                    raise self._too_large()
                key, events, lines = unwrap(body)
                names = Names(key, field, stream.event_type, self._client(socket))
                answer: Any = msgspec.to_builtins(await self._accept(stream, *self._read(stream, events, names, lines)))
            except Problem as problem:
                key, answer = key_of(body), {"status": problem.status_code, "detail": problem.detail}
            finally:
                hold.release()
            await socket.send_text(msgspec.json.encode({"key": key, **answer}).decode())

    async def _send_to(self, socket: WebSocket, stream: Output, position: int) -> None:
        self._check_room()
        await socket.accept()
        gone = asyncio.create_task(_until_gone(socket))
        try:
            async for events in self._follow(stream, position):
                for event in events:
                    if gone.done():
                        return
                    await socket.send_text(f'{{"next":"{event.next}","event":{event.payload.decode()}}}')
            await socket.close(1001, "The adapter stops; resume from the last offset.")
        finally:
            gone.cancel()

    # --- what is there, and how it goes ---------------------------------------------------------

    async def get_openapi(self, request: Asked) -> Response:
        return Response(self._openapi, media_type="application/json")

    async def get_docs(self, request: Asked) -> Response:
        return Response(self._docs, media_type="text/html")

    async def get_index(self, request: Asked) -> Response:
        places = {
            "docs": "/docs",
            "openapi": "/openapi.json",
            "streams": "/streams",
            "metrics": "/metrics",
            "health": "/health",
        }
        return _json({"name": "penstock adapter", **places})

    async def get_health(self, request: Asked) -> Response:
        return _json(
            {"status": "stopping" if self._stopping.is_set() else "up"}, 503 if self._stopping.is_set() else 200
        )

    async def get_metrics(self, request: Asked) -> Response:
        return Response(self._metrics.text(), media_type="text/plain; version=0.0.4")

    async def get_schema(self, request: Asked) -> Response:
        return _json(json_schema(self._stream(request).event_type), media_type="application/schema+json")

    async def get_streams(self, request: Asked) -> Response:
        listed = [
            {"name": stream.name, "direction": direction, "event": stream.event_type.__name__}
            for direction, streams in (("in", self._inputs), ("out", self._outputs))
            for stream in streams.values()
        ]
        return _json(listed)

    async def get_gate(self, request: Asked) -> Response:
        return _json(_shown(self._input(request).door.gate))

    async def put_gate(self, request: Asked) -> Response:
        stream = self._input(request)
        hold = _Hold(self)
        try:
            body = await self._receive(request, hold)
            wanted = msgspec.json.decode(body, type=GateSetting)
            self.limits.check(stream.name, wanted.flush_timer_s)
            stream.door.set_gate(Gate(wanted.batch_size, wanted.flush_timer_s))
        except (msgspec.DecodeError, ConfigurationError) as error:
            raise refusal(422, f'{error} Send {{"batch_size": 1000, "flush_timer_s": 0.05}}.') from None
        finally:
            hold.release()
        return _json(_shown(stream.door.gate))

    async def get_arrivals(self, request: Asked) -> Response:
        return _json(self._input(request).arrivals.measured())

    async def get_transfers(self, request: Asked) -> Response:
        return _json(self._input(request).transfers.measured())

    # --- who asks for what ----------------------------------------------------------------------

    def _check(self, asked: Asked | WebSocket, role: Role | None) -> None:
        """Refuse a request whose token does not allow a role (any, if None)."""
        origin = asked.headers.get("origin")
        if origin is not None and not self._is_welcome(origin, asked.headers.get("host", "")):
            raise refusal(403, f"Pages of {origin[:80]} may not use this adapter; allow them with --allow-origin.")
        if self._access.open and not self._is_here(asked.headers.get("host", "")):
            raise refusal(
                403,
                "Without tokens the adapter answers only to addresses and its own names; allow this one with --allow-host.",
            )
        given = _token_of(asked)
        if not self._access.knows(given):
            raise Problem(401, "A token is needed: send Authorization: Bearer TOKEN.", {"WWW-Authenticate": "Bearer"})
        if role is not None and not self._access.allows(role, given):
            raise refusal(403, f"This token does not permit you to {role}: use one with that role (see --tokens).")

    def _client(self, asked: Asked | WebSocket) -> str:
        """Whose Idempotency-Keys are one's own: those of a token."""
        token = None if self._access.open else _token_of(asked)
        return "" if token is None else blake2b(token.encode(), digest_size=6).hexdigest()

    def _is_here(self, host: str) -> bool:
        """Whether a request was meant for us: the page of another site can have its own name lead here."""
        name = urlsplit(f"//{host}").hostname or ""
        if not host or name in self._hosts:
            return True
        with suppress(ValueError):
            ip_address(name)
            return True
        return False

    def _is_welcome(self, origin: str, host: str) -> bool:
        """Whether a web page may ask: any page that a browser here shows could, if its origin did not count."""
        return origin in self._origins or "*" in self._origins or origin.partition("://")[2] == host

    def _input(self, asked: Asked | WebSocket) -> Input:
        stream = self._stream(asked)
        if not isinstance(stream, Input):
            raise Problem(405, f"Stream {stream.name} is a result; it can be received, not sent to.", {"Allow": "GET"})
        return stream

    def _output(self, asked: Asked | WebSocket) -> Output:
        stream = self._stream(asked)
        if not isinstance(stream, Output):
            raise Problem(
                405, f"Stream {stream.name} comes in here; it can be sent to, not received.", {"Allow": "POST"}
            )
        return stream

    def _stream(self, asked: Asked | WebSocket) -> Input | Output:
        name = asked.path_params["name"]
        stream = self._inputs.get(name) or self._outputs.get(name)
        if stream is None:
            known = ", ".join((*self._inputs, *self._outputs))
            raise refusal(404, f"There is no stream of this name; there are {known}.")
        return stream


class _Hold:
    """The bytes that a request has in memory, counted against the limit of all."""

    def __init__(self, api: Api) -> None:
        self._api, self._mine = api, 0

    def add(self, size: int) -> None:
        """Hold so many more.

        Raises
        ------
        Problem: there is no room for them.
        """
        limit = self._api.limits.memory
        if self._api.held + size > limit:
            raise refusal(503, f"More than {limit} bytes of events wait to be written; try again later.")
        self._mine += size
        self._api.held += size

    def release(self) -> None:
        """Hold nothing."""
        self._api.held -= self._mine
        self._mine = 0


class GateSetting(msgspec.Struct, forbid_unknown_fields=True):
    """A gate as it is asked for."""

    batch_size: int
    flush_timer_s: float = 0.0


def _not_more(events: list[Stored]) -> list[Stored]:
    """The first of some events, at least one, that are not too much to hold."""
    sizes = accumulate(len(event.payload) for event in events)
    return events[: max(1, sum(size <= CHUNK_BYTES for size in sizes))]


def _server_sent(event: Stored) -> bytes:
    """An event as its consumer gets it; a payload of several lines is divided, as the standard has it."""
    data = b"\r\ndata: ".join(event.payload.splitlines())
    return b"id: %b\r\ndata: %b\r\n\r\n" % (event.next.encode(), data)


def _token_of(asked: Asked | WebSocket) -> str | None:
    """The token that a request brings."""
    scheme, _, token = asked.headers.get("authorization", "").partition(" ")
    return token if scheme.lower() == "bearer" else asked.query_params.get("access_token")


def _position(stream: Output, asked: str) -> int:
    try:
        return stream.store.position(asked)
    except ConfigurationError as error:
        raise refusal(400, str(error)) from None
    except LookupError as error:
        raise refusal(410, str(error)) from None


def _is_ndjson(headers: Mapping[str, str]) -> bool:
    media = headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if media in ("application/x-ndjson", "application/ndjson", "application/jsonl"):
        return True
    if media in ("application/json", "application/x-www-form-urlencoded"):  # the latter is what curl -d says
        return False
    raise refusal(415, "The Content-Type is not understood; send application/json or application/x-ndjson.")


async def _until_gone(socket: WebSocket) -> None:
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass


def _shown(gate: Gate) -> GateSetting:
    return GateSetting(gate.batch_size, gate.flush_timer)


def _json(content: Any, status: int = 200, media_type: str = "application/json") -> Response:
    return Response(msgspec.json.encode(content), status, media_type=media_type)


def _shown_problem(error: HTTPException) -> Response:
    problem = {"title": "refused", "status": error.status_code, "detail": error.detail}
    return Response(msgspec.json.encode(problem), error.status_code, error.headers, "application/problem+json")


def _shown_failure(error: Exception) -> Response:
    if isinstance(error, PenstockError):
        return _shown_problem(refusal(503, str(error)))
    return _shown_problem(refusal(500, f"internal error: {type(error).__name__}"))
