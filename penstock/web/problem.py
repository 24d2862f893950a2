"""Responses to refused requests, in the format of RFC 9457."""

from logging import getLogger
from traceback import format_exception

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from penstock.errors import PenstockError
from penstock.visible import visible

RETRY_AFTER_S = 1


class RequestProblem(HTTPException):
    """A request that is refused; ``detail`` is one sentence for a person."""


def refusal(status: int, detail: str) -> RequestProblem:
    """Return a `RequestProblem`; for statuses where a retry may help, it has a Retry-After header."""
    return RequestProblem(status, detail, {"Retry-After": str(RETRY_AFTER_S)} if status in (429, 503) else None)


def as_response(error: Exception) -> Response:
    """Return the response to a request that has raised an error."""
    if isinstance(error, PenstockError):
        error = refusal(503, str(error))
    elif not isinstance(error, HTTPException):
        getLogger("penstock").error(visible("".join(format_exception(error))))
        error = refusal(500, f"internal error: {type(error).__name__}")
    problem = {"title": "refused", "status": error.status_code, "detail": error.detail}
    return Response(msgspec.json.encode(problem), error.status_code, error.headers, "application/problem+json")
