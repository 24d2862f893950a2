"""The description of a topology as plain data, for recordings and drawings."""

from typing import Literal

import msgspec


class EventTimeDescription(msgspec.Struct, frozen=True):
    """A source's event time; durations in seconds."""

    field: str
    lateness_s: float
    late: Literal["dead-letter", "process", "drop"]
    idle_s: float | None = None


class StreamDescription(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stream: the name of its event class, and the types of the event's fields as text."""

    name: str
    event: str
    fields: dict[str, str]
    source: bool
    event_time: EventTimeDescription | None = None


class ElementDescription(msgspec.Struct, frozen=True, omit_defaults=True):
    """An element; ``stage`` is the number of keyed hops up to it, itself included; durations are in seconds."""

    name: str
    dialect: Literal["event", "batch", "query"]
    key: list[str]
    inputs: list[str]
    emits: list[str]
    stage: int
    every_s: float | None
    expires_s: float | None
    timers: Literal["processing", "event"]
    note: str = ""


class SinkDescription(msgspec.Struct, frozen=True):
    """A sink, and the stream that it writes."""

    name: str
    stream: str


class Description(msgspec.Struct, frozen=True):
    """A topology as plain data."""

    application: str
    streams: list[StreamDescription]
    elements: list[ElementDescription]
    sinks: list[SinkDescription]

    @property
    def sources(self) -> list[StreamDescription]:
        """The streams whose events come from outside."""
        return [stream for stream in self.streams if stream.source]
