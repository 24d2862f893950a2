"""What is sent and what comes back, whichever client does it."""

import random
import uuid
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
import msgspec

from penstock.errors import RefusedError

Event = Any
"""An event to send: a dict, an `penstock.Event`, or JSON as bytes."""

TRY_AGAIN = (408, 429, 503)
PAUSES_S = (0.05, 5.0)
"""The first and the longest pause before a request is tried again."""


class Rejected(msgspec.Struct):
    """An event that the adapter has not accepted."""

    index: int
    """Its place among those sent."""
    reason: str


class Sent(msgspec.Struct):
    """What became of events that were sent."""

    accepted: int = 0
    duplicates: int = 0
    """Accepted before, by their ids."""
    rejected: list[Rejected] = []
    retries: int = 0
    """How often the request had to be sent again."""


class Received(NamedTuple):
    """An event as it was received; receiving from ``next`` gets the one after it."""

    next: str
    event: Any


class Post:
    """A request that carries events, the same however often it is sent."""

    def __init__(self, stream: str, events: Iterable[Event], key: str | None, id_field: str | None) -> None:
        payloads = [event if isinstance(event, bytes) else msgspec.json.encode(event) for event in events]
        self.path = f"/streams/{quote(stream, safe='')}"
        self.content = b"[" + b",".join(payloads) + b"]"
        self.headers = {"Content-Type": "application/json"}
        if id_field is None:
            self.headers["Idempotency-Key"] = key or uuid.uuid4().hex
        self.params = {} if id_field is None else {"id": id_field}

    def read(self, response: httpx.Response, retries: int) -> Sent:
        """The answer to it.

        Raises
        ------
        RefusedError: it was refused for good.
        """
        if response.status_code not in (200, 422):
            raise refused(response)
        sent = msgspec.json.decode(response.content, type=Sent)
        sent.retries = retries
        return sent


class Patience:
    """How long to go on trying, and how long to wait in between.

    Parameters
    ----------
    seconds: in all.
    """

    def __init__(self, seconds: float, now: float) -> None:
        self._deadline, self._pause = now + seconds, PAUSES_S[0]
        self.retries = 0

    def pause(self, now: float, why: httpx.Response | httpx.TransportError) -> float:
        """Seconds to wait before the next try.

        Raises
        ------
        RefusedError: there is no more patience.
        """
        if now >= self._deadline:
            raise RefusedError(f"The adapter has not taken the events: {_reason(why)}", _status(why))
        self.retries += 1
        asked = why.headers.get("retry-after", "") if isinstance(why, httpx.Response) else ""
        pause = max(self._pause, float(asked) if asked.isdigit() else 0.0) * random.uniform(0.5, 1.0)
        self._pause = min(PAUSES_S[1], 2 * self._pause)
        return min(pause, max(0.0, self._deadline - now))


def result_path(stream: str, key: Sequence[object]) -> str:
    """Where the last event of a key is."""
    return "/".join(["/results", quote(stream, safe=""), *(quote(str(part), safe="") for part in key)])


def refused(response: httpx.Response) -> RefusedError:
    """Why a request was refused, in the adapter's words."""
    return RefusedError(_reason(response), response.status_code)


def headers_of(token: str | None) -> dict[str, str]:
    """What proves who asks."""
    return {} if token is None else {"Authorization": f"Bearer {token}"}


def _reason(why: httpx.Response | httpx.TransportError) -> str:
    if isinstance(why, httpx.TransportError):
        return f"{type(why).__name__}: {why}"
    try:
        return str(why.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP status {why.status_code}"


def _status(why: httpx.Response | httpx.TransportError) -> int:
    return why.status_code if isinstance(why, httpx.Response) else 0
