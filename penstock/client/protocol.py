"""The client's side of the adapter's HTTP protocol, shared by the blocking and the asynchronous client."""

import logging
import os
import random
import re
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from math import isinf
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from penstock.errors import ConfigurationError, RefusedError
from penstock.kinds.coding import json_encoder
from penstock.kinds.fields import scalars_in
from penstock.kinds.text import joined, text_of

Event = Any
"""An event to send: a dict, a `penstock.Event`, or JSON as bytes."""

TRY_AGAIN = (408, 429, 502, 503, 504)
"""The statuses after which a request is sent again; a proxy answers some of them while the adapter starts anew."""
PAUSES_S = (0.05, 5.0)
"""The first and the longest pause before a retry, in seconds."""


def address_of(url: str) -> str:
    """Return the address of an adapter.

    Raises:
        ConfigurationError: it is no URL of HTTP.
    """
    if not url.startswith(("http://", "https://")):
        raise ConfigurationError(f"{url} is no address of an adapter: write http://HOST:PORT.")
    return url


def payload_of(event: Event) -> bytes:
    """Return an event as JSON.

    Raises:
        ValueError: it holds an infinite number, which JSON lacks; it would be sent as null. Or it is bytes that are no JSON.
    """
    if isinstance(event, bytes):
        try:
            msgspec.json.decode(event, type=msgspec.Raw)
        except msgspec.DecodeError as error:
            raise ValueError(f"These bytes are no event as JSON ({error}): {event!r:.200}") from None
        return event
    payload = _encode(event)
    if b"null" in payload and any(isinstance(scalar, float) and isinf(scalar) for scalar in scalars_in(event)):
        raise ValueError(f"This event holds an infinite number, which JSON does not have: {event!r:.200}")
    return payload


_encode = json_encoder().encode


class Rejected(msgspec.Struct):
    """An event that the adapter has not accepted."""

    index: int
    """Its position among the events of the request."""
    reason: str


class Sent(msgspec.Struct):
    """The outcome of sending events."""

    accepted: int = 0
    duplicates: int = 0
    """Events that had been accepted before, by key or id."""
    rejected: list[Rejected] = []
    retries: int = 0
    """How often the request was sent again."""


class Received(NamedTuple):
    """A received event, and the offset from which to receive the one after it."""

    next: str
    event: Any


class Post:
    """A request that carries events; it is identical at each retry, so that the adapter recognizes it."""

    def __init__(self, stream: str, events: Iterable[Event], key: str | None, id_field: str | None) -> None:
        if isinstance(events, Mapping | str | bytes | msgspec.Struct):
            raise ConfigurationError("Several events are sent at once: put a single one into a list, as [event].")
        payloads = [payload_of(event) for event in events]
        self.path = stream_path(stream)
        self.content = b"[" + b",".join(payloads) + b"]"
        self.headers = {"Content-Type": "application/json"}
        if id_field is not None and key is not None:
            raise ConfigurationError("key= names all events, and id_field= each of them: give one of the two.")
        if key is not None and not (VISIBLE.fullmatch(key) and len(key) <= LONGEST_KEY):
            raise ConfigurationError(
                f"key={key!r}: give from 1 to {LONGEST_KEY} letters, digits and signs of ASCII, and blanks only between them."
            )
        if id_field is None:
            self.headers["Idempotency-Key"] = uuid.uuid4().hex if key is None else key
        self.params = {} if id_field is None else {"id": id_field}

    def read(self, response: httpx.Response, retries: int) -> Sent:
        """Return the outcome from a response.

        Raises:
            RefusedError: the request was refused, and a retry would not help.
        """
        if response.status_code not in (200, 422):
            raise refused(response)
        sent: Sent = _decoded(response, Sent)
        sent.retries = retries
        return sent


class Patience:
    """Limits the time of retries, and sets the pauses between them.

    Args:
        seconds: the time for all retries.
        now: the present time of a monotonic clock, in seconds.
        wanted: what the adapter is to do, as "take the events".
    """

    def __init__(self, seconds: float, now: float, wanted: str) -> None:
        self._deadline, self._pause, self._wanted = now + seconds, PAUSES_S[0], wanted
        self.retries = 0

    def pause(self, now: float, why: httpx.Response | httpx.TransportError) -> float:
        """Return the seconds to wait before a retry: doubled each time, or the server's Retry-After if longer, then randomized.

        Raises:
            RefusedError: the time for retries is over.
        """
        if now >= self._deadline:
            raise RefusedError(f"The adapter did not {self._wanted}: {_reason(why)}", _status(why))
        if not self.retries:
            remaining = self._deadline - now
            LOG.warning("The adapter does not %s yet (%s); trying for %.0f s more.", self._wanted, _reason(why), remaining)
        self.retries += 1
        retry_after = why.headers.get("retry-after", "") if isinstance(why, httpx.Response) else ""
        pause = max(self._pause, float(retry_after) if retry_after.isdigit() else 0.0) * random.uniform(0.5, 1.0)
        self._pause = min(PAUSES_S[1], 2 * self._pause)
        return min(pause, max(0.0, self._deadline - now))


LOG = logging.getLogger("penstock.client")
VISIBLE = re.compile(r"[!-~]([ -~]*[!-~])?")
"""What a header can carry as it is."""
LONGEST_KEY = 200
"""The most characters of an Idempotency-Key, as the adapter takes it."""

NO_EVENT = "has had no event of this key"
"""What the adapter says of a key without a result."""

Trouble = httpx.Response | httpx.TransportError
"""A response that asks for a retry, or the error of a request without a response."""


class Call(NamedTuple):
    """A request to make. The driver of a flow sends back the response, or the transport's error."""

    method: str
    path: str
    options: Mapping[str, Any] = {}


Flow = Generator[Call | float, Any, Any]
"""A generator of a client's steps: requests to make, and seconds to wait. It returns the result."""


def sending(post: Post, patience_s: float) -> Flow:
    """Send events with retries until the adapter has accepted or refused them; returns `Sent`."""
    patience = Patience(patience_s, time.monotonic(), "take the events")
    while True:
        answer = yield Call("POST", post.path, {"content": post.content, "headers": post.headers, "params": post.params})
        if isinstance(answer, httpx.Response) and answer.status_code not in TRY_AGAIN:
            return post.read(answer, patience.retries)
        yield patience.pause(time.monotonic(), answer)


def looking_up(stream: str, key: Sequence[object], patience_s: float) -> Flow:
    """Request the last event of a key, with retries; returns it, or None."""
    parts = joined(None if part is None else text_of(part) for part in key)
    if {".", ".."} & set(parts.split("/")):
        raise ValueError(f"The key {parts} cannot be asked for, as HTTP takes . and .. for steps between directories.")
    path = f"/results/{quote(stream, safe='')}/{parts}"
    patience = Patience(patience_s, time.monotonic(), "send the result")
    while not isinstance(answer := (yield Call("GET", path)), httpx.Response) or answer.status_code in TRY_AGAIN:
        yield patience.pause(time.monotonic(), answer)
    if answer.status_code == 404 and NO_EVENT in _reason(answer):
        return None
    if answer.status_code != 200:
        raise refused(answer)
    return _decoded(answer, Any)


class Subscription:
    """The position up to which a stream has been received, across reconnections."""

    def __init__(self, stream: str, offset: str | int, patience_s: float) -> None:
        self.path = stream_path(stream)
        self.position = str(offset)
        self.options = {"timeout": httpx.Timeout(40.0, read=45.0)}  # the adapter sends a ping every 15 s
        self._seconds, self._connected = patience_s, False
        self._patience = self._begun()

    def opened(self, response: httpx.Response) -> Trouble | None:
        """Record the response to a connection; returns None if events follow, or the response if a retry may help.

        Raises:
            RefusedError: the request was refused, and a retry would not help.
        """
        if response.status_code in TRY_AGAIN:
            return response
        if response.status_code != 200:
            raise refused(response)
        if "x-offset" not in response.headers:
            raise _stranger(response)
        self.position, self._connected = response.headers["x-offset"], True
        return None

    def received(self, name: str, data: str) -> Received:
        """Record and return an event, given the id and the data of a server-sent event."""
        self.position = name
        return Received(name, msgspec.json.decode(data))

    def pause(self, why: Trouble | None) -> float:
        """Return the seconds to wait before reconnecting; the time for retries starts when a connection ends."""
        if self._connected:
            self._patience, self._connected = self._begun(), False
        return PAUSES_S[0] if why is None else self._patience.pause(time.monotonic(), why)

    def _begun(self) -> Patience:
        return Patience(self._seconds, time.monotonic(), "send events")


Connections = TypeVar("Connections")


class PerProcess(Generic[Connections]):
    """Connections that each process makes for itself: over those that a fork shares, answers would come to the other one.

    Args:
        kind: `httpx.Client` or `httpx.AsyncClient`; ``settings`` are its own.
    """

    def __init__(self, kind: Callable[..., Connections], url: str, token: str | None, **settings: Any) -> None:
        self._make = partial(kind, base_url=address_of(url), headers=headers_of(token), **settings)
        self._process, self._made = os.getpid(), self._make()

    def get(self) -> Connections:
        """Return the connections of this process."""
        if self._process != os.getpid():
            self._process, self._made = os.getpid(), self._make()
        return self._made


class Waiting(NamedTuple):
    """An event that a producer has yet to send: as it was put, and as it was then, in JSON."""

    event: Event
    payload: bytes


BATCH_BYTES = 1 << 20
"""A producer sends a batch, whatever its number of events, once they have so many bytes; the adapter takes 8 MB."""


class Gathering:
    """The state of a producer: totals over all its batches, and the failure that has ended it.

    Args:
        batch_size, flush_timer: a batch is sent when it has so many events, or its first has waited so long (seconds).
        rejected: called with each event that was rejected, and the reason.
    """

    def __init__(self, batch_size: int, flush_timer: float, rejected: Callable[[Event, str], None] | None) -> None:
        self.batch_size, self.flush_timer = batch_size, flush_timer
        self._rejected = rejected
        self._failure: BaseException | None = None
        self._fault: Exception | None = None
        self._done = 0
        self._process = os.getpid()
        self.sent = Sent()

    @property
    def failed(self) -> bool:
        """Whether a batch could not be sent; later batches are then not tried."""
        return self._failure is not None

    def fail(self, error: BaseException) -> None:
        """Record that a batch could not be sent."""
        self._failure = error

    def takes(self, events: int, size: int) -> bool:
        """Whether a batch with so many events, of so many bytes, is to wait for more."""
        return events < self.batch_size and size < BATCH_BYTES

    def check_process(self) -> None:
        """Refuse to go on in a process that was forked off the one that made the producer, which alone sends its events.

        Raises:
            RefusedError: this is such a process.
        """
        if self._process != os.getpid():
            raise RefusedError(
                "The producer was made before this process was forked, and sends in the other one: make one in each process.", 0
            )

    def check(self) -> None:
        """Raise the error that has ended the producer, if there is one; see also `check_process`."""
        self.check_process()
        if self._failure is not None:
            raise self._failure

    def end(self) -> None:
        """Raise the error that has ended the producer, or else the first that ``rejected`` has raised."""
        self.check()
        if self._fault is not None:
            raise self._fault

    def add(self, batch: Sequence[Waiting], sent: Sent) -> None:
        """Add the outcome of a batch to the totals, and report its rejected events."""
        total = self.sent
        total.accepted += sent.accepted
        total.duplicates += sent.duplicates
        total.retries += sent.retries
        total.rejected += [Rejected(self._done + each.index, each.reason) for each in sent.rejected]
        self._done += len(batch)
        for each in sent.rejected:
            if self._rejected is not None:
                try:
                    self._rejected(batch[each.index].event, each.reason)
                except Exception as error:  # the other events are sent all the same
                    self._fault = self._fault or error


def stream_path(stream: str) -> str:
    """Return the URL path of a stream."""
    return f"/streams/{quote(stream, safe='')}"


def refused(response: httpx.Response) -> RefusedError:
    """Return the error for a refused request, with the adapter's reason."""
    return RefusedError(_reason(response), response.status_code)


def _decoded(response: httpx.Response, kind: Any) -> Any:
    try:
        return msgspec.json.decode(response.content, type=kind)
    except msgspec.DecodeError:
        raise _stranger(response) from None


def _stranger(response: httpx.Response) -> RefusedError:
    """Return the error for an answer that no adapter gives."""
    return RefusedError(f"What answers at {response.url} is no adapter: see that the address is right.", response.status_code)


def closed() -> RefusedError:
    """Return the error for an event that is put into a producer that takes no more."""
    return RefusedError("The producer is closed, so the event was not taken: put it before, or make another producer.", 0)


def headers_of(token: str | None) -> dict[str, str]:
    """Return the headers that authenticate the client; none without a token, or with an empty one.

    Raises:
        ConfigurationError: no header can carry the token, which is not shown.
    """
    if token and (" " in token or not VISIBLE.fullmatch(token)):
        raise ConfigurationError("The token has a blank, an end of line or a letter that is not of ASCII; strip what was read.")
    return {"Authorization": f"Bearer {token}"} if token else {}


def _reason(why: httpx.Response | httpx.TransportError) -> str:
    if isinstance(why, httpx.TransportError):
        return f"{type(why).__name__}: {why}"
    try:
        return str(why.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP status {why.status_code}"


def _status(why: httpx.Response | httpx.TransportError) -> int:
    return why.status_code if isinstance(why, httpx.Response) else 0
