"""The HTTP and WebSocket API of the adapter: checks access, and dispatches requests to handlers."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Router, WebSocketRoute
from starlette.routing import Route as Path
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from penstock.adapter.consumers import Consumers
from penstock.adapter.metrics import Metrics
from penstock.adapter.operations import Operations
from penstock.adapter.producers import Producers
from penstock.adapter.room import Room
from penstock.adapter.routes import ROUTES, Route
from penstock.adapter.sockets import Sockets
from penstock.adapter.streams import Input, Limits, OutputStream
from penstock.web.guard import Guard
from penstock.web.memory import MemoryLimit
from penstock.web.problem import RequestProblem, as_response, refusal

Handler = Callable[..., Awaitable[Response]]
"""Answers a request; also takes the stream, if the path names one."""

NOWHERE = {
    "results": "Name the stream and the key: /results/NAME/KEY.",
    "": "There is nothing at this path; /docs and /openapi.json describe what there is.",
}


class Api:
    """The API over some streams.

    Args:
        inputs, outputs: the streams, by name.
        origins: web origins whose pages may use the API (CORS).
    """

    def __init__(
        self,
        title: str,
        inputs: Mapping[str, Input],
        outputs: Mapping[str, OutputStream],
        guard: Guard,
        limits: Limits,
        metrics: Metrics,
        origins: tuple[str, ...] = (),
    ) -> None:
        self._inputs, self._outputs, self._guard = inputs, outputs, guard
        self._stopping = asyncio.Event()
        room = Room(limits.held, MemoryLimit(limits.memory))
        self.sockets = Sockets(room.memory)
        self._producers = producers = Producers(limits, room, guard.client, self.sockets, self._stopping)
        self._consumers = consumers = Consumers(metrics, room, self.sockets, self._stopping)
        asked = Operations(title, inputs, outputs, limits, metrics, self._stopping, producers, room)
        self._handlers: Mapping[str, Handler] = {
            "events in": producers.post,
            "events out": consumers.send_events,
            "result": consumers.last_result,
            "index": asked.index,
            "docs": asked.docs,
            "health": asked.health,
            "metrics": asked.metrics,
            "openapi": asked.openapi,
            "streams": asked.streams,
            "schema": asked.schema,
            "gate": asked.gate,
            "set gate": asked.set_gate,
            "arrivals": asked.arrivals,
            "transfers": asked.transfers,
        }
        by_path: dict[str, dict[str, Route]] = {}
        for route in ROUTES:
            by_path.setdefault(route.path, {})[route.method] = route
        paths: list[BaseRoute] = [Path(path, _Answering(self.answer, routes)) for path, routes in by_path.items()]
        paths.append(WebSocketRoute("/streams/{name}", self._converse))
        router: ASGIApp = Router(paths, redirect_slashes=False, default=_nowhere)
        router = _without_slash(router)
        self.application: ASGIApp = router if not origins else CORSMiddleware(router, list(origins), ["*"], ["*"])

    async def stop(self) -> None:
        """End the streams of consumers at once, as they can resume; end producers' sockets once their events are answered."""
        self._stopping.set()
        while len(self.sockets):
            await asyncio.sleep(0.02)

    async def answer(self, request: Request, route: Route) -> Response:
        """Check access, and answer a request.

        Raises:
            Problem: the request is refused.
        """
        if route.role != "nobody":
            self._guard.check(request, route.role)
        if route.query:
            self._refuse_unknown(request, route.query)
        handler = self._handlers[route.handler]
        match route.of:
            case "adapter":
                return await handler(request)
            case "input":
                return await handler(request, self._input(request))
            case "stream":
                return await handler(request, self._stream(request))
            case _:
                return await handler(request, self._output(request))

    async def _converse(self, socket: WebSocket) -> None:
        """Serve a WebSocket: with an ``offset`` in the query it sends a stream's events, otherwise it takes events."""
        try:
            if "offset" in socket.query_params:
                self._guard.check(socket, "consume")
                self._refuse_unknown(socket, ("offset",))
                await self._consumers.feed(socket, self._output(socket))
            else:
                self._guard.check(socket, "produce")
                self._refuse_unknown(socket, ("id", "offset"))
                await self._producers.converse(socket, self._input(socket))
        except (WebSocketDisconnect, RuntimeError, TimeoutError):  # the client has gone, or does not read
            return
        except Exception as error:
            await _refuse(socket, error)

    def _refuse_unknown(self, asked: HTTPConnection, known: Sequence[str]) -> None:
        """Refuse parameters of a query that would be ignored: unknown ones, and a second one of the same name."""
        names = [name for name, _ in asked.query_params.multi_items()] if asked.scope["query_string"] else []
        for name in names:
            if name not in (*known, self._guard.query):
                raise refusal(400, f"There is no parameter {name[:80]} here; there is {' and '.join(known)}.")
            if names.count(name) > 1:
                raise refusal(400, f"The parameter {name} is given {names.count(name)} times: give it once.")

    def _input(self, asked: HTTPConnection) -> Input:
        stream = self._stream(asked)
        if not isinstance(stream, Input):
            raise RequestProblem(405, f"Stream {stream.name} is a result; it can be received, not sent to.", {"Allow": "GET"})
        return stream

    def _output(self, asked: HTTPConnection) -> OutputStream:
        stream = self._stream(asked)
        if not isinstance(stream, OutputStream):
            raise RequestProblem(
                405, f"Stream {stream.name} comes in here; it can be sent to, not received.", {"Allow": "POST"}
            )
        return stream

    def _stream(self, asked: HTTPConnection) -> Input | OutputStream:
        name = asked.path_params["name"]
        stream = self._inputs.get(name) or self._outputs.get(name)
        if stream is None:
            known = ", ".join((*self._inputs, *self._outputs))
            raise refusal(404, f"There is no stream of this name; there are {known}.")
        return stream


class _Answering:
    """The ASGI application for the routes of one path."""

    def __init__(self, answer: Callable[[Request, Route], Awaitable[Response]], routes: Mapping[str, Route]) -> None:
        self._answer, self._routes = answer, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            route = self._routes.get("GET" if scope["method"] == "HEAD" else scope["method"])
            if route is None:
                raise RequestProblem(405, f"{scope['method']} is not for this path.", {"Allow": ", ".join(self._routes)})
            response = await self._answer(Request(scope, receive), route)
        except ClientDisconnect:  # the server also raises this for a body that contradicts its headers
            response = as_response(refusal(400, "The body is cut off, or its chunks are not understood."))
        except Exception as error:
            response = as_response(error)
        await response(scope, receive, send)


async def _refuse(socket: WebSocket, error: Exception) -> None:
    """Refuse a WebSocket: before it is accepted by an HTTP response, afterwards by closing it with the reason."""
    with suppress(WebSocketDisconnect, RuntimeError):
        if socket.application_state is WebSocketState.CONNECTING:
            await socket.send_denial_response(as_response(error))
        else:
            await socket.close(1011, (error.detail if isinstance(error, RequestProblem) else str(error))[:120])


def _without_slash(application: ASGIApp) -> ASGIApp:
    """Wrap an application to ignore a slash at the end of a path, but not under /results/, where it belongs to the key."""

    async def asked(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path.endswith("/") and not path.startswith("/results/"):
            scope = {**scope, "path": path.rstrip("/") or "/"}
        await application(scope, receive, send)

    return asked


async def _nowhere(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await _refuse(WebSocket(scope, receive, send), refusal(404, "A WebSocket is for /streams/NAME."))
        return
    place = "results" if scope["path"].startswith("/results") else ""
    await as_response(refusal(404, NOWHERE[place]))(scope, receive, send)
