"""The adapter's HTTP interface: one table, by which requests are routed and from which it is described."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from penstock.adapter.access import Role
from penstock.adapter.asked import Problem, refusal

Of = Literal["adapter", "stream", "input", "output", "keyed"]
"""What a route is about: the adapter itself, or each stream, of one direction, or that has a key."""

Content = Literal["object", "list", "text", "sse", "schema", "answer", "gate", "arrivals", "transfers", "event"]

JSON, TEXT, SSE, SCHEMA = "application/json", "text/plain", "text/event-stream", "application/schema+json"
HTML = "text/html"

REASONS = {
    400: "What was sent, or asked for, is not understood.",
    401: "A token is needed.",
    403: "The token does not allow this.",
    404: "There is no such stream, or no event of this key.",
    405: "The stream goes the other way.",
    408: "The body did not come in time.",
    409: "The stream has no key, or the Idempotency-Key came before with other events.",
    410: "The events at this offset have been trimmed.",
    413: "The body is too large.",
    415: "The Content-Type or Content-Encoding is not understood.",
    422: "No event of the request fits the stream's type.",
    503: "The store cannot follow; try again after the time in Retry-After.",
}


@dataclass(frozen=True)
class Route:
    """One method on one path.

    Parameters
    ----------
    path: parts in braces are handed to the handler; one that ends with ``...`` takes the rest.
    handler: the method of `Api` that answers.
    role: what a token must allow; None for any token, "nobody" where none is asked for.
    summary: in the description; ``{name}`` is the stream's.
    content: of the answer with status 200.
    statuses: that it may be refused with.
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


RECEIVING = (408, 413, 415, 503)
"""What any request with a body may be refused with."""

ROUTES = (
    Route("GET", "/", "get_index", "nobody", "adapter", "Where to look", "object"),
    Route("GET", "/docs", "get_docs", None, "adapter", "This description, to read", "text", (401,), HTML),
    Route("GET", "/health", "get_health", "nobody", "adapter", "Whether the adapter is up", "object", (503,)),
    Route("GET", "/metrics", "get_metrics", None, "adapter", "Metrics for Prometheus", "text", (401,), TEXT),
    Route("GET", "/openapi.json", "get_openapi", None, "adapter", "This description", "object", (401,)),
    Route("GET", "/streams", "get_streams", None, "adapter", "The streams", "list", (401,)),
    Route(
        "GET", "/schemas/{name}", "get_schema", None, "stream", "The JSON Schema of {name}'s events", "schema", (401,),
        SCHEMA,
    ),
    Route(
        "POST", "/streams/{name}", "post_events", "produce", "input", "Send events of {name}", "answer",
        (400, 401, 403, 409, *RECEIVING),
    ),
    Route(
        "GET", "/streams/{name}", "get_events", "consume", "output", "Receive the events of {name}", "sse",
        (400, 401, 403, 410), SSE,
    ),
    Route("GET", "/streams/{name}/gate", "get_gate", "operate", "input", "The gate of {name}", "gate", (401, 403)),
    Route(
        "PUT", "/streams/{name}/gate", "put_gate", "operate", "input", "Change the gate of {name}", "gate",
        (401, 403, *RECEIVING, 422),
    ),
    Route(
        "GET", "/streams/{name}/arrivals", "get_arrivals", "operate", "input", "How {name}'s events arrive (measured)",
        "arrivals", (401, 403),
    ),
    Route(
        "GET", "/streams/{name}/transfers", "get_transfers", "operate", "input",
        "What transfers of {name} to the store take (measured)", "transfers", (401, 403),
    ),
    Route(
        "GET", "/results/{name}/{key...}", "get_result", "consume", "keyed", "The last event of a key of {name}", "event",
        (401, 403, 404),
    ),
)  # fmt: skip


def route_of(method: str, path: str) -> tuple[Route, Mapping[str, str]]:
    """The route of a request, and the named parts of its path.

    Raises
    ------
    Problem: there is no such path, or not with this method.
    """
    allowed = []
    given = (path if path.startswith("/results/") else path.removesuffix("/") or "/").split("/")
    wanted = "GET" if method == "HEAD" else method
    for pattern, route in _PATTERNS:
        parts = _match(pattern, given)
        if parts is None:
            continue
        if route.method == wanted:
            return route, parts
        allowed.append(route.method)
    if allowed:
        raise Problem(405, f"{method} is not for this path.", {"Allow": ", ".join(dict.fromkeys(allowed))})
    if given[1:2] == ["results"]:
        raise refusal(404, "Name the stream and the key: /results/NAME/KEY.")
    raise refusal(404, "There is nothing at this path; /docs and /openapi.json describe what there is.")


_PATTERNS = [(route.path.split("/"), route) for route in ROUTES]


def _match(pattern: list[str], given: list[str]) -> dict[str, str] | None:
    open_ended = pattern[-1].endswith("...}")
    if len(given) < len(pattern) if open_ended else len(given) != len(pattern):
        return None
    parts = {}
    for wanted, part in zip(pattern, given, strict=False):
        if wanted.startswith("{"):
            parts[wanted.strip("{.}")] = part
        elif wanted != part:
            return None
    return parts
