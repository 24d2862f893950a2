"""Processing elements (PEs): the base class of the users' classes, and the declaration of an element."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from inspect import getattr_static
from typing import Any, ClassVar, Literal, Protocol, get_origin, runtime_checkable

import msgspec

from penstock.app.duration import Duration, seconds
from penstock.app.functions import check_function, is_asynchronous
from penstock.app.shape import untold
from penstock.app.spelling import did_you_mean
from penstock.app.states import check_states
from penstock.app.stream import Emission, Stream
from penstock.errors import StateError, TopologyError
from penstock.kinds.annotations import plain
from penstock.kinds.coding import msgpack_decoder
from penstock.kinds.event import Event
from penstock.kinds.moments import moment, whole

Dialect = Literal["event", "batch", "query"]
Emitted = Iterable[Emission] | Emission | None
Awaited = Awaitable[Emitted] | AsyncIterator[Emission]
"""The return type of an asynchronous body."""

CONCURRENCY = 100
"""Default number of concurrent calls of an asynchronous element in a task."""
TIMEOUT_S = 60.0
"""Default time limit of one call of an asynchronous element, in seconds."""


class InstanceContext:
    """The surroundings that an instance can see: the micro-batch's clock and watermark, and the instance's own timer.

    Times are in seconds since the epoch. ``due`` is when the timer of the current instance fires, or None. ``event_time`` says
    whether timers follow the watermark. ``fired`` is the watermark of the previous micro-batch, up to which timers have fired.
    ``late_in_part`` counts the events for which some windows, but not all, had closed.
    """

    __slots__ = ("due", "event_time", "fired", "late_in_part", "now", "watermark", "windowed")

    def __init__(self, now: float, watermark: float | None, event_time: bool, fired: float | None = None) -> None:
        self.now = now
        self.watermark = watermark
        self.event_time = event_time
        self.fired = fired
        self.due: float | None = None
        self.late_in_part = 0
        self.windowed = WindowContext(self)

    def of_its_own(self, due: float | None) -> "InstanceContext":
        """Return a separate context for one instance, with its timer; needed while several instances run concurrently."""
        own = InstanceContext(self.now, self.watermark, self.event_time, self.fired)
        own.due = due
        return own


class WindowContext:
    """The surroundings that a window's state can see: the clock and the watermark. Its only timer is the window's end."""

    __slots__ = ("_context",)

    def __init__(self, context: InstanceContext) -> None:
        self._context = context

    @property
    def now(self) -> float:
        return self._context.now

    @property
    def watermark(self) -> float | None:
        return self._context.watermark

    @property
    def event_time(self) -> bool:
        return True

    @property
    def due(self) -> None:
        """None, as a window has no timer of its own: it closes by itself."""

    @due.setter
    def due(self, due: float | None) -> None:
        raise TypeError("A window has no timer but its end: use an element without a window for set_timer and cancel_timer.")


class ProcessingElement(msgspec.Struct, dict=True):
    """A prototype of a PE: subclass it, annotate its state, give every field a default.

    One instance per key value is made on first use. Its annotated fields are its state, which Spark's state store keeps and
    recovers. Override the hooks you need. Each may yield emissions, return one, or return nothing.

    >>> class Counter(ProcessingElement):
    ...     seen: int = 0
    ...     def on_event(self, event):
    ...         self.seen += 1
    >>> Counter()
    Counter(seen=0)
    """

    key: ClassVar[Any] = None
    window: ClassVar[Any] = None
    """The window that the current hook call is for, if the element has windows; see `penstock.app.window.Window`."""
    _context: ClassVar[Any] = None

    @classmethod
    def _stored_as(cls) -> type[Any]:
        """Return the type that says what stored state holds. Some prototypes leave a part of it encoded until it is needed."""
        return cls

    def on_event(self, event: Any) -> Emitted | Awaited:
        """Called for each event of the instance's key, in the order of delivery by the source.

        It may be ``async``: then instances run concurrently, each with one event at a time.
        """

    def on_batch(self) -> Emitted:
        """Called once per micro-batch, after its events, for each instance that got an event."""

    def on_timer(self) -> Emitted:
        """Called when the timer that this instance has set is due."""

    def on_interval(self) -> Emitted:
        """Called for every live instance once per interval, if the element is declared with ``every=``."""

    def on_close(self) -> Emitted:
        """Called when the watermark has passed the end of a window, if the element is declared with ``window=``."""

    def on_late(self, event: Any) -> Emitted:
        """Called for an event of a closed window that is still kept. By default ``on_event``, then ``on_close``, is called."""

    def merge(self, other: Any) -> None:
        """Merge into this state that of a later part of the same window."""

    @classmethod
    def migrate(cls, old: dict[str, Any]) -> "ProcessingElement":
        """Convert state that an earlier version of this class has stored, and this version cannot read; a `classmethod`.

        It is called for each instance when that is first used, so keep it in the class as long as the run goes on.

        Args:
            old: the stored fields by their stored names (with ``rename=``, the encoded ones), whichever version stored them.
                Fields that this class also has, and can read, have its types. The others are as in MessagePack: texts for
                decimals, UUIDs and durations, lists for sets and tuples, dicts for events. A field that cannot be decoded
                without its type (a dict whose keys are events) is absent. Such plain values may be put into fields: they are
                read as the field's type.
        """
        raise NotImplementedError

    @property
    def _own_context(self) -> InstanceContext:
        """The context of this instance.

        Raises:
            TypeError: it has none, as it has no key, or is being made.
        """
        if self._context is None:
            raise TypeError(
                f"{type(self).__name__} has no clock, watermark or timer here: the hooks of elements with a key have; "
                "declare it with key=."
            )
        context: InstanceContext = self._context
        return context

    @property
    def now(self) -> datetime:
        """The micro-batch's processing time, UTC; unchanged when the micro-batch is replayed after a crash."""
        return datetime.fromtimestamp(self._own_context.now, UTC)

    @property
    def watermark(self) -> datetime | None:
        """The watermark: the event time before which no more events are expected; None before the first event.

        Once the input has ended it is the year 9000, which is after all events.
        """
        mark = self._own_context.watermark
        return None if mark is None else min(moment(whole(mark)), ENDED)

    def set_timer(self, *, at: datetime | None = None, after: Duration | None = None) -> None:
        """Request a call of ``on_timer`` at a time, or a duration after now. It replaces an earlier request.

        With ``timers="event"`` the time is compared with the watermark, so only ``at`` is allowed. Once the input has
        ended, a time after its end, as a timer asks for that always sets itself again, never comes.
        """
        if at is not None and after is None:
            at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
            has_ended = self._own_context.event_time and self.watermark == ENDED
            self._own_context.due = None if has_ended and at >= ENDED else at.timestamp()
        elif after is not None and at is None and not self._own_context.event_time:
            self._own_context.due = round((self._own_context.now + seconds(after)) * 1e6) / 1e6
        else:
            raise TypeError("set_timer takes one of at= and after=; an element whose timers go by event time takes at= alone.")

    def cancel_timer(self) -> None:
        """Cancel the timer that this instance has set, if any."""
        self._own_context.due = None


ENDED = datetime(9000, 1, 1, tzinfo=UTC)
"""What hooks see as the watermark once the input has ended; early enough that a time after it can be computed."""
HOOKS = ("on_event", "on_batch", "on_timer", "on_interval")
WINDOW_HOOKS = ("on_event", "on_batch", "on_close", "on_late", "merge")
"""The hooks of a class that is declared with a window. It has no timer hooks, as its timer is the window's end."""


def overrides(prototype: type[ProcessingElement], hook: str) -> bool:
    """Whether a prototype overrides a hook of `ProcessingElement`."""
    own, plain = getattr(prototype, hook), getattr(ProcessingElement, hook)
    return getattr(own, "__func__", own) is not getattr(plain, "__func__", plain)  # unwraps class methods


@runtime_checkable
class Prepared(Protocol):
    """An element's body that must be prepared before each micro-batch."""

    def prepare(self) -> None:
        """Called before a run starts, and before the events of each micro-batch."""


@dataclass(frozen=True)
class Element:
    """The declaration of a PE: its body, the streams that it consumes and emits into, and its key."""

    name: str
    body: Any
    dialect: Dialect
    inputs: tuple[Stream[Any], ...]
    emits: tuple[Stream[Any], ...]
    key: tuple[str, ...]
    every: float | None = None
    expires: float | None = None
    timers: Literal["processing", "event"] = "processing"
    state: type[Event] | None = None
    """The fields of an instance's state, for a keyed element of the batch dialect, whose state is kept in columns."""
    on_timer: Callable[[Any], Any] | None = None
    """Called with the states of the instances whose timers are due, where state is kept in columns."""
    window: Any = None
    """The `penstock.app.window.Windowing`, or None."""
    ordered: bool = False
    """Whether the events of a key are processed in the order of their event times."""
    note: str = ""
    """A text for drawings, besides the key: the windows, or the kind of join."""
    concurrency: int = 1
    """The greatest number of concurrent calls in a task."""
    timeout: float | None = None
    """The time limit of a call, in seconds; None if the element is not asynchronous."""

    @property
    def keyed(self) -> bool:
        """Whether events are distributed to instances by key."""
        return bool(self.key)

    @property
    def asynchronous(self) -> bool:
        """Whether the body is asynchronous, so that many calls are awaited at once."""
        return self.timeout is not None

    @property
    def judges_lateness(self) -> bool:
        """Whether its windows or its ordering decide which events are late, rather than the watermark alone."""
        return self.ordered or (self.window is not None and self.window.timed)

    @property
    def waits_for_watermark(self) -> bool:
        """Whether it has event-time timers; windows and joins have them, too."""
        return self.has_timers and self.timers == "event"

    @property
    def has_timers(self) -> bool:
        """Whether its instances may be called without an event, by a timer or an interval."""
        if self.prototype is None:
            return self.on_timer is not None
        return overrides(self.prototype, "on_timer") or self.every is not None

    def prepare(self) -> None:
        """Prepare the body before a run, and before the events of a micro-batch: a lookup reads its static table.

        Raises:
            SourceError: the table cannot be read.
        """
        if self.prototype is None and isinstance(self.body, Prepared):
            self.body.prepare()

    @property
    def prototype(self) -> type[ProcessingElement] | None:
        """The class that instances are made from, or None if the body is a function."""
        return self.body if isinstance(self.body, type) else None


def declare(
    body: Any,
    dialect: Dialect,
    inputs: Stream[Any] | Sequence[Stream[Any]],
    emits: Stream[Any] | Sequence[Stream[Any]],
    *,
    key: str | Sequence[str] | None = None,
    name: str | None = None,
    every: Duration | None = None,
    expires: Duration | None = None,
    timers: Literal["processing", "event"] = "processing",
    state: type[Event] | None = None,
    on_timer: Callable[[Any], Any] | None = None,
    concurrency: int | None = None,
    timeout: Duration | None = None,
) -> Element:
    """Return the declaration of a PE, checked by itself; `Topology` checks how it fits with its neighbours."""
    label = name or getattr(body, "__name__", None)
    if label is None:
        raise TopologyError(f"The element {body!r} has no name: pass name='...'.")
    element = Element(
        name=label,
        body=body,
        dialect=dialect,
        inputs=_streams(label, "inputs", inputs),
        emits=_streams(label, "emits", emits),
        key=(key,) if isinstance(key, str) else tuple(key or ()),
        every=None if every is None else seconds(every),
        expires=None if expires is None else seconds(expires),
        timers=timers,
        state=state,
        on_timer=on_timer,
    )
    if not element.inputs:
        raise TopologyError(f"Element {label} listens to no stream: name at least one.")
    _check_body(element)
    check_state(element)
    return _awaiting(element, concurrency, timeout)


def _awaiting(element: Element, concurrency: int | None, timeout: Duration | None) -> Element:
    """Return the element with its concurrency and time limit set, if it is asynchronous; refuse them otherwise."""
    call = element.body if element.prototype is None else element.prototype.on_event
    if not is_asynchronous(call):
        if concurrency is None and timeout is None:
            return element
        raise TopologyError(
            f"Element {element.name}: concurrency= and timeout= are bounds of asynchronous calls, and it makes none: write "
            "async def, or leave them out."
        )
    at_once = CONCURRENCY if concurrency is None else concurrency
    longest = TIMEOUT_S if timeout is None else seconds(timeout)
    if at_once < 1:
        raise TopologyError(f"Element {element.name}: concurrency={at_once} lets no call begin: at least 1.")
    if not longest:
        raise TopologyError(f"Element {element.name}: timeout= must be longer than zero.")
    note = f"async, {at_once} at once, {longest:g} s each"
    return replace(element, concurrency=at_once, timeout=longest, note=note)


def _streams(element: str, role: str, given: Any) -> tuple[Stream[Any], ...]:
    streams = tuple(given) if isinstance(given, list | tuple) else (given,)
    for stream in streams:
        if not isinstance(stream, Stream):
            raise TopologyError(
                f"Element {element}: {role} holds {stream!r}, which is no stream; make one with app.stream(...) "
                "or app.source(...)."
            )
    return streams


def _check_body(element: Element) -> None:
    name, prototype = element.name, element.prototype
    if prototype is not None and not issubclass(prototype, ProcessingElement):
        raise TopologyError(f"Element {name} is a class: derive it from ProcessingElement, or write a function.")
    if prototype is None and not callable(element.body):
        raise TopologyError(f"Element {name} is neither a function nor a ProcessingElement.")
    if element.keyed and prototype is None and element.dialect == "event":
        raise TopologyError(
            f"Element {name} has a key but is a function: write it as a class derived from ProcessingElement, "
            "so that each key value has an instance."
        )
    if element.dialect != "event" and prototype is not None:
        raise TopologyError(f"Element {name}: the {element.dialect} dialect takes a plain function, not a class.")
    if element.dialect != "event" and len(element.emits) != 1:
        raise TopologyError(f"Element {name}: the {element.dialect} dialect emits into exactly one stream.")
    if element.dialect == "batch":
        check_states(element)
    _check_hooks(element)
    if prototype is not None and not any(overrides(prototype, hook) for hook in HOOKS):
        raise TopologyError(f"Element {name} does nothing: give it one of {', '.join(HOOKS)}.")
    if element.timers not in ("processing", "event"):
        raise TopologyError(f"Element {name}: timers={element.timers!r}; choose 'processing' or 'event'.")
    if not element.keyed and (element.every is not None or element.expires is not None):
        raise TopologyError(f"Element {name}: every= and expires= need a key, for they concern its instances.")
    if prototype is not None and not element.keyed:
        for hook in ("on_timer", "on_interval"):
            if overrides(prototype, hook):
                raise TopologyError(f"Element {name} has {hook} but no key: timers belong to keyed instances.")
    if element.every is not None and (prototype is None or not overrides(prototype, "on_interval")):
        raise TopologyError(f"Element {name} declares every= but has no on_interval to call.")
    if element.every == 0:
        raise TopologyError(f"Element {name}: every= must be longer than zero.")
    if element.every is None and prototype is not None and overrides(prototype, "on_interval"):
        raise TopologyError(f"Element {name} has on_interval but no every=: say how often, as every='10 s'.")


def _check_hooks(element: Element) -> None:
    """Check that the body and its hooks can be called with their arguments, and that no method is a misspelt hook."""
    name, prototype = element.name, element.prototype
    if prototype is None:
        arguments, what = _handed(element)
        may_wait = element.dialect == "event"
        check_function(element.body, arguments, f"Element {name}", f"it must accept {what}", awaited=may_wait)
        if element.on_timer is not None:
            check_function(element.on_timer, 1, f"Element {name}: on_timer", "it must accept the states that are due")
        return
    for hook, arguments, example in (
        ("on_event", 2, "def on_event(self, event)"),
        ("on_batch", 1, "def on_batch(self)"),
        ("on_timer", 1, "def on_timer(self)"),
        ("on_interval", 1, "def on_interval(self)"),
    ):
        if overrides(prototype, hook):
            awaited = hook == "on_event"
            check_function(
                getattr(prototype, hook), arguments, f"Element {name}: {hook}", f"write it as {example}", awaited=awaited
            )
    check_methods(name, prototype, HOOKS)
    if overrides(prototype, "migrate"):
        if not isinstance(getattr_static(prototype, "migrate"), classmethod):
            raise TopologyError(
                f"Element {name}: migrate makes an instance, so there is none yet: write it as @classmethod def migrate(cls, "
                "old)."
            )
        check_function(prototype.migrate, 1, f"Element {name}: migrate", "write it as def migrate(cls, old)")


def refuse_migrate(name: str, body: type[ProcessingElement], what: str) -> None:
    """Refuse a class that has a ``migrate`` which would never be called.

    Raises:
        TopologyError: names the element.
    """
    if overrides(body, "migrate"):
        raise TopologyError(f"Element {name} has migrate, which would never be called: {what} is kept as it is; leave it out.")


def check_cases(element: Element) -> None:
    """Refuse fields whose names differ only in case, in an element that Spark plans: it does not tell them apart.

    Raises:
        TopologyError: names the element and the fields.
    """
    for stream in (*element.inputs, *element.emits):
        by_case: dict[str, str] = {}
        for field in stream.event_type.__struct_fields__:
            other = by_case.setdefault(field.lower(), field)
            if other != field:
                raise TopologyError(
                    f"Element {element.name}: {other} and {field} of {stream.event_type.__name__} differ in case alone, and "
                    "Spark, which plans the query dialect, takes them for one: rename one of them, or use another dialect."
                )


def _handed(element: Element) -> tuple[int, str]:
    """Return the number of arguments that an element's function is called with, and a description of them."""
    several = len(element.inputs)
    match element.dialect:
        case "query":
            return several, f"{several} DataFrames"  # one for each input stream
        case "batch" if element.keyed:
            return 3, "a RecordBatch, the places of its instances, and their states"
        case "batch":
            return 1, "a RecordBatch"
        case _:
            return 1, "the event"


def check_methods(name: str, prototype: type[ProcessingElement], hooks: Sequence[str]) -> None:
    """Refuse a method whose name looks like that of a hook, but is not one of the given hooks.

    Raises:
        TopologyError: names the element and the method.
    """
    for method in vars(prototype):
        if method in WINDOW_HOOKS[2:4] and method not in hooks:
            raise TopologyError(f"Element {name} has {method} but no window to close: add window=, as window=Tumbling('10 s').")
        meant = did_you_mean(method, hooks)
        if method not in hooks and callable(getattr(prototype, method)) and (meant or method.startswith("on_")):
            raise TopologyError(
                f"Element {name} has {method}, which is no hook and would never be called"
                f"{meant or '; there are ' + ', '.join(hooks) + '.'}"
            )


def check_state(element: Element) -> None:
    """Refuse a prototype whose state could not be stored and read back.

    Raises:
        StateError: names the element and the field.
    """
    prototype = element.prototype
    if prototype is None:
        return
    if prototype.__struct_fields__ and not element.keyed:
        raise StateError(
            f"Element {element.name} declares state ({', '.join(prototype.__struct_fields__)}) but has no key: "
            "add key='field' so that each key value has its own, or drop the state."
        )
    for taken in {"key", "_context"} & set(prototype.__struct_fields__):
        raise StateError(f"Element {element.name}: self.{taken} is Penstock's own: give the state another name.")
    # A field without an annotation would be a class attribute, which all instances share and no store keeps.
    annotated = {name for base in prototype.__mro__ for name in vars(base).get("__annotations__", ())}
    for name, value in vars(prototype).items():
        plain = not (name.startswith("_") or name in prototype.__struct_fields__ or hasattr(type(value), "__get__"))
        if plain and name not in annotated and not isinstance(value, type):
            raise StateError(
                f"Element {element.name}: {name!r} has a value but no type; annotate it, as `{name}: {type(value).__name__} = "
                f"{value!r}`, to make it state, or ClassVar[...] to make it a constant."
            )
    try:
        fields = msgspec.structs.fields(prototype._stored_as())
        msgpack_decoder(prototype)
    except (TypeError, NameError) as error:
        raise StateError(f"Element {element.name}: its state cannot be kept: {error}") from error
    for field in fields:
        if field.required:
            raise StateError(
                f"Element {element.name}: state {field.name!r} has no default; an instance is made on first use, "
                f"so give it one, as `{field.name}: ... = 0`."
            )
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        if _is_derived(default, field.type):
            raise StateError(
                f"Element {element.name}: the default of state {field.name!r} is a {type(default).__name__}, which would come "
                f"back as a {getattr(field.type, '__name__', field.type)}: give it one."
            )
        missing = untold(field.type)
        if missing is not None:
            raise StateError(
                f"Element {element.name}: state {field.name!r} holds {missing}, which would not come back as it was stored "
                "(an event "
                "as a dict, a Decimal as a text): say what it holds by types that are kept, as list[float] or dict[str, "
                "Decimal]."
            )


def _is_derived(value: Any, annotation: Any) -> bool:
    """Whether a value with parts is of a class that is derived from the one that an annotation names."""
    kind = plain(annotation)
    named = get_origin(kind) or kind
    parts = isinstance(value, list | dict | set | msgspec.Struct) and isinstance(named, type)
    return parts and isinstance(value, named) and type(value) is not named
