"""The table of the adapter's routes, the busiest first; the API and its OpenAPI document are made from it."""

from dataclasses import dataclass
from typing import Literal

from penstock.web.access import Role

Of = Literal["adapter", "stream", "input", "output", "keyed"]
"""What a route serves: the adapter itself, each stream, each input, each output, or each output with a key."""

Content = Literal["object", "list", "text", "sse", "schema", "answer", "gate", "arrivals", "transfers", "event"]

JSON, TEXT, SSE, SCHEMA = "application/json", "text/plain", "text/event-stream", "application/schema+json"
HTML = "text/html"

REASONS = {
    400: "What was sent, or asked for, is not understood.",
    401: "A token is needed, or this one is not known.",
    403: "The token does not allow this, or the request comes from a page, or was meant for a host, that is not welcome.",
    404: "There is no such stream, or no event of this key.",
    405: "The stream goes the other way.",
    408: "The body did not come in time.",
    409: "The stream has no key, or the Idempotency-Key came before with another body.",
    410: "The events at this offset have been trimmed.",
    413: "The body is too large.",
    415: "The Content-Type or Content-Encoding is not understood.",
    422: "No event of the request fits the stream's type.",
    503: "The store cannot follow; try again after the time in Retry-After.",
}


@dataclass(frozen=True)
class Route:
    """One method on one path.

    Args:
        path: the path in Starlette's syntax; ``{name}`` stands for a stream.
        handler: the name of the handler, as in `Api`.
        role: the role that a token must have; None for any token, "nobody" where no token is needed.
        summary: the summary for the OpenAPI document; ``{name}`` stands for the stream.
        content: the kind of content of the answer with status 200.
        statuses: the statuses of refusals.
        query: the parameters of the query, besides the token; where there are some, others are refused.
    """

    method: str
    path: str
    handler: str
    role: Role | Literal["nobody"] | None
    of: Of
    summary: str
    content: Content
    statuses: tuple[int, ...] = ()
    media: str = JSON
    query: tuple[str, ...] = ()


RECEIVING = (408, 413, 415, 503)
"""The statuses with which any request with a body may be refused."""

ROUTES = (
    Route(
        "POST",
        "/streams/{name}",
        "events in",
        "produce",
        "input",
        "Send events of {name}",
        "answer",
        (400, 401, 403, 409, *RECEIVING),
        query=("id",),
    ),
    Route(
        "GET",
        "/streams/{name}",
        "events out",
        "consume",
        "output",
        "Receive the events of {name}",
        "sse",
        (400, 401, 403, 410, 503),
        SSE,
        ("offset",),
    ),
    Route("GET", "/", "index", "nobody", "adapter", "Where to look", "object"),
    Route("GET", "/docs", "docs", None, "adapter", "This description, to read", "text", (401, 403), HTML),
    Route("GET", "/health", "health", "nobody", "adapter", "Whether the adapter is up", "object", (503,)),
    Route("GET", "/metrics", "metrics", None, "adapter", "Metrics for Prometheus", "text", (401, 403), TEXT),
    Route("GET", "/openapi.json", "openapi", None, "adapter", "This description", "object", (401, 403)),
    Route("GET", "/streams", "streams", None, "adapter", "The streams", "list", (401, 403)),
    Route(
        "GET", "/schemas/{name}", "schema", None, "stream", "The JSON Schema of {name}'s events", "schema", (401, 403), SCHEMA
    ),
    Route("GET", "/streams/{name}/gate", "gate", "operate", "input", "The gate of {name}", "gate", (401, 403)),
    Route(
        "PUT",
        "/streams/{name}/gate",
        "set gate",
        "operate",
        "input",
        "Change the gate of {name}",
        "gate",
        (400, 401, 403, *RECEIVING, 422),
    ),
    Route(
        "GET",
        "/streams/{name}/arrivals",
        "arrivals",
        "operate",
        "input",
        "How {name}'s events arrive (measured)",
        "arrivals",
        (401, 403),
    ),
    Route(
        "GET",
        "/streams/{name}/transfers",
        "transfers",
        "operate",
        "input",
        "What transfers of {name} to the store take (measured)",
        "transfers",
        (401, 403),
    ),
    Route(
        "GET",
        "/results/{name}/{key:path}",
        "result",
        "consume",
        "keyed",
        "The last event of a key of {name}",
        "event",
        (400, 401, 403, 404, 503),
    ),
)
