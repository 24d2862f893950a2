"""The OpenAPI document of the adapter's API, made from the routes and the event types of the streams."""

from collections.abc import Mapping
from typing import Any

import msgspec

import penstock
from penstock.adapter.arrivals import Measured
from penstock.adapter.body import Rejection
from penstock.adapter.routes import JSON, REASONS, ROUTES, Route
from penstock.adapter.streams import Input, OutputStream
from penstock.adapter.transfers import MeasuredTransfers
from penstock.kinds.coding import unknown_schema

Json = dict[str, Any]

PROBLEM: Json = {
    "type": "object",
    "required": ["title", "status", "detail"],
    "properties": {"title": {"type": "string"}, "status": {"type": "integer"}, "detail": {"type": "string"}},
}
ANSWER: Json = {
    "type": "object",
    "required": ["accepted", "duplicates", "rejected"],
    "properties": {
        "accepted": {"type": "integer", "description": "Events that are now durable."},
        "duplicates": {"type": "integer", "description": "Events that had been accepted before, by their id."},
        "rejected": {"type": "array", "items": {"$ref": "#/components/schemas/Rejection"}},
    },
}
GATE: Json = {
    "type": "object",
    "required": ["batch_size"],
    "properties": {
        "batch_size": {"type": "integer", "minimum": 1, "maximum": 1_000_000},
        "flush_timer_s": {"type": "number", "minimum": 0, "maximum": 3600, "default": 0},
    },
    "additionalProperties": False,
}


def description(title: str, inputs: Mapping[str, Input], outputs: Mapping[str, OutputStream], max_body: int) -> Json:
    """Return the OpenAPI document for some streams; ``max_body`` is in bytes."""
    streams: dict[str, Input | OutputStream] = {**inputs, **outputs}
    types = [*{stream.event_type: None for stream in streams.values()}, Rejection, Measured, MeasuredTransfers]
    references, components = msgspec.json.schema_components(
        types, schema_hook=unknown_schema, ref_template="#/components/schemas/{name}"
    )
    schema_of = dict(zip(types, references, strict=True))
    paths: Json = {}
    for route in ROUTES:
        for name, stream in _about(route, inputs, outputs).items():
            event = None if stream is None else schema_of[stream.event_type]
            operation = _operation(route, name, _schema(route, event, schema_of))
            operation |= _besides(route, stream, event, max_body)
            path = route.path.replace("{name}", name).replace(":path", "")
            paths.setdefault(path, {})[route.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": title,
            "version": penstock.__version__,
            "description": "Each request with events is answered when they are durable. A WebSocket at /streams/NAME "
            "receives events in messages; with ?offset= it sends those of a result stream.",
        },
        "paths": paths,
        "components": {
            "schemas": {**components, "Answer": ANSWER, "Problem": PROBLEM},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _about(
    route: Route, inputs: Mapping[str, Input], outputs: Mapping[str, OutputStream]
) -> Mapping[str, Input | OutputStream | None]:
    """Return the streams that a route serves, by name; one entry with an empty name where it serves the adapter."""
    keyed = {name: output for name, output in outputs.items() if output.key}
    served: dict[str, Mapping[str, Input | OutputStream | None]] = {
        "adapter": {"": None},
        "stream": {**inputs, **outputs},
        "input": inputs,
        "output": outputs,
        "keyed": keyed,
    }
    return served[route.of]


def _schema(route: Route, event: Json | None, schema_of: Mapping[Any, Json]) -> Json | None:
    schemas: dict[str, Json | None] = {
        "object": {"type": "object"},
        "schema": {"type": "object"},
        "list": {"type": "array", "items": {"type": "object"}},
        "answer": {"$ref": "#/components/schemas/Answer"},
        "gate": GATE,
        "event": event,
        "arrivals": schema_of[Measured],
        "transfers": schema_of[MeasuredTransfers],
    }
    return schemas.get(route.content)


def _besides(route: Route, stream: Input | OutputStream | None, event: Json | None, max_body: int) -> Json:
    """Return the parameters and the request body of an operation."""
    if route.handler == "events in":
        assert event is not None
        return _posting(event, max_body)
    if route.handler == "set gate":
        return {"requestBody": _body({JSON: GATE})}
    if route.handler == "events out":
        return {"parameters": [_parameter("query", "offset", OFFSET), _parameter("header", "Last-Event-ID", RESUMED)]}
    if isinstance(stream, OutputStream) and route.of == "keyed":
        return {"parameters": [_key(stream)]}
    return {}


OFFSET = "Where to begin: a number, earliest, or latest (what comes from now on). An event's SSE id is where to resume."
RESUMED = "The same, as browsers send it."


def _posting(event: Json, max_body: int) -> Json:
    several = {"type": "array", "items": event}
    lines = {"type": "string", "description": "One event a line."}
    return {
        "description": f"One event, an array, or NDJSON, at most {max_body} bytes unpacked; gzip by Content-Encoding. Answered "
        "when every accepted event is durable.",
        "parameters": [
            _parameter("header", "Idempotency-Key", "Names the request, so that sending it again does no harm.", 1),
            _parameter("query", "id", "The event's field that holds its id; an event of a known id is a duplicate.", 1),
        ],
        "requestBody": _body({JSON: {"anyOf": [event, several]}, "application/x-ndjson": lines}),
    }


def _key(stream: OutputStream) -> Json:
    return {
        "name": "key",
        "in": "path",
        "required": True,
        "schema": {"type": "string", "minLength": 1},
        "description": f"The value of {', '.join(stream.key)}; several are divided by slashes.",
    }


def _operation(route: Route, name: str, schema: Json | None) -> Json:
    summary = route.summary.format(name=name)
    content = {route.media: {} if schema is None else {"schema": schema}}
    problem = {"application/problem+json": {"$ref": "#/components/schemas/Problem"}}
    responses = {"200": {"description": summary, "content": content}}
    responses |= {str(status): _response(REASONS[status], problem) for status in route.statuses}
    if route.content == "answer":  # it also lists the reasons where all events are rejected
        responses["422"] = {"description": REASONS[422], "content": content}
    return {"summary": summary, "responses": responses}


def _response(text: str, content: Json) -> Json:
    return {"description": text, "content": {media: {"schema": schema} for media, schema in content.items()}}


def _body(content: Json) -> Json:
    return {"required": True, "content": {media: {"schema": schema} for media, schema in content.items()}}


def _parameter(place: str, name: str, text: str, least: int = 0) -> Json:
    schema = {"type": "string", "minLength": least, "maxLength": 200} if least else {"type": "string"}
    return {"name": name, "in": place, "required": False, "schema": schema, "description": text}
