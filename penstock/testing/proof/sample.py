"""Samples: the events that the prover runs a topology on, given by the user or drawn from their types."""

import typing
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from penstock.app.stream import Source
from penstock.app.topology import Topology
from penstock.errors import ConfigurationError, SourceError
from penstock.kinds.annotations import choices, naive, optional, plain
from penstock.kinds.coding import convert, json_encoder, to_builtins
from penstock.kinds.event import Event, field_types

Sample = dict[str, list[bytes]]
"""Events as JSON, by source."""

DRAWN = 40
"""The number of events drawn for each source where no sample is given."""

LARGEST = 2_000
"""The most events in a sample, because it is run some hundred times."""

_encode = json_encoder().encode


def given_sample(topology: Topology, given: Mapping[str, Any]) -> Sample:
    """Make a sample of events, or of JSON as text or bytes, given by source.

    Raises:
        ConfigurationError: a source is unknown or lacks its sample, or the sample is empty or too large.
    """
    known = [source.name for source in topology.sources]
    for name in given:
        if name not in known:
            raise ConfigurationError(f"There is no source {name}; the application has {', '.join(known)}.")
    missing = [name for name in known if name not in given]
    if missing:
        raise ConfigurationError(
            f"Source {missing[0]} has no sample: give one for each of {', '.join(known)}, or none at all, and events are drawn."
        )
    sample = {name: [_as_json(event) for event in given[name]] for name in known}
    events = sum(map(len, sample.values()))
    if not 0 < events <= LARGEST:
        raise ConfigurationError(
            f"The sample has {events:,} events; give 1 to {LARGEST:,}, for they are run some hundred times."
        )
    return sample


def _as_json(event: Any) -> bytes:
    return event if isinstance(event, bytes) else event.encode() if isinstance(event, str) else _encode(event)


def sample_in(files: Mapping[str, Path], topology: Topology) -> Sample:
    """Read a sample from files: JSON Lines, or lines of text (``.txt``) for a source whose events have one text field.

    Raises:
        SourceError: a file cannot be read.
    """
    read: dict[str, list[Any]] = {}
    for name, file in files.items():
        try:
            lines = [line for line in file.read_bytes().splitlines() if line.strip()]
        except OSError as error:
            raise SourceError(f"{file} cannot be read ({error.strerror}): give a file of JSON Lines.") from error
        source = next((known for known in topology.sources if known.name == name), None)
        texts = source is not None and file.suffix == ".txt"
        if texts and source is not None and list(field_types(source.event_type).values()) != [str]:
            raise ConfigurationError(
                f"{file}: lines of text fill the only field of an event, and {source.event_type.__name__} has "
                f"{', '.join(field_types(source.event_type))}: give JSON Lines, in a file of another suffix."
            )
        read[name] = [_encode(_of_text(source, line)) for line in lines] if texts else list(lines)
    return given_sample(topology, read)


def _of_text(source: Any, line: bytes) -> Any:
    return source.event_type(line.decode("utf-8", "replace"))


def drawn_sample(topology: Topology, seed: int) -> Sample:
    """Draw a sample from the event types: few values per field, so that keys repeat; rising times; floats that round."""
    return {source.name: [_encode(event) for event in _drawn(source, Random(seed))] for source in topology.sources}


def _drawn(source: Source[Any], draw: Random) -> list[Event]:
    if source.sample is not None:
        return [source.sample(number) for number in range(DRAWN)]
    time_field = None if source.event_time is None else source.event_time.field
    events = []
    for number in range(DRAWN):
        at = datetime(2026, 1, 5, 8, tzinfo=UTC) + timedelta(seconds=37 * number)
        events.append(_event(source, draw, at, time_field))
    return events


def _event(source: Source[Any], draw: Random, at: datetime, time_field: str | None) -> Event:
    kind = source.event_type
    for _ in range(200):
        fields = {name: _value(annotation, draw, at) for name, annotation in field_types(kind, annotated=True).items()}
        if time_field is not None:
            fields[time_field] = at.replace(tzinfo=None) if fields[time_field].tzinfo is None else at
        try:
            event: Event = convert(to_builtins(kind(**fields)), kind)
        except Exception:  # violates a constraint of the event type, which another draw may satisfy
            continue
        return event
    raise ConfigurationError(
        f"No {kind.__name__} for source {source.name} could be drawn that meets its own constraints: give a sample, as "
        f"--sample {source.name}=FILE.jsonl."
    )


def _value(annotation: Any, draw: Random, at: datetime) -> Any:
    if optional(annotation) and draw.random() < 0.2:
        return None
    kind, values = plain(annotation), choices(annotation)
    if values:
        return draw.choice(typing.get_args(kind) if typing.get_origin(kind) is typing.Literal else list(kind))
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is list:
        return [_value(arguments[0], draw, at) for _ in range(draw.randrange(3))]
    if origin is dict:
        return {word: _value(arguments[1], draw, at) for word in ("a", "b")[: draw.randrange(3)]}
    if isinstance(kind, type) and issubclass(kind, Event):
        return kind(**{name: _value(each, draw, at) for name, each in field_types(kind, annotated=True).items()})
    return draw.choice(_SCALARS[kind](at.replace(tzinfo=None) if naive(annotation) else at))


_SCALARS: dict[Any, Any] = {
    bool: lambda at: (True, False),
    int: lambda at: (1, 2, 3, 5, 8, 10),
    float: lambda at: (0.1, 0.2, 0.7, 1.3, 1e3 + 0.1, 3e-5),
    str: lambda at: ("ann", "bob", "cleo", "7", "12"),
    bytes: lambda at: (b"a", b"b"),
    datetime: lambda at: (at,),
    date: lambda at: (at.date(),),
    time: lambda at: (at.timetz(),),
    timedelta: lambda at: (timedelta(seconds=1), timedelta(minutes=5)),
    Decimal: lambda at: (Decimal("0.10"), Decimal("2.50"), Decimal(3)),
    UUID: lambda at: (UUID(int=1), UUID(int=2), UUID(int=3)),
}
