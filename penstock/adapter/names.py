"""Names of requests and events, by which repeated ones are recognised, so that a client may safely send again."""

import json
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec

from penstock.adapter.body import HALF, Parsed, Rejection
from penstock.connectors.log import Parcel, Request
from penstock.kinds.coding import json_decoder
from penstock.web.problem import refusal

NAME_LENGTH = 200
"""The most characters of an Idempotency-Key or an id."""


class EventNames:
    """Names the events of a request, so that sending it again does no harm.

    Args:
        key: the Idempotency-Key of the whole request, or None.
        field: the field of the events that holds their ids, or None.
        client: the name of the client, as keys are unique per client only.
    """

    def __init__(self, key: str | None, field: str | None, event_type: type, client: str) -> None:
        self._key, self._field, self._client = key, field, client
        if key is not None and field is not None:
            raise refusal(400, "An Idempotency-Key names all events, and ?id= each of them: give one of the two.")
        if key is not None and not _is_name(key):
            raise refusal(400, f"An Idempotency-Key has from 1 to {NAME_LENGTH} characters.")
        if field is not None and field not in event_type.__struct_fields__:  # type: ignore[attr-defined]
            raise refusal(400, f"?id= names no field of {event_type.__name__}.")
        info = next((info for info in msgspec.structs.fields(event_type) if info.name == field), None)
        self._says_it = None if info is None or info.required else _decoder(info.encode_name)

    def parcel(self, parsed: Parsed) -> Parcel:
        """Return the events with their names, for the store; an event with an unusable id is rejected."""
        if self._field is None:
            if self._key is None:
                return Parcel(parsed.payloads)
            total = len(parsed.rows) + len(parsed.rejected)
            return Parcel(parsed.payloads, request=Request(self._client, self._key, total, parsed.rows))
        values = [getattr(event, self._field) for event in parsed.events]
        if self._says_it is not None:  # a default is no id: all events without one would have the same, or never one twice
            values = [
                value if self._says_it(payload).id is not msgspec.UNSET else None
                for value, payload in zip(values, parsed.payloads, strict=True)
            ]
        good = [row for row, value in enumerate(values) if value is not None and _is_name(str(value))]
        if len(good) < len(values):
            why = f"{self._field} is the event's id, and must have from 1 to {NAME_LENGTH} characters without NUL"
            wrong = set(range(len(values))).difference(good)
            parsed.rejected += [Rejection(parsed.rows[row], why) for row in wrong]
            parsed.rejected.sort(key=lambda rejection: rejection.index)
            parsed.payloads = [parsed.payloads[row] for row in good]
        return Parcel(parsed.payloads, ids=[f"event {self._field}={values[row]}" for row in good])


def _is_name(text: str) -> bool:
    return 1 <= len(text) <= NAME_LENGTH and "\0" not in text


def unwrap(body: bytes, event_type: type) -> tuple[str | None, bytes, bool]:
    """Return the key of a WebSocket message (None without an envelope), its events, and whether these are NDJSON.

    Raises:
        RequestProblem: the message is meant as an envelope, and is none; an event would be made of it that was not sent.
    """
    own = {info.encode_name for info in msgspec.structs.fields(event_type)}
    envelope = _envelope(body)
    if envelope is not None and {"key", "events"} <= own and _decodes(body, event_type):
        if _decodes(envelope.events, event_type) or _decodes(envelope.events, list[event_type]):  # type: ignore[valid-type]
            raise refusal(400, f"The message may be a {event_type.__name__}, which has key and events: send it in an array.")
        envelope = None
    if envelope is not None:
        return envelope.key, bytes(envelope.events), False
    try:
        whole = msgspec.json.decode(body, type=_Meant)
    except (msgspec.DecodeError, RecursionError):
        return None, body, b"\n" in body.strip() and body.lstrip()[:1] == b"{" and not _is_one_value(body)
    if whole.events is not msgspec.UNSET and "events" not in own:
        raise refusal(400, "A message with events= has key, which is a text, and events, and nothing else.")
    return None, body, False


def _is_one_value(body: bytes) -> bool:
    """Whether a text is one value of JSON, which may be written in several lines."""
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


@lru_cache(maxsize=256)
def _decoder(name: str) -> Callable[[bytes], Any]:
    """Return a decoder that tells by its ``id`` whether a JSON object has a field of a name."""
    id_or_none: Any = msgspec.Raw | msgspec.UnsetType
    return msgspec.json.Decoder(msgspec.defstruct("Said", [("id", id_or_none, msgspec.UNSET)], rename={"id": name})).decode


_MARKS = re.compile(r"\s*([{},:])\s*")


class _Meant(msgspec.Struct):
    events: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Envelope(msgspec.Struct, forbid_unknown_fields=True):
    key: str
    events: msgspec.Raw


def key_of(body: bytes) -> str | None:
    """Return the key of an envelope; None where a message is no envelope."""
    envelope = _envelope(body)
    return None if envelope is None else envelope.key


def _envelope(body: bytes) -> _Envelope | None:
    try:
        return msgspec.json.decode(body, type=_Envelope)
    except (msgspec.DecodeError, RecursionError):
        pass
    if HALF.search(body) is None:
        return None
    try:  # half of a surrogate pair rejects the event that it is in, and not the whole message
        parts = _divided(body.decode())
        key = msgspec.json.decode(parts.pop("key"), type=str)
        [(name, events)] = parts.items()
    except (ValueError, KeyError, RecursionError, msgspec.DecodeError):
        return None
    return _Envelope(key, msgspec.Raw(events)) if name == "events" else None


def _divided(text: str) -> dict[str, bytes]:
    """Return the values of a JSON object by their names, as they stand in its text.

    Raises:
        ValueError: the text is no JSON object.
    """
    read, parts, place = json.JSONDecoder().raw_decode, dict[str, bytes](), 0
    while (mark := _MARKS.match(text, place)) and mark[1] == ("," if parts else "{"):
        name, end = read(text, mark.end())
        colon = _MARKS.match(text, end)
        if not isinstance(name, str) or colon is None or colon[1] != ":":
            break
        _, place = read(text, colon.end())
        parts[name] = text[colon.end() : place].encode()
    if mark is None or mark[1] != "}" or mark.end() != len(text):
        raise ValueError("not one object")
    return parts


def _decodes(body: bytes, kind: Any) -> bool:
    try:
        json_decoder(kind).decode(body)
    except Exception:  # a wrong type, or JSON nested too deep, say
        return False
    return True
