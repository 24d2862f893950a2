"""Named streams of typed events, the sources and sinks at their ends, and emissions into them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

import msgspec

from penstock.app.duration import Duration, seconds
from penstock.errors import ConfigurationError, TopologyError
from penstock.kinds.event import Event, check_event_type, field_types

E = TypeVar("E", bound=Event)

LatePolicy = Literal["dead-letter", "process", "drop"]


class Connection(Protocol):
    """A configured connector, which ``uri=`` takes in place of text; see `penstock.connectors`."""

    def bind(self, declared: Any, context: Any, /) -> Any:
        """Return the source or sink for a run."""


class Emission(msgspec.Struct, frozen=True, gc=False):
    """An event on its way into a stream; calling a stream makes one."""

    stream: "Stream[Any]"
    event: Event


class Stream(Generic[E]):
    """A named sequence of events of one type. Call it with the event's fields to emit one."""

    def __init__(self, name: str, event_type: type[E]) -> None:
        check_event_type(event_type)
        if not name:
            raise TopologyError("A stream has no name: give it one, which files, recordings and messages use.")
        self.name = name
        self.event_type = event_type

    def __call__(self, *fields: Any, **named: Any) -> Emission:
        """Make an event from its fields, as an emission for an element to yield."""
        return Emission(self, self.event_type(*fields, **named))

    def emit(self, event: E) -> Emission:
        """Return an existing event as an emission for an element to yield.

        One of another type, such as a derived one, becomes one of the stream's, without the fields that it has more.
        """
        return Emission(self, event)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.event_type.__name__})"


@dataclass(frozen=True)
class EventTime:
    """The field that holds the time at which an event happened, and how long to wait for late events.

    The watermark is the greatest event time of earlier micro-batches minus ``lateness`` seconds. An event older than the
    watermark is late.
    """

    field: str
    lateness: float
    late: LatePolicy
    idle: float | None = None
    """Seconds without an event after which the watermark advances without this source; None for never."""


class Source(Stream[E]):
    """A stream whose events come from outside."""

    def __init__(
        self,
        name: str,
        event_type: type[E],
        *,
        uri: str | Connection | None = None,
        event_time: str | None = None,
        lateness: Duration = 0.0,
        late: LatePolicy = "dead-letter",
        idle: Duration | None = None,
        sample: Callable[[int], E] | None = None,
    ) -> None:
        super().__init__(name, event_type)
        self.uri = uri
        self.sample = sample
        self.event_time: EventTime | None = None
        if late not in ("dead-letter", "process", "drop"):
            raise ConfigurationError(f"Source {name}: late={late!r} is no policy; choose 'dead-letter', 'process' or 'drop'.")
        wait = seconds(lateness)
        if event_time is not None:
            annotation = field_types(event_type).get(event_time)
            if getattr(annotation, "__name__", None) != "datetime":
                raise TopologyError(
                    f"Source {name}: event_time names {event_time!r}, which must be a field of "
                    f"{event_type.__name__} of type datetime."
                )
            self.event_time = EventTime(event_time, wait, late, None if idle is None else seconds(idle))
        elif idle is not None:
            raise TopologyError(f"Source {name}: idle= lets the watermark go on, so it needs event_time='field'.")
        elif wait:
            raise TopologyError(f"Source {name}: lateness= concerns the events' own times, so it needs event_time='field'.")


@dataclass(frozen=True)
class Sink:
    """The place where the events of a stream leave the application.

    Args:
        uri: where to write; the run may override it.
        key: the fields by whose values the last event is looked up, or upserted in a table.
        hop: whether this is not a declared sink, but the way of a stream to another group of elements.
    """

    name: str
    stream: Stream[Any]
    uri: str | Connection | None
    key: tuple[str, ...] = ()
    hop: bool = False
