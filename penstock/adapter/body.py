"""Reads request bodies: one JSON event, an array of events, or one event per line (NDJSON)."""

import json
import re
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from penstock.connectors.log.arrays import JsonArray, divide, divides_anywhere
from penstock.kinds.coding import json_decoder
from penstock.kinds.event import Event

MOST_EVENTS = 100_000
"""The most events in one request, so that none keeps the others waiting."""


class Malformed(ValueError):
    """Raised for a body that is no JSON, or contradicts its headers; the message tells what is allowed."""


class Rejection(msgspec.Struct):
    """Why an event was not accepted; ``index`` counts the events of the request from 0."""

    index: int
    reason: str


class Parsed(msgspec.Struct):
    """The valid events of a body, and the rejected ones."""

    rows: Sequence[int]
    """The indices of the valid events in the request."""
    payloads: Sequence[bytes]
    events: list[Any]
    rejected: list[Rejection]


_raw = msgspec.json.Decoder(msgspec.Raw).decode


class BodyReader:
    """Reads the bodies that producers of one event type send.

    Args:
        max_event: the most bytes of one event.
    """

    def __init__(self, event_type: type[Event], max_event: int) -> None:
        self._one: Callable[[bytes], Any] = json_decoder(event_type).decode
        self._many: Callable[[bytes], list[Any]] = json_decoder(list[event_type]).decode  # type: ignore[valid-type]
        self._max_event = max_event

    def read(self, body: bytes, *, lines: bool = False) -> Parsed:
        """Split a body into events and check each.

        Args:
            lines: whether the body is NDJSON.

        Raises:
            Malformed: the body cannot be split.
            OverflowError: the body holds more than `MOST_EVENTS` events.
        """
        if not lines and len(body) <= self._max_event and _is_array(body):  # no event can be too large
            with suppress(Exception):  # the faulty event is found below, one by one
                events = self._many(body)
                if len(events) <= MOST_EVENTS and divides_anywhere(body, len(events)):
                    return Parsed(range(len(events)), JsonArray(body, len(events)), events, [])
        divided = self._divide(body, lines)
        if len(divided) > MOST_EVENTS:
            raise OverflowError
        rows, payloads, events, rejected = [], [], [], []
        for index, payload in enumerate(divided):
            try:
                if len(payload) > self._max_event:
                    raise ValueError(f"the event has {len(payload)} bytes; at most {self._max_event} are allowed")
                event = self._one(payload)
            except Exception as error:  # a wrong type, or JSON nested too deep, say
                rejected.append(Rejection(index, str(error)))
            else:
                rows.append(index)
                payloads.append(payload)
                events.append(event)
        if events and not lines and not rejected and _is_array(body) and divides_anywhere(body, len(events)):
            # As above, so that a request is known again when it is sent again under another limit.
            return Parsed(rows, JsonArray(body, len(events)), events, [])
        return Parsed(rows, payloads, events, rejected)

    def _divide(self, body: bytes, lines: bool) -> list[bytes]:
        if lines:
            if body.count(b"\n") + body.count(b"\r") > 2 * MOST_EVENTS:
                raise OverflowError
            return [line for line in body.splitlines() if line.strip()]
        if not body.strip():
            raise Malformed("The body is empty; send one JSON event, an array of them, or NDJSON.")
        try:
            if _is_array(body):
                return divide(body, MOST_EVENTS)
            return [bytes(_raw(body)).strip()]
        except (msgspec.DecodeError, RecursionError) as error:
            if not _is_array(body) and HALF.search(body) and _is_json(body):
                return [body.strip()]
            raise Malformed(
                f"The body is not JSON ({error}); send one event, an array of events, or a line each with "
                "Content-Type: application/x-ndjson."
            ) from error


HALF = re.compile(rb"\\u[dD][89a-fA-F]")
"""A surrogate, of which msgspec takes no half without the other."""


def _is_json(body: bytes) -> bool:
    """Whether a body is JSON though msgspec does not take it, as it does not take half of a surrogate pair."""
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return False
    return True


def _is_array(body: bytes) -> bool:
    return body.lstrip()[:1] == b"["


def gunzip(body: bytes, limit: int) -> bytes:
    """Unpack a gzip body.

    Raises:
        Malformed: the body is damaged.
        OverflowError: the content has more than ``limit`` bytes.
    """
    unzip = zlib.decompressobj(wbits=31)
    try:
        content = unzip.decompress(body, limit + 1)
    except zlib.error as error:
        raise Malformed(f"The body is not gzip, although its Content-Encoding says so ({error}).") from error
    if len(content) > limit:
        raise OverflowError
    if not unzip.eof or unzip.unused_data:
        raise Malformed("The gzip body is cut off, or goes on after its end.")
    return content
