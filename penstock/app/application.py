"""The application: the user's declarations, and the topology made of them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar, cast, get_args

from penstock.app.arguments import checked
from penstock.app.duration import Duration, seconds
from penstock.app.element import Element, declare
from penstock.app.functions import check_function
from penstock.app.joins import How, Interval, check_how, interval_join, interval_of, interval_text, latest_join, once
from penstock.app.lookup import Lookup, check_fields
from penstock.app.ordered import in_order
from penstock.app.parameter import Parameter, given_value
from penstock.app.pattern import Condition, matching
from penstock.app.picture import svg
from penstock.app.queries import WordsOf, join_query, window_query
from penstock.app.reducers import Reducer
from penstock.app.states import States
from penstock.app.stream import Connection, E, LatePolicy, Sink, Source, Stream
from penstock.app.table import Table
from penstock.app.topology import Topology
from penstock.app.window.aggregate import Results, aggregate
from penstock.app.window.declaration import declare_windowed, own_time, time_field
from penstock.app.window.windowing import Windowing
from penstock.errors import ConfigurationError, TopologyError
from penstock.kinds.event import Event

Body = TypeVar("Body", bound=Callable[..., Any])
Pair = TypeVar("Pair", bound=Callable[..., Any])
Value = TypeVar("Value", bool, int, float, str)
Streams = Stream[Any] | Sequence[Stream[Any]]

NO_ASYNC_THERE = (
    "windows and events in order (window=, ordered=) await no calls, so concurrency=, timeout= and async def are not for it: "
    "make the calls in an element before it or behind it."
)


class App:
    """An application under construction; the tutorial has a complete one.

    Args:
        name: names the run's directory, unless the run is given another name.
        on_error: how to treat an event that cannot be decoded or whose processing element (PE) raises: ``"dead-letter"``
            stores it with its error and goes on; ``"stop"`` stops the run, so that the event stays queued.
        trigger: time between the starts of micro-batches; ``--trigger`` overrides it; 0 starts one as soon as the last is over.

    Examples:
        >>> from penstock import Event
        >>> class Word(Event):
        ...     text: str
        >>> app = App("shouting")
        >>> words, loud = app.source("Words", Word), app.stream("Loud", Word)
        >>> @app.element(words, emits=loud)
        ... def shout(word):
        ...     yield loud(word.text.upper())
        >>> out = app.sink("Out", loud)
        >>> from penstock.testing import TopologyDriver
        >>> driver = TopologyDriver(app)
        >>> driver.batch({"Words": [Word("hello")]})
        >>> driver.output(out)
        [Word(text='HELLO')]
    """

    @checked()
    def __init__(self, name: str, *, on_error: Literal["dead-letter", "stop"] = "dead-letter", trigger: Duration = 0.0) -> None:
        if not name:
            raise ConfigurationError("An application has no name: give it one, which its runs have unless they get another.")
        if on_error not in ("dead-letter", "stop"):
            raise ConfigurationError(f"App {name}: on_error={on_error!r}; choose 'dead-letter' or 'stop'.")
        self.name = name
        self.on_error = on_error
        self.trigger = seconds(trigger)
        self.parameters: dict[str, Parameter] = {}
        self.values: dict[str, Any] = {}
        """The current value of each parameter, by name."""
        self._streams: list[Stream[Any]] = []
        self._elements: list[Element] = []
        self._sinks: list[Sink] = []

    @checked()
    def parameter(self, name: str, default: Value, *, help: str = "", choices: Sequence[Value] | None = None) -> Value:
        """Declare a value that a run may set (``penstock run app.py --NAME VALUE``), and return its current value.

        Raises:
            ConfigurationError: the name cannot be that of an option, or the run's value has the wrong type or is not a choice.

        Examples:
            >>> App("alerts").parameter("limit", 100, help="What is too much.")
            100
        """
        if not (isinstance(name, str) and name.replace("-", "_").isidentifier()):
            raise ConfigurationError(f"Parameter {name!r} cannot be an option of a command: write letters, digits, - and _.")
        self.parameters[name] = Parameter(name, default, help, tuple(choices or ()))
        value: Value = self.parameters[name].read(given_value(name))
        self.values[name] = value
        return value

    @checked()
    def source(
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
    ) -> Source[E]:
        """Declare a source: a stream whose events come from outside.

        Args:
            uri: where to read from, as a URI or a connector; ``--source NAME=URI`` overrides it.
            event_time, lateness, late: the field that holds the event's own time; by how much an event's time may lie behind
                the greatest one seen; and how to treat an event that is later than that.
            idle: how long the source may be silent, in processing time, before the watermark advances without it. If not given,
                a silent source holds the watermark back. When it resumes, the common watermark decides which of its events are
                late.
            sample: makes the n-th event, for runs that read from the event generator.

        Examples:
            >>> from datetime import datetime
            >>> from penstock import Event
            >>> class Reading(Event):
            ...     sensor: str
            ...     value: float
            ...     time: datetime
            >>> app = App("sensors")
            >>> readings = app.source("Readings", Reading, uri="jsonl:readings", event_time="time", lateness="10 s")
            >>> readings.event_time.lateness
            10.0
        """
        source = Source(
            name, event_type, uri=uri, event_time=event_time, lateness=lateness, late=late, idle=idle, sample=sample
        )
        self._streams.append(source)
        return source

    @checked()
    def stream(self, name: str, event_type: type[E]) -> Stream[E]:
        """Declare an internal stream, which elements emit into.

        Examples:
            >>> from penstock import Event
            >>> class Alert(Event):
            ...     text: str
            >>> alerts = App("alerts").stream("Alerts", Alert)
            >>> alerts.name, alerts.event_type
            ('Alerts', <class 'penstock.app.application.Alert'>)
        """
        stream = Stream(name, event_type)
        self._streams.append(stream)
        return stream

    @checked()
    def sink(
        self, name: str, stream: Stream[Any], *, uri: str | Connection | None = None, key: str | Sequence[str] | None = None
    ) -> Sink:
        """Declare a sink, which writes a stream; without a URI it writes JSON Lines into the run's directory.

        Args:
            key: field or fields that identify a result: a table keeps the last event of each key value, and the adapter
                returns it when asked.

        Examples:
            >>> from penstock import Event
            >>> class Count(Event):
            ...     word: str
            ...     seen: int
            >>> app = App("words")
            >>> app.sink("Counts", app.source("In", Count), uri="sqlite:counts.db/counts", key="word").key
            ('word',)
        """
        if not isinstance(stream, Stream):
            raise TopologyError(
                f"Sink {name} is of {stream!r}, which is no stream: give what app.stream(...) or app.source(...) returned."
            )
        if not name:
            raise TopologyError(f"The sink of {stream.name} has no name: give it one, which files and messages use.")
        sink = Sink(name, stream, uri, (key,) if isinstance(key, str) else tuple(key or ()))
        self._sinks.append(sink)
        return sink

    @checked("inputs", "emits")
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
        window: Windowing | None = None,
        ordered: bool = False,
        at: str | None = None,
        concurrency: int | None = None,
        timeout: Duration | None = None,
    ) -> Callable[[Body], Body]:
        """Declare a processing element (PE) in the event dialect: a function of one event, or a `ProcessingElement`.

        An ``async`` function, or an ``async`` ``on_event``, is awaited for many events at once; events of one key are processed
        one after the other. Emissions keep the order of the events.

        Args:
            inputs, emits: the streams that the PE consumes, and the streams that it may emit into.
            key: field or fields whose values select the instance that gets an event.
            every: how often ``on_interval`` is called for each live instance.
            expires: how long an instance is kept after its last event; after that, its key starts with fresh state.
            timers: whether ``set_timer`` means processing time or event time (the watermark).
            window: gives each window of a key a state of its own, as ``Tumbling("10 s")``; ``on_close`` emits its result.
            ordered: the events of a key are processed in the order of their own times, once the watermark has passed them. The
                output then depends neither on the order of arrival nor on how events are divided into micro-batches.
            at: the field that holds the events' time, for ``window`` and ``ordered``; needed where an input is not a source
                with an ``event_time``.
            concurrency: how many events an asynchronous PE may process at once in each task; 100 unless given.
            timeout: how long each asynchronous call may take before it fails as if it had raised; one minute unless given.

        Examples:
            >>> from penstock import Event, ProcessingElement
            >>> class Order(Event):
            ...     customer: str
            ...     price: float
            >>> class Total(Event):
            ...     customer: str
            ...     spent: float
            >>> app = App("orders")
            >>> orders, totals = app.source("Orders", Order), app.stream("Totals", Total)
            >>> @app.element(orders, key="customer", emits=totals)
            ... class Spending(ProcessingElement):
            ...     spent: float = 0.0
            ...     def on_event(self, order):
            ...         self.spent += order.price
            ...         yield totals(self.key, self.spent)
            >>> [element.name for element in app.topology().elements]
            ['Spending']
        """
        if window is not None and (every is not None or expires is not None or timers != "processing"):
            raise TopologyError(
                f"Element {name or 'with a window'}: a window has its own timers and end; drop every=, expires= and timers=."
            )
        if at is not None and window is None and not ordered:
            raise TopologyError(
                f"Element {name or ''}: at={at!r} names the time of windows, or of events in order; give window= or ordered=, "
                "or leave it out."
            )
        clock: Literal["processing", "event"] = "event" if ordered else timers

        def decorate(body: Body) -> Body:
            if window is None:
                element = declare(
                    body,
                    "event",
                    inputs,
                    emits,
                    key=key,
                    name=name,
                    every=every,
                    expires=expires,
                    timers=clock,
                    concurrency=concurrency,
                    timeout=timeout,
                )
                field = at
            else:
                if concurrency is not None or timeout is not None:
                    raise TopologyError(f"Element {name or 'with a window'}: {NO_ASYNC_THERE}")
                by = window if at is None else window.by(at)
                element, field = declare_windowed(body, inputs, emits, key=key, window=by, name=name), by.at
            if ordered:
                if element.asynchronous:
                    raise TopologyError(f"Element {element.name}: {NO_ASYNC_THERE}")
                element = in_order(element, [own_time(element.name, stream, field) for stream in element.inputs])
            self._elements.append(element)
            return body

        return decorate

    @checked()
    def aggregate(
        self,
        inputs: Stream[Any],
        *,
        key: str | Sequence[str],
        window: Windowing,
        into: Stream[Any],
        name: str | None = None,
        results: Results = "final",
        dialect: WordsOf = "event",
        **reducers: Reducer[Any],
    ) -> None:
        """Declare a processing element that reduces the events of each window of a key to one event.

        Args:
            into: the stream of the results. Its event type has the key's fields, optionally ``start`` and ``end`` of the
                window, and a field for each reducer.
            results: ``"final"`` emits one result when a window closes; ``"updates"`` emits one for each window that a
                micro-batch has changed, for sinks that keep the last event of a key; ``"both"`` does both.
            dialect: ``"query"`` has Spark plan the aggregation, with equal results, where Spark can: tumbling and sliding
                windows without a time zone, final results, all reducers but `fold`, and a source with ``late="drop"``.
            reducers: by result field, as ``bids=reducers.count(), dearest=reducers.max("price")``; see `penstock.reducers`.

        Raises:
            TopologyError: the fields of ``into`` do not match the key, the window and the reducers; the text says how.

        Examples:
            >>> from datetime import UTC, datetime, timedelta
            >>> from penstock import Event, Tumbling, reducers
            >>> class Bid(Event):
            ...     item: str
            ...     price: int
            ...     time: datetime
            >>> class Busiest(Event):
            ...     item: str
            ...     start: datetime
            ...     bids: int
            ...     dearest: int
            >>> app = App("auction")
            >>> bids = app.source("Bids", Bid, event_time="time")
            >>> busiest = app.stream("Busiest", Busiest)
            >>> app.aggregate(bids, key="item", window=Tumbling("10 s"), into=busiest,
            ...               bids=reducers.count(), dearest=reducers.max("price"))
            >>> out = app.sink("Out", busiest)
            >>> from penstock.testing import TopologyDriver
            >>> driver = TopologyDriver(app)
            >>> at = lambda second: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=second)
            >>> driver.batch({"Bids": [Bid("a", 5, at(0)), Bid("a", 7, at(9)), Bid("a", 1, at(12))]})
            >>> driver.finish()
            >>> [(one.start.second, one.bids, one.dearest) for one in driver.output(out)]
            [(0, 2, 7), (10, 1, 1)]
        """
        keys = (key,) if isinstance(key, str) else tuple(key)
        label = name or f"{into.name}Aggregate"
        field = time_field(label, (inputs,), window)
        body = aggregate(label, inputs, window, keys, into, reducers, results, field)
        if _asks_for_query(f"Aggregate {label}", dialect):
            self._elements.append(window_query(label, inputs, keys, window, into, reducers, results))
            return
        self.element(inputs, emits=into, key=keys, window=window, name=label)(body)

    @checked("at")
    def join(
        self,
        left: Stream[Any],
        right: Streams,
        *,
        key: str | Sequence[str],
        within: Interval | Sequence[Interval],
        emits: Streams,
        how: How = "inner",
        at: Sequence[str | None] = (),
        max_held: int | None = None,
        name: str | None = None,
        dialect: WordsOf = "event",
    ) -> Callable[[Pair], Pair]:
        """Declare a processing element that joins streams by key and time: a function of a left and a right event. If ``right``
        is a list of streams, the function takes a left event and one event of each of these.

        Args:
            within: the least and the greatest time from the left event to the right one, as ``("-10 min", "5 min")``; with
                several right streams, a list of one interval for each, or one interval for all.
            how: ``"inner"``; ``"left"``, which also calls the function for a left event that can match no more, with None for
                each side without a match; or, for two streams only, ``"full"``, which does so for both sides.
            at: the fields that hold the events' times, the left stream's first; needed for streams that are not sources with an
                ``event_time``.
            max_held: the most events that an instance may hold; any further event becomes a dead letter. No limit unless given.
            dialect: ``"query"`` has Spark plan the join, with equal results. The function is then called once, with objects
                whose attributes are columns, and returns the result's columns by name. Both streams are sources with
                ``late="drop"``.

        Raises:
            TopologyError: the interval is not valid, or the streams cannot be joined.

        Examples:
            >>> from datetime import UTC, datetime, timedelta
            >>> from penstock import Event
            >>> class Click(Event):
            ...     ad: str
            ...     time: datetime
            >>> class Sale(Event):
            ...     ad: str
            ...     price: int
            ...     time: datetime
            >>> app = App("ads")
            >>> clicks = app.source("Clicks", Click, event_time="time")
            >>> sales = app.source("Sales", Sale, event_time="time")
            >>> paid = app.stream("Paid", Sale)
            >>> @app.join(clicks, sales, key="ad", within=("0 s", "1 min"), emits=paid)
            ... def earned(click, sale):
            ...     yield paid(sale.ad, sale.price, click.time)
            >>> out = app.sink("Out", paid)
            >>> from penstock.testing import TopologyDriver
            >>> driver = TopologyDriver(app)
            >>> at = lambda second: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=second)
            >>> driver.batch({"Clicks": [Click("a", at(0))], "Sales": [Sale("a", 9, at(30)), Sale("a", 8, at(70))]})
            >>> driver.finish()
            >>> [sale.price for sale in driver.output(out)]
            [9]
        """
        rights = (right,) if isinstance(right, Stream) else tuple(right)
        streams = (left, *rights)
        intervals = _one_each(within, rights)
        note = f"join {', '.join(map(interval_text, dict.fromkeys(intervals)))}, {how}"
        if not _asks_for_query(f"Join of {left.name}", dialect):
            return self._joined(
                streams,
                key,
                emits,
                at,
                name,
                note,
                lambda label, pair, times: interval_join(label, pair, streams, times, intervals, how, max_held),
            )

        def decorate(pair: Pair) -> Pair:
            label = str(name or getattr(pair, "__name__", "join"))
            if len(rights) > 1 or max_held is not None:
                raise TopologyError(
                    f"Join {label}: Spark joins two streams, and holds as many events as come; leave out dialect='query'."
                )
            keys = (key,) if isinstance(key, str) else tuple(key)
            check_how(label, how, ("inner", "left", "full"))
            shown = f"by {', '.join(keys)}, {note}"
            interval = interval_of(label, intervals[0])
            self._elements.append(
                join_query(label, pair, (left, *rights), keys, (*at, None, None)[:2], interval, how, emits, shown)
            )
            return pair

        return decorate

    @checked("at")
    def join_latest(
        self,
        left: Stream[Any],
        table: Stream[Any],
        *,
        key: str | Sequence[str],
        emits: Streams,
        within: Duration | None = None,
        how: How = "left",
        at: Sequence[str | None] = (),
        max_held: int | None = None,
        name: str | None = None,
    ) -> Callable[[Pair], Pair]:
        """Declare a processing element that pairs each left event with the table version that was in force at its time.

        The events of ``table`` are versions of a key's row. The function takes a left event and a version. A left event waits
        until the watermark has passed it, so that no earlier version can come. A key's newest version is never dropped.

        Args:
            within: the greatest age of a version; any age unless given.
            how: ``"left"``, which calls the function with None where there is no version; or ``"inner"``.
            at: the fields that hold the events' times; needed for streams that are not sources with an ``event_time``.
            max_held: the most events and versions that an instance may hold; any further one becomes a dead letter.

        Raises:
            TopologyError: the streams cannot be joined.

        Examples:
            >>> from datetime import UTC, datetime, timedelta
            >>> from penstock import Event
            >>> class Order(Event):
            ...     currency: str
            ...     time: datetime
            >>> class Rate(Event):
            ...     currency: str
            ...     rate: float
            ...     time: datetime
            >>> app = App("rates")
            >>> orders = app.source("Orders", Order, event_time="time")
            >>> rates = app.source("Rates", Rate, event_time="time")
            >>> priced = app.stream("Priced", Rate)
            >>> @app.join_latest(orders, rates, key="currency", emits=priced)
            ... def price(order, rate):
            ...     yield priced(order.currency, rate.rate if rate else 1.0, order.time)
            >>> out = app.sink("Out", priced)
            >>> from penstock.testing import TopologyDriver
            >>> driver = TopologyDriver(app)
            >>> at = lambda second: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=second)
            >>> driver.batch({"Rates": [Rate("EUR", 1.1, at(0)), Rate("EUR", 1.2, at(9))], "Orders": [Order("EUR", at(5))]})
            >>> driver.finish()
            >>> [one.rate for one in driver.output(out)]
            [1.1]
        """
        streams = (left, table)
        return self._joined(
            streams,
            key,
            emits,
            at,
            name,
            f"join with the latest, {how}",
            lambda label, pair, times: latest_join(label, pair, streams, times, within, how, max_held),
        )

    @checked()
    def lookup(
        self,
        inputs: Stream[Any],
        table: str,
        *,
        key: str | Sequence[str],
        row: type[Event],
        emits: Streams,
        by: str | Sequence[str] | None = None,
        how: Literal["left", "inner"] = "left",
        refresh: Duration = "10 s",
        name: str | None = None,
    ) -> Callable[[Pair], Pair]:
        """Declare a processing element that looks up each event's row in a static table.

        The function takes an event and its row, or None. Each worker reads the whole table, checks it before a micro-batch,
        though at most every ``refresh`` seconds of the real clock, and reads it again when it has changed. A micro-batch that
        is replayed after a crash sees the table as it is by then.

        Args:
            table: ``csv:PATH``, ``jsonl:PATH``, ``parquet:PATH``, ``sqlite:FILE/TABLE``, ``postgresql://.../DATABASE/TABLE``.
            key: the table's columns that identify a row.
            by: the events' fields to look up by, if their names differ.
            row: the type of a row; its fields are the columns that are read.
            how: ``"left"`` calls the function with None where there is no row; ``"inner"`` does not call it.
            refresh: how often to check a file for changes, and to read a database's table again.

        Raises:
            TopologyError: the table's address is not valid, or its key and the events' fields do not match.

        Examples:
            >>> from pathlib import Path
            >>> from penstock import Event
            >>> class Order(Event):
            ...     customer: int
            >>> class Customer(Event):
            ...     id: int
            ...     name: str
            >>> class Named(Event):
            ...     name: str
            >>> app = App("orders")
            >>> orders, named = app.source("Orders", Order), app.stream("Named", Named)
            >>> @app.lookup(orders, "csv:customers.csv", key="id", by="customer", row=Customer, emits=named)
            ... def name(order, customer):
            ...     yield named(customer.name if customer else "somebody")
            >>> app.topology().elements[0].note
            'looks up csv:customers.csv, left'
        """
        columns = (key,) if isinstance(key, str) else tuple(key)
        fields = columns if by is None else (by,) if isinstance(by, str) else tuple(by)
        if not columns or len(fields) != len(columns):
            raise TopologyError(f"A lookup by {', '.join(fields)} needs as many columns as key= names ({', '.join(columns)}).")
        static_table = Table(table, row, columns, refresh)

        def decorate(pair: Pair) -> Pair:
            label = str(name or getattr(pair, "__name__", "lookup"))
            check_function(pair, 2, f"Element {label}", "decorate a function of an event and its row, or None")
            check_fields(label, inputs, fields, static_table, how)
            element = declare(Lookup(pair, static_table, fields, how), "event", inputs, emits, name=label)
            self._elements.append(replace(element, note=f"looks up {static_table.shown}, {how}"))
            return pair

        return decorate

    @checked("then", "without")
    def pattern(
        self,
        inputs: Stream[Any],
        *,
        key: str | Sequence[str],
        then: Sequence[Condition],
        within: Duration,
        emits: Streams,
        without: Condition | None = None,
        at: str | None = None,
        name: str | None = None,
    ) -> Callable[[Body], Body]:
        """Declare a processing element that finds sequences of a key's events: a function of one event for each step.

        Args:
            then: the steps, each a function that returns whether an event fits; other events may lie between them.
            without: a function that returns whether an event cancels the sequences that have begun.
            within: the longest time from the first to the last event.
            at: the field that holds the events' times; needed where the stream is not a source with an ``event_time``.

        Raises:
            TopologyError: there are fewer than two steps, or ``within`` is zero.

        Examples:
            >>> from datetime import UTC, datetime, timedelta
            >>> from penstock import Event
            >>> class Login(Event):
            ...     user: str
            ...     right: bool
            ...     time: datetime
            >>> app = App("logins")
            >>> logins = app.source("Logins", Login, event_time="time")
            >>> guessed = app.stream("Guessed", Login)
            >>> wrong, right = (lambda login: not login.right), (lambda login: login.right)
            >>> @app.pattern(logins, key="user", then=[wrong, wrong, right], within="1 min", emits=guessed)
            ... def guess(first, second, last):
            ...     yield guessed(last.user, True, last.time)
            >>> out = app.sink("Out", guessed)
            >>> from penstock.testing import TopologyDriver
            >>> driver = TopologyDriver(app)
            >>> at = lambda second: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=second)
            >>> driver.batch({"Logins": [Login("ann", right, at(n)) for n, right in enumerate([False, False, True])]})
            >>> driver.finish()
            >>> [one.user for one in driver.output(out)]
            ['ann']
        """

        def decorate(body: Body) -> Body:
            label = str(name or getattr(body, "__name__", "pattern"))
            time = own_time(label, inputs, at)
            prototype = matching(label, inputs.event_type, time, then, without, within, body)
            element = declare(prototype, "event", inputs, emits, key=key, name=label)
            self._elements.append(in_order(replace(element, note=f"{len(then)} steps within {within}"), [time]))
            return body

        return decorate

    @checked()
    def distinct(
        self,
        inputs: Stream[Any],
        *,
        key: str | Sequence[str],
        within: Duration,
        into: Stream[Any],
        at: str | None = None,
        name: str | None = None,
    ) -> None:
        """Declare a processing element that drops an event if one of its key passed less than ``within`` before or after it.

        Args:
            into: the stream of the events that pass; it carries the event type of ``inputs``.
            at: the field that holds the events' times; needed where the stream is not a source with an ``event_time``.

        Raises:
            TopologyError: ``within`` is zero, or the streams differ in their event type.

        Examples:
            >>> from datetime import UTC, datetime, timedelta
            >>> from penstock import Event
            >>> class Order(Event):
            ...     number: int
            ...     time: datetime
            >>> app = App("orders")
            >>> orders, once = app.source("Orders", Order, event_time="time"), app.stream("Once", Order)
            >>> app.distinct(orders, key="number", within="1 h", into=once)
            >>> out = app.sink("Out", once)
            >>> from penstock.testing import TopologyDriver
            >>> driver = TopologyDriver(app)
            >>> at = lambda second: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=second)
            >>> driver.batch({"Orders": [Order(1, at(0)), Order(1, at(5)), Order(2, at(6))]})
            >>> sorted(order.number for order in driver.output(out))
            [1, 2]
        """
        label = name or f"{into.name}Once"
        if into.event_type is not inputs.event_type:
            raise TopologyError(f"Element {label}: {into.name} must carry {inputs.event_type.__name__}, as {inputs.name} does.")
        body = once(label, into, own_time(label, inputs, at), within)
        element = declare(body, "event", inputs, into, key=key, name=label, timers="event")
        self._elements.append(replace(element, note=f"once within {within}"))

    def _joined(
        self,
        streams: Sequence[Stream[Any]],
        key: str | Sequence[str],
        emits: Streams,
        at: Sequence[str | None],
        name: str | None,
        note: str,
        make: Callable[[str, Any, Sequence[str]], type[Any]],
    ) -> Callable[[Pair], Pair]:
        def decorate(pair: Pair) -> Pair:
            label = str(name or getattr(pair, "__name__", "join"))
            if not isinstance(at, list | tuple) or len(at) > len(streams):
                raise TopologyError(
                    f"Join {label} has at={at!r}: give a field, or None, for each of "
                    f"{', '.join(stream.name for stream in streams)}."
                )
            fields = (*at, *(None for _ in streams))
            times = [own_time(label, stream, field) for stream, field in zip(streams, fields, strict=False)]
            element = declare(make(label, pair, times), "event", streams, emits, key=key, name=label, timers="event")
            self._elements.append(replace(element, note=note))
            return pair

        return decorate

    @checked("inputs", "emits", "state", "on_timer")
    def batch(
        self,
        inputs: Streams,
        *,
        emits: Streams,
        key: str | Sequence[str] | None = None,
        state: type[Event] | None = None,
        on_timer: Callable[[States], Any] | None = None,
        timers: Literal["processing", "event"] = "processing",
        expires: Duration | None = None,
        name: str | None = None,
    ) -> Callable[[Body], Body]:
        """Declare an element in the batch dialect: from a ``pyarrow.RecordBatch`` to a ``RecordBatch`` or a dict of columns.

        With ``key`` and ``state`` the function takes three arguments: the batch, whose events are in the order of delivery;
        ``at``, an ``int64`` array with the position of each event's instance; and the `States` of these instances. A function
        may return None to emit nothing, and otherwise returns all columns of the stream. Batches may be cut anywhere, so two
        in turn must give the same result as both in one. If the result has as many rows as there are events, or instances,
        each row is taken to descend from that at its position.

        Args:
            key: field or fields whose values select the instance that gets an event.
            state: the instances' fields, each with a default.
            on_timer: a function of the states of the instances whose timers are due; its result is emitted, too.
            timers: whether ``states.due`` is processing time or event time (the watermark).
            expires: how long an instance is kept after its last event; after that, its key starts with fresh state.

        Examples:
            >>> import pyarrow.compute as pc
            >>> from penstock import Event
            >>> class Reading(Event):
            ...     celsius: float
            >>> app = App("warm")
            >>> readings, warm = app.source("Readings", Reading), app.stream("Warm", Reading)
            >>> @app.batch(readings, emits=warm)
            ... def keep_warm(batch):
            ...     return batch.filter(pc.greater(batch["celsius"], 20))
            >>> out = app.sink("Out", warm)
            >>> from penstock.testing import TopologyDriver
            >>> driver = TopologyDriver(app)
            >>> driver.batch({"Readings": [Reading(19.0), Reading(23.0)]})
            >>> driver.output(out)
            [Reading(celsius=23.0)]
        """
        return self._declare(
            "batch", inputs, emits, name=name, key=key, state=state, on_timer=on_timer, timers=timers, expires=expires
        )

    @checked("inputs", "emits")
    def query(self, inputs: Streams, *, emits: Streams, name: str | None = None) -> Callable[[Body], Body]:
        """Declare a processing element in the query dialect: a function from Spark DataFrames to a DataFrame, planned by Spark.

        Examples:
            >>> from penstock import Event
            >>> class Reading(Event):
            ...     celsius: float
            >>> app = App("warm")
            >>> readings, warm = app.source("Readings", Reading), app.stream("Warm", Reading)
            >>> @app.query(readings, emits=warm)
            ... def keep_warm(frame):
            ...     return frame.where("celsius > 20")
            >>> app.topology().elements[0].dialect
            'query'
        """
        return self._declare("query", inputs, emits, name=name)

    def _declare(self, dialect: Any, inputs: Streams, emits: Streams, **options: Any) -> Callable[[Body], Body]:
        def decorate(body: Body) -> Body:
            self._elements.append(declare(body, dialect, inputs, emits, **options))
            return body

        return decorate

    def topology(self) -> Topology:
        """Return the topology of all declarations, checked.

        Raises:
            TopologyError: the declarations do not fit together; the text says why, and how to mend it.

        Examples:
            >>> App("empty").topology()
            Traceback (most recent call last):
            penstock.errors.TopologyError: ...
        """
        return Topology(self.name, tuple(self._streams), tuple(self._elements), tuple(self._sinks))

    def _repr_svg_(self) -> str | None:
        """Return the topology as an SVG picture for notebooks; None while the declarations do not fit together."""
        try:
            return svg(self.topology())
        except TopologyError:
            return None


def _asks_for_query(what: str, dialect: str) -> bool:
    """Whether the dialect is the one that Spark plans.

    Raises:
        TopologyError: windows and joins cannot be declared in this dialect.
    """
    if dialect not in get_args(WordsOf):
        raise TopologyError(f"{what}: dialect={dialect!r}; choose {', '.join(get_args(WordsOf))}.")
    return dialect == "query"


def _one_each(within: Interval | Sequence[Interval], rights: Sequence[Stream[Any]]) -> list[Interval]:
    """Return the interval of each right stream.

    Raises:
        TopologyError: there is no right stream, or the number of intervals is neither one nor that of the streams.
    """
    if not rights:
        raise TopologyError("A join has no stream on its right: name one, or several in a list.")
    intervals = [part for part in within if isinstance(part, tuple)] or [cast(Interval, within)]
    if len(intervals) not in (1, len(rights)) or any(len(interval) != 2 for interval in intervals):
        raise TopologyError(
            f"A join with {', '.join(stream.name for stream in rights)} has within={within!r}: give one interval, as "
            "('-1 min', '1 min'), or one for each in a list."
        )
    return intervals * (1 if len(intervals) == len(rights) else len(rights))
