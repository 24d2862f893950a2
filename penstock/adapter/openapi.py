"""The description of the adapter's API, as OpenAPI, with each stream's own event type."""

from collections.abc import Mapping
from typing import Any

import msgspec

import penstock
from penstock.adapter.arrivals import Measured
from penstock.adapter.body import Rejection
from penstock.adapter.streams import Input, Output

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
REASONS = {
    400: "What was sent, or asked for, is not understood.",
    401: "A token is needed.",
    403: "The token does not allow this.",
    404: "There is no such stream, or no event of this key.",
    405: "The stream goes the other way.",
    408: "The body did not come in time.",
    409: "The stream has no key.",
    410: "The events at this offset have been trimmed.",
    413: "The body is too large.",
    415: "The Content-Type or Content-Encoding is not understood.",
    422: "No event of the request fits the stream's type.",
    503: "The store cannot follow; try again after the time in Retry-After.",
}


def description(title: str, inputs: Mapping[str, Input], outputs: Mapping[str, Output], max_body: int) -> Json:
    """The OpenAPI document for some streams."""
    types = {stream.event_type for stream in inputs.values()} | {stream.event_type for stream in outputs.values()}
    references, components = msgspec.json.schema_components(
        [*types, Rejection, Measured], ref_template="#/components/schemas/{name}"
    )
    schema_of = dict(zip((*types, Rejection, Measured), references, strict=True))
    paths: Json = {
        "/health": {"get": _operation("Whether the adapter is up", {"type": "object"}, 503)},
        "/metrics": {"get": _operation("Metrics for Prometheus", None, 401, media="text/plain")},
        "/openapi.json": {"get": _operation("This description", {"type": "object"}, 401)},
        "/streams": {"get": _operation("The streams", {"type": "array", "items": {"type": "object"}}, 401)},
    }
    for name in (*inputs, *outputs):
        schema = _operation(
            f"The JSON Schema of {name}'s events", {"type": "object"}, 401, media="application/schema+json"
        )
        paths[f"/schemas/{name}"] = {"get": schema}
    for name, stream in inputs.items():
        paths[f"/streams/{name}"] = {"post": _posting(name, schema_of[stream.event_type], max_body)}
        show = _operation(f"The gate of {name}", GATE, 401, 403)
        paths[f"/streams/{name}/gate"] = {
            "get": show,
            "put": _operation(f"Change the gate of {name}", GATE, 401, 403, 408, 413, 415, 422, 503)
            | {"requestBody": _body({"application/json": GATE})},
        }
        paths[f"/streams/{name}/arrivals"] = {
            "get": _operation(f"How {name}'s events arrive (measured)", schema_of[Measured], 401, 403)
        }
    for name, output in outputs.items():
        paths[f"/streams/{name}"] = {"get": _receiving(name)}
        if output.key:
            paths[f"/results/{name}/{{key}}"] = {"get": _looking_up(name, output, schema_of[output.event_type])}
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


def _posting(name: str, event: Json, max_body: int) -> Json:
    answer = {"$ref": "#/components/schemas/Answer"}
    operation = _operation(f"Send events of {name}", answer, 400, 401, 403, 408, 413, 415, 503)
    operation["responses"]["422"] = _response(REASONS[422], {"application/json": answer})
    several = {"type": "array", "items": event}
    lines = {"type": "string", "description": "One event a line."}
    return operation | {
        "description": f"One event, an array, or NDJSON, at most {max_body} bytes unpacked; gzip by Content-Encoding. Answered "
        "when every accepted event is durable.",
        "parameters": [
            _parameter("header", "Idempotency-Key", "Names the request, so that sending it again does no harm.", 1),
            _parameter("query", "id", "The event's field that holds its id; an event of a known id is a duplicate.", 1),
        ],
        "requestBody": _body({"application/json": {"anyOf": [event, several]}, "application/x-ndjson": lines}),
    }


def _receiving(name: str) -> Json:
    operation = _operation(f"Receive the events of {name}", None, 400, 401, 403, 410, media="text/event-stream")
    offset = (
        "Where to begin: a number, earliest, or latest (what comes from now on). An event's SSE id is where to resume."
    )
    return operation | {
        "parameters": [
            _parameter("query", "offset", offset),
            _parameter("header", "Last-Event-ID", "The same, as browsers send it."),
        ]
    }


def _looking_up(name: str, stream: Output, event: Json) -> Json:
    key = {
        "name": "key", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1},
        "description": f"The value of {', '.join(stream.key)}; several are divided by slashes.",
    }  # fmt: skip
    return _operation(f"The last event of a key of {name}", event, 401, 403, 404) | {"parameters": [key]}


def _operation(summary: str, schema: Json | None, *statuses: int, media: str = "application/json") -> Json:
    content = {media: {} if schema is None else {"schema": schema}}
    problem = {"application/problem+json": {"$ref": "#/components/schemas/Problem"}}
    responses = {"200": {"description": summary, "content": content}}
    responses |= {str(status): _response(REASONS[status], problem) for status in statuses}
    return {"summary": summary, "responses": responses}


def _response(text: str, content: Json) -> Json:
    return {"description": text, "content": {media: {"schema": schema} for media, schema in content.items()}}


def _body(content: Json) -> Json:
    return {"required": True, "content": {media: {"schema": schema} for media, schema in content.items()}}


def _parameter(place: str, name: str, text: str, least: int = 0) -> Json:
    schema = {"type": "string", "minLength": least, "maxLength": 200} if least else {"type": "string"}
    return {"name": name, "in": place, "required": False, "schema": schema, "description": text}
