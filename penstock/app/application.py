"""The application: what a user declares, and the topology it amounts to."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

from penstock.app.duration import Duration, seconds
from penstock.app.element import Element, declare
from penstock.app.parameter import Parameter, given_value
from penstock.app.stream import Connection, E, LatePolicy, Sink, Source, Stream
from penstock.app.topology import Topology
from penstock.errors import ConfigurationError, TopologyError

Body = TypeVar("Body", bound=Callable[..., Any])
Value = TypeVar("Value", bool, int, float, str)
Streams = Stream[Any] | Sequence[Stream[Any]]


class App:
    """An application under construction; see the tutorial for a whole one.

    Parameters
    ----------
    name: names the run's directory unless the run is given another name.
    on_error: what becomes of an event that cannot be decoded or whose PE raises: ``"dead-letter"``
        keeps it with its error and goes on, ``"stop"`` stops the run, so that it stays queued.
    trigger: time between the starts of micro-batches, unless ``--trigger`` says otherwise; 0 starts one as soon as the
        last is over.
    """

    def __init__(
        self, name: str, *, on_error: Literal["dead-letter", "stop"] = "dead-letter", trigger: Duration = 0.0
    ) -> None:
        if on_error not in ("dead-letter", "stop"):
            raise ConfigurationError(f"App {name}: on_error={on_error!r}; choose 'dead-letter' or 'stop'.")
        self.name = name
        self.on_error = on_error
        self.trigger = seconds(trigger)
        self.parameters: dict[str, Parameter] = {}
        self.values: dict[str, Any] = {}
        """The parameters' values in force."""
        self._streams: list[Stream[Any]] = []
        self._elements: list[Element] = []
        self._sinks: list[Sink] = []

    def parameter(self, name: str, default: Value, *, help: str = "", choices: Sequence[Value] | None = None) -> Value:
        """A value that a run may set (``penstock run app.py --NAME VALUE``); returns the one in force."""
        self.parameters[name] = Parameter(name, default, help, tuple(choices or ()))
        value: Value = self.parameters[name].read(given_value(name))
        self.values[name] = value
        return value

    def source(
        self,
        name: str,
        event_type: type[E],
        *,
        uri: str | Connection | None = None,
        event_time: str | None = None,
        lateness: Duration = 0.0,
        late: LatePolicy = "dead-letter",
        sample: Callable[[int], E] | None = None,
    ) -> Source[E]:
        """Declare a stream that comes from outside.

        Parameters
        ----------
        uri: where from, unless ``--source NAME=URI`` says otherwise: a URI, or a connector.
        event_time, lateness, late: the field that holds the event's own time, how long after the
            greatest one seen an event may still come, and what becomes of one that comes later.
        sample: makes the n-th event, for runs whose source is the generator.
        """
        source = Source(name, event_type, uri=uri, event_time=event_time, lateness=lateness, late=late, sample=sample)
        self._streams.append(source)
        return source

    def stream(self, name: str, event_type: type[E]) -> Stream[E]:
        """Declare a stream that elements emit into."""
        stream = Stream(name, event_type)
        self._streams.append(stream)
        return stream

    def sink(
        self,
        name: str,
        stream: Stream[Any],
        *,
        uri: str | Connection | None = None,
        key: str | Sequence[str] | None = None,
    ) -> Sink:
        """Declare where a stream leaves; without a URI it is JSON Lines in the run's directory.

        Parameters
        ----------
        key: field or fields whose values name a result: a table keeps the last event of each, and the
            adapter answers with it.
        """
        if not isinstance(stream, Stream):
            raise TopologyError(
                f"Sink {name} is of {stream!r}, which is no stream: give what app.stream(...) or app.source(...) returned."
            )
        sink = Sink(name, stream, uri, (key,) if isinstance(key, str) else tuple(key or ()))
        self._sinks.append(sink)
        return sink

    def element(
        self,
        inputs: Streams,
        *,
        emits: Streams = (),
        key: str | Sequence[str] | None = None,
        name: str | None = None,
        every: Duration | None = None,
        expires: Duration | None = None,
        timers: Literal["processing", "event"] = "processing",
    ) -> Callable[[Body], Body]:
        """Declare a PE in the event dialect: a function of one event, or a `ProcessingElement`.

        Parameters
        ----------
        inputs, emits: the streams it listens to and those it may emit into.
        key: field or fields whose values name the instance that gets an event.
        every: how often ``on_interval`` is called for each live instance.
        expires: how long an instance is kept after the last event it got; its state then starts anew.
        timers: whether ``set_timer`` means processing time or event time (the watermark).
        """
        return self._declare("event", inputs, emits, key=key, name=name, every=every, expires=expires, timers=timers)

    def batch(self, inputs: Streams, *, emits: Streams, name: str | None = None) -> Callable[[Body], Body]:
        """Declare a PE in the batch dialect: ``pyarrow.RecordBatch`` in, ``RecordBatch`` out."""
        return self._declare("batch", inputs, emits, name=name)

    def query(self, inputs: Streams, *, emits: Streams, name: str | None = None) -> Callable[[Body], Body]:
        """Declare a PE in the query dialect: Spark DataFrame in, DataFrame out, planned by Spark."""
        return self._declare("query", inputs, emits, name=name)

    def _declare(self, dialect: Any, inputs: Streams, emits: Streams, **options: Any) -> Callable[[Body], Body]:
        def decorate(body: Body) -> Body:
            self._elements.append(declare(body, dialect, inputs, emits, **options))
            return body

        return decorate

    def topology(self) -> Topology:
        """The whole topology, checked.

        Raises
        ------
        TopologyError: with one sentence on what does not fit and how to mend it.
        """
        return Topology(self.name, tuple(self._streams), tuple(self._elements), tuple(self._sinks))
