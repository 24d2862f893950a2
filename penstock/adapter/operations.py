"""Answers requests about the adapter itself: its description, health, metrics, streams and gates."""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from penstock.adapter.metrics import Metrics
from penstock.adapter.openapi import description
from penstock.adapter.page import page
from penstock.adapter.producers import Producers
from penstock.adapter.room import Hold, Room
from penstock.adapter.streams import Input, Limits, OutputStream
from penstock.errors import ConfigurationError
from penstock.kinds.coding import json_schema
from penstock.runs.gate import TransferGate
from penstock.web.problem import refusal

PLACES = {"docs": "/docs", "openapi": "/openapi.json", "streams": "/streams", "metrics": "/metrics", "health": "/health"}


class GateSetting(msgspec.Struct, forbid_unknown_fields=True):
    """The settings of a gate, as JSON."""

    batch_size: int
    flush_timer_s: float = 0.0


class Operations:
    """Answers requests about the adapter and its streams."""

    def __init__(
        self,
        title: str,
        inputs: Mapping[str, Input],
        outputs: Mapping[str, OutputStream],
        limits: Limits,
        metrics: Metrics,
        stopping: asyncio.Event,
        producers: Producers,
        room: Room,
    ) -> None:
        self._limits, self._metrics, self._stopping, self._producers, self._room = (limits, metrics, stopping, producers, room)
        described = description(title, inputs, outputs, limits.body)
        self._openapi, self._docs = msgspec.json.encode(described), page(described)
        directions: tuple[tuple[str, Mapping[str, Input | OutputStream]], ...] = (("in", inputs), ("out", outputs))
        self._streams = [
            {"name": stream.name, "direction": direction, "event": stream.event_type.__name__}
            for direction, streams in directions
            for stream in streams.values()
        ]

    async def openapi(self, request: Request) -> Response:
        """Send the OpenAPI document."""
        return Response(self._openapi, media_type="application/json")

    async def docs(self, request: Request) -> Response:
        """Send the API's description as a page."""
        return Response(self._docs, media_type="text/html")

    async def index(self, request: Request) -> Response:
        """Send the paths of the main resources."""
        return _json({"name": "penstock adapter", **PLACES})

    async def health(self, request: Request) -> Response:
        """Tell whether the adapter is up, or stopping."""
        if self._stopping.is_set():
            raise refusal(503, "The adapter stops; try again once another has started.")
        return _json({"status": "up"})

    async def metrics(self, request: Request) -> Response:
        """Send all metrics in Prometheus's format."""
        return Response(self._metrics.text(), media_type="text/plain; version=0.0.4")

    async def streams(self, request: Request) -> Response:
        """List the streams with their directions and event types."""
        return _json(self._streams)

    async def schema(self, request: Request, stream: Input | OutputStream) -> Response:
        """Send the JSON Schema of a stream's events."""
        return _json(json_schema(stream.event_type), media_type="application/schema+json")

    async def gate(self, request: Request, stream: Input) -> Response:
        """Send the gate of a stream."""
        return _json(GateSetting(stream.door.gate.batch_size, stream.door.gate.flush_timer))

    async def set_gate(self, request: Request, stream: Input) -> Response:
        """Change the gate of a stream."""
        with Hold(self._room) as hold:
            body = await self._producers.receive(request, hold)
            try:
                wanted = msgspec.json.decode(body, type=GateSetting)
                self._limits.check(stream.name, wanted.flush_timer_s)
                stream.door.set_gate(TransferGate(wanted.batch_size, wanted.flush_timer_s))
            except (msgspec.DecodeError, RecursionError, ConfigurationError) as error:
                raise refusal(422, f'{str(error).rstrip(".")}. Send {{"batch_size": 1000, "flush_timer_s": 0.05}}.') from None
        return await self.gate(request, stream)

    async def arrivals(self, request: Request, stream: Input) -> Response:
        """Send measurements of how a stream's events arrive."""
        return _json(stream.arrivals.measured())

    async def transfers(self, request: Request, stream: Input) -> Response:
        """Send measurements of the transfers to a stream's store."""
        return _json(stream.transfers.measured())


def _json(content: Any, status: int = 200, media_type: str = "application/json") -> Response:
    return Response(msgspec.json.encode(content), status, media_type=media_type)
