"""Processing elements (PEs): the classes and functions that users write, and their declarations."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from inspect import getattr_static
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import msgspec

from penstock.app.duration import Duration, seconds
from penstock.app.functions import check_function, is_asynchronous
from penstock.app.shape import untold
from penstock.app.spelling import did_you_mean
from penstock.app.states import check_states
from penstock.app.stream import Emission, Stream
from penstock.errors import StateError, TopologyError
from penstock.kinds.coding import msgpack_decoder
from penstock.kinds.event import Event

Dialect = Literal["event", "batch", "query"]
Emitted = Iterable[Emission] | Emission | None
Awaited = Awaitable[Emitted] | AsyncIterator[Emission]
"""What an asynchronous function returns."""

CONCURRENCY = 100
"""How many calls of an asynchronous element are under way at once in a task, unless it says otherwise."""
TIMEOUT_S = 60.0
"""How long one of them may take, unless the element says otherwise."""


class InstanceContext:
    """What an instance may know of its surroundings: the micro-batch's clock and its own timer.

    Times are in seconds since the epoch; ``due`` is when the timer of the instance now at work
    fires, or None; ``event_time`` says whether timers follow the watermark; ``fired`` is the watermark of the micro-batch
    before, by which timers have fired; ``late_in_part`` counts the events some of whose windows had closed.
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
        """A context for one instance alone, with its timer, while others are at work beside it."""
        own = InstanceContext(self.now, self.watermark, self.event_time, self.fired)
        own.due = due
        return own


class WindowContext:
    """What the state of a window may know of its surroundings: the clock and the watermark; its timer is its end."""

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
        """None: a window closes by itself."""

    @due.setter
    def due(self, due: float | None) -> None:
        raise TypeError("A window has no timer but its end: use an element without a window for set_timer and cancel_timer.")


class ProcessingElement(msgspec.Struct, dict=True):
    """A prototype of a PE: subclass it, annotate its state, give every field a default.

    One instance per key value is made on first use; its annotated fields are its state, kept and
    recovered by Spark's state store. Override the hooks you need. Each may yield emissions,
    return one, or return nothing.

    >>> class Counter(ProcessingElement):
    ...     seen: int = 0
    ...     def on_event(self, event):
    ...         self.seen += 1
    >>> Counter()
    Counter(seen=0)
    """

    key: ClassVar[Any] = None
    window: ClassVar[Any] = None
    """The window that a hook is called for, where the prototype is declared with one; see `penstock.app.window.Window`."""
    _context: ClassVar[Any] = None

    def on_event(self, event: Any) -> Emitted | Awaited:
        """Called for each event, in the order in which the source delivered those of this key.

        It may be ``async``: then instances are at work side by side, each with one event at a time.
        """

    def on_batch(self) -> Emitted:
        """Called once per micro-batch, after its events, for each instance that they touched."""

    def on_timer(self) -> Emitted:
        """Called when the timer that this instance set has come due."""

    def on_interval(self) -> Emitted:
        """Called for every live instance once per interval, where the prototype declares ``every``."""

    def on_close(self) -> Emitted:
        """Called when the watermark has passed the end of a window; declared with ``window=``."""

    def on_late(self, event: Any) -> Emitted:
        """Called for an event of a window that has closed and is still kept; ``on_event``, then ``on_close``, unless given."""

    def merge(self, other: Any) -> None:
        """Take in the state of another part of the same window, which comes after this one."""

    @classmethod
    def migrate(cls, old: dict[str, Any]) -> "ProcessingElement":
        """Make today's state of what an earlier version of this class has stored and this one cannot read; a `classmethod`.

        Called for each instance when it is touched first, so it stays in the class as long as the run goes on.

        Parameters
        ----------
        old: the stored fields by the names that are stored (of ``rename=``, the encoded ones), whichever version has stored
            them. Those that this class has, too, and reads, are of its types; the others as MessagePack has them: texts for
            decimals, UUIDs and durations, lists for sets and tuples, dicts for events; one that cannot be had without its type
            (a dict whose keys are events) is absent. What is put into a field so is read as the field's type.
        """
        raise NotImplementedError

    @property
    def now(self) -> datetime:
        """The micro-batch's processing time; the same when a batch is replayed after a crash."""
        return datetime.fromtimestamp(self._context.now, UTC)

    @property
    def watermark(self) -> datetime | None:
        """The event time before which no more events are awaited; None before the first one."""
        mark = self._context.watermark
        return None if mark is None else datetime.fromtimestamp(mark, UTC)

    def set_timer(self, *, at: datetime | None = None, after: Duration | None = None) -> None:
        """Ask for ``on_timer`` at a time, or after a duration from now; replaces an earlier request.

        In a prototype with ``timers="event"`` the time is compared with the watermark, so only
        ``at`` has a meaning there.
        """
        if at is not None and after is None:
            at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
            self._context.due = at.timestamp()
        elif after is not None and at is None and not self._context.event_time:
            self._context.due = self._context.now + seconds(after)
        else:
            raise TypeError("set_timer takes at=, or (with timers on processing time) after=, and not both.")

    def cancel_timer(self) -> None:
        """Forget the timer that this instance set, if any."""
        self._context.due = None


HOOKS = ("on_event", "on_batch", "on_timer", "on_interval")
WINDOW_HOOKS = ("on_event", "on_batch", "on_close", "on_late", "merge")
"""Those of a prototype that is declared with a window, whose timer is the window's."""


def overrides(prototype: type[ProcessingElement], hook: str) -> bool:
    """Whether a prototype has its own body for a hook."""
    own, plain = getattr(prototype, hook), getattr(ProcessingElement, hook)
    return getattr(own, "__func__", own) is not getattr(plain, "__func__", plain)  # of a class method, too


@runtime_checkable
class Prepared(Protocol):
    """A body that has something to do before each micro-batch."""

    def prepare(self) -> None:
        """Called before the events of a micro-batch, and before a run."""


@dataclass(frozen=True)
class Element:
    """The declaration of a PE: what it consumes, emits, and is keyed by."""

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
    """The fields of an instance, where they are kept in columns (a keyed element of the batch dialect)."""
    on_timer: Callable[[Any], Any] | None = None
    """Called with the instances whose timers are due, where they are kept in columns."""
    window: Any = None
    """Its `penstock.app.window.Windowing`, or None."""
    ordered: bool = False
    """Whether its events are handed on in the order of their times."""
    note: str = ""
    """What a drawing says of it besides its key: its windows, or what it joins."""
    concurrency: int = 1
    """How many of its calls are under way at once in a task, at most."""
    timeout: float | None = None
    """How long one of them may take, in seconds; None where it is not asynchronous."""

    @property
    def keyed(self) -> bool:
        """Whether events reach this PE by key."""
        return bool(self.key)

    @property
    def asynchronous(self) -> bool:
        """Whether its calls are awaited, many at once."""
        return self.timeout is not None

    @property
    def judges_lateness(self) -> bool:
        """Whether its windows, or the order of its events, say which events are late, and not the watermark alone."""
        return self.ordered or (self.window is not None and self.window.timed)

    @property
    def waits_for_watermark(self) -> bool:
        """Whether it has timers on event time, which windows and joins are made of, too."""
        return self.has_timers and self.timers == "event"

    @property
    def has_timers(self) -> bool:
        """Whether its instances may be called without an event."""
        if self.prototype is None:
            return self.on_timer is not None
        return overrides(self.prototype, "on_timer") or self.every is not None

    def prepare(self) -> None:
        """What comes before the events of a micro-batch, and before a run: a static table is read.

        Raises
        ------
        SourceError: it cannot be read.
        """
        if self.prototype is None and isinstance(self.body, Prepared):
            self.body.prepare()

    @property
    def prototype(self) -> type[ProcessingElement] | None:
        """The class from which instances are made, or None where the body is a function."""
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
    """Check one PE by itself and declare it; what concerns its neighbours `Topology` checks."""
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
    """An element with the bounds of its calls, where they are asynchronous."""
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
    """Hooks are called as they are documented, and what looks like a hook is one."""
    name, prototype = element.name, element.prototype
    if prototype is None:
        given, what = _handed(element)
        may_wait = element.dialect == "event"
        check_function(element.body, given, f"Element {name}", f"it must accept {what}", awaited=may_wait)
        if element.on_timer is not None:
            check_function(element.on_timer, 1, f"Element {name}: on_timer", "it must accept the states that are due")
        return
    for hook, given, example in (
        ("on_event", 2, "def on_event(self, event)"),
        ("on_batch", 1, "def on_batch(self)"),
        ("on_timer", 1, "def on_timer(self)"),
        ("on_interval", 1, "def on_interval(self)"),
    ):
        if overrides(prototype, hook):
            awaited = hook == "on_event"
            check_function(
                getattr(prototype, hook), given, f"Element {name}: {hook}", f"write it as {example}", awaited=awaited
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
    """Refuse a ``migrate`` that would never be called.

    Raises
    ------
    TopologyError: names the element.
    """
    if overrides(body, "migrate"):
        raise TopologyError(f"Element {name} has migrate, which would never be called: {what} is kept as it is; leave it out.")


def check_cases(element: Element) -> None:
    """Refuse fields that differ in case alone where Spark plans: it takes them for one.

    Raises
    ------
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
    """With how many arguments the function of an element is called, and what they are."""
    several = len(element.inputs)
    match element.dialect:
        case "query":
            return several, f"{several} DataFrames"  # one for each stream
        case "batch" if element.keyed:
            return 3, "a RecordBatch, the places of its instances, and their states"
        case "batch":
            return 1, "a RecordBatch"
        case _:
            return 1, "the event"


def check_methods(name: str, prototype: type[ProcessingElement], hooks: Sequence[str]) -> None:
    """Refuse a method that looks like a hook and is none.

    Raises
    ------
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
    """Refuse a prototype whose state cannot be kept.

    Raises
    ------
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
    annotated = {name for base in prototype.__mro__ for name in vars(base).get("__annotations__", ())}
    for name, value in vars(prototype).items():
        plain = not (name.startswith("_") or name in prototype.__struct_fields__ or hasattr(type(value), "__get__"))
        if plain and name not in annotated and not isinstance(value, type):
            raise StateError(
                f"Element {element.name}: {name!r} has a value but no type; annotate it, as `{name}: {type(value).__name__} = "
                f"{value!r}`, to make it state, or ClassVar[...] to make it a constant."
            )
    try:
        fields = msgspec.structs.fields(prototype)
        msgpack_decoder(prototype)
    except (TypeError, NameError) as error:
        raise StateError(f"Element {element.name}: its state cannot be kept: {error}") from error
    for field in fields:
        if field.required:
            raise StateError(
                f"Element {element.name}: state {field.name!r} has no default; an instance is made on first use, "
                f"so give it one, as `{field.name}: ... = 0`."
            )
        missing = untold(field.type)
        if missing is not None:
            raise StateError(
                f"Element {element.name}: state {field.name!r} holds {missing}, which would not come back as it was stored "
                "(an event "
                "as a dict, a Decimal as a text): say what it holds by types that are kept, as list[float] or dict[str, "
                "Decimal]."
            )
