"""A container: the instances of one keyed element that live in one partition."""

import typing
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np

from penstock.app.element import Element, InstanceContext, ProcessingElement, overrides
from penstock.app.stream import Stream
from penstock.errors import PenstockError, StateError
from penstock.runtime.emitter import Emitter
from penstock.runtime.letters import FAULTS
from penstock.runtime.lineage import LAST, NONE, SOURCE_SHIFT, Lineage, LineageColumns
from penstock.runtime.pages import Page, Pages, PageStore
from penstock.runtime.stage import Stage

State = TypeVar("State")

REARMED_AT_MOST = 1000
"""How often in one batch an instance may set its timer to a time that has passed already."""


class LateEventError(PenstockError):
    """An event came after the watermark had passed its time."""


class Instance(msgspec.Struct, Generic[State], array_like=True):
    """An instance as its page keeps it. Times are in seconds since the epoch."""

    state: State
    touched: float
    """When it last got an event, in processing time."""
    due: float | None = None
    """When its own timer fires."""
    interval: float | None = None
    """When its prototype's interval ends."""

    @property
    def next_due(self) -> float | None:
        """Its earliest timer."""
        return min((time for time in (self.due, self.interval) if time is not None), default=None)


class Container:
    """Handles a micro-batch's events for one element: instance by instance, in order of delivery.

    An event is applied wholly or not at all: if a hook raises, the instance is put back to what it
    was before, and the event becomes a dead letter.
    """

    def __init__(self, element: Element, stage: Stage, store: PageStore, now: float, watermark: float | None) -> None:
        assert element.prototype is not None
        self.element = element
        self.prototype: type[ProcessingElement] = element.prototype
        self._stage = stage
        self._tally = stage.tally.element(element.name)
        self._key = stage.wiring.keys[element.name]
        self._pages = Pages(element.name, store)
        self._context = InstanceContext(now, watermark, element.timers == "event")
        self._clock = now if element.timers == "processing" else watermark
        self._decode: Callable[[Any], Instance[Any]] = msgspec.msgpack.Decoder(Instance[self.prototype]).decode  # type: ignore[name-defined]
        self._encode = msgspec.msgpack.Encoder().encode
        self._plain_state, self._plain_types = _plain_fields(self.prototype)
        self._has_timers = overrides(self.prototype, "on_timer") or element.every is not None
        self._live: dict[bytes, Instance[Any]] = {}
        self._made: set[bytes] = set()
        """Instances that did not exist before this batch."""
        self._emitter = self._new_emitter(LineageColumns.uncaused([], 0))

    def handle(self, streams: list[Stream[Any]], events: list[Any], lineage: LineageColumns) -> None:
        """Apply events, which are in order, and call ``on_batch`` on the instances they touched.

        The lists and the columns are of one length: the stream by which each event came, the event,
        its lineage.
        """
        late = self._refuse_late(streams, events, lineage)
        self._emitter = self._new_emitter(lineage.judged())
        batch = _Batch(self._key.identities(events), events, late)
        self._open_all(batch)
        live, context, identities = self._live, self._context, batch.identities
        collect, add, timers = self._emitter.collect, self._emitter.add, self._has_timers
        guarded: set[bytes] = set()
        """Instances of which an event has failed; from then on they are saved before each event."""
        for row in self._tally.timed(range(len(events))):
            if row in late:
                continue
            identity = identities[row]
            entry = live[identity]
            if timers:
                context.due = entry.due
            before = self._encode(entry) if identity in guarded else None
            try:
                emissions = collect(entry.state.on_event(events[row]))
            except FAULTS as error:
                if before is not None:
                    self._adopt(identity, entry.state.key, self._decode(before))
                else:
                    self._replay(identity, batch, row)
                    guarded.add(identity)
                batch.failed.add(row)
                self._stage.letters.bury(self.element.name, streams[row], events[row], error, lineage.row(row))
                continue
            if timers:
                entry.due = context.due
            if emissions:
                add(emissions, row)
        self._finish_batch(batch, lineage)

    def _finish_batch(self, batch: "_Batch", lineage: LineageColumns) -> None:
        """Note which instances were touched, and call ``on_batch`` on them."""
        last = batch.last_rows()
        calls_back = overrides(self.prototype, "on_batch")
        for identity in self._made - last.keys():  # made for events of which none could be applied
            self._forget(identity)
        now, context, collect = self._context.now, self._context, self._emitter.collect
        born = lineage.born.tolist()
        for identity, row in last.items():
            entry = self._live[identity]
            entry.touched = now
            if not calls_back:
                continue
            context.due = entry.due
            try:
                emissions = collect(entry.state.on_batch())
            except FAULTS as error:
                self._replay(identity, batch, len(batch.events))
                self._bury(error, born[row])
                continue
            entry.due = context.due
            if emissions:
                self._emitter.add_uncaused(emissions, born[row])

    def finish(self) -> float | None:
        """Fire what is due, write the state, route what was emitted.

        Returns the time at which a timer of this container is next due, if there is one.
        """
        self._fire()
        self._note_timers()
        self._sweep()
        self._check_state()
        self._tally.instances[self._stage.tally.partition] = self._pages.header.instances
        self._pages.flush(self._key.hashes)
        for batch in self._emitter.batches():
            self._stage.route(batch)
        return min(self._pages.header.due.values(), default=None)

    def _new_emitter(self, causes: LineageColumns) -> Emitter:
        return Emitter(self.element, self._stage.wiring, causes, self._stage.tally.partition)

    # --- instances ------------------------------------------------------------------------------

    def _open_all(self, batch: "_Batch") -> None:
        """Bring to life the instance of every event: read from its page, or made on first use."""
        first = batch.first_rows()
        identities = list(first)
        numbers = self._pages.numbers(self._key.hashes(identities)).tolist()
        value, events, header = self._key.value, batch.events, self._pages.header
        for identity, number in zip(identities, numbers, strict=True):
            page = self._pages.page(number)
            stored = page.get(identity)
            if stored is None:
                header.instances += 1
                self._made.add(identity)
            page[identity] = entry = self._revive(stored)
            self._adopt(identity, value(events[first[identity]]), entry, page)

    def _revive(self, stored: Any) -> Instance[Any]:
        """An instance from what its page holds of it, if anything, and it has not expired."""
        entry = None if stored is None else self._decode(stored)
        if entry is None or self._expired(entry):
            every, clock = self.element.every, self._clock
            interval = None if every is None else ((clock or 0.0) // every + 1) * every
            entry = Instance(self.prototype(), self._context.now, None, interval)
        return entry

    def _adopt(self, identity: bytes, key: Any, entry: Instance[Any], page: Page | None = None) -> None:
        """Make an entry the living one of its instance."""
        entry.state.key = key
        entry.state._context = self._context
        (self._page_of(identity) if page is None else page)[identity] = self._live[identity] = entry

    def _forget(self, identity: bytes) -> None:
        """Remove an instance for good."""
        self._live.pop(identity, None)
        del self._page_of(identity)[identity]
        self._pages.header.instances -= 1

    def _expired(self, entry: Instance[Any]) -> bool:
        return self.element.expires is not None and entry.touched + self.element.expires <= self._context.now

    def _page_of(self, identity: bytes) -> Page:
        return self._pages.page(self._number(identity))

    def _number(self, identity: bytes) -> int:
        return int(self._pages.numbers(self._key.hashes([identity]))[0])

    def _replay(self, identity: bytes, batch: "_Batch", end: int) -> None:
        """Put an instance back to what it was: as stored, with this batch's events before a row applied again."""
        entry = self._revive(self._pages.stored(self._number(identity), identity))
        self._adopt(identity, self._live[identity].state.key, entry)
        for row in range(end):
            if batch.identities[row] == identity and row not in batch.failed:
                self._context.due = entry.due
                self._emitter.collect(entry.state.on_event(batch.events[row]))
                entry.due = self._context.due
        entry.touched = self._context.now

    def _bury(self, error: BaseException, born: int) -> None:
        """Keep the failure of a hook that no single event has called."""
        lineage = Lineage(born, NONE, LAST, self._stage.tally.partition)
        self._stage.letters.bury(self.element.name, self.element.inputs[0], None, error, lineage)

    def _refuse_late(self, streams: list[Stream[Any]], events: list[Any], lineage: LineageColumns) -> set[int]:
        """The rows of events that are late and whose sources' policies keep them from being handled."""
        watermark = self._context.watermark
        if watermark is None:
            return set()
        late = np.flatnonzero((lineage.time != NONE) & (lineage.time < watermark * 1e6)).tolist()
        self._tally.late += len(late)
        refused = set()
        for row in late:
            event_time = self._stage.wiring.topology.sources[int(lineage.minor[row]) >> SOURCE_SHIFT].event_time
            assert event_time is not None
            if event_time.late == "dead-letter":
                error = LateEventError(
                    f"the event is {watermark - lineage.time[row] / 1e6:.3f} s older than the watermark"
                )
                self._stage.letters.bury(self.element.name, streams[row], events[row], error, lineage.row(row))
            if event_time.late != "process":
                refused.add(row)
        return refused

    def _check_state(self) -> None:
        """Refuse, before anything is written, state that could not be read back.

        Raises
        ------
        StateError: names the element, the key and the field.
        """
        for identity, entry in self._live.items():
            if self._plain_state and tuple(map(type, self._plain_state(entry.state))) == self._plain_types:
                continue
            try:
                self._decode(self._encode(entry))
            except (msgspec.ValidationError, OverflowError, TypeError) as error:
                key = self._key.decode(identity)
                raise StateError(
                    f"Element {self.element.name}: the state of key {key!r} cannot be kept: {error} (index 0 is the state); "
                    "declare the field as what is assigned to it."
                ) from error

    # --- timers and expiry ----------------------------------------------------------------------

    def _fire(self) -> None:
        if not self._has_timers or self._clock is None:
            return
        for number in self._pages.due(self._clock):
            page = self._pages.page(number)
            for identity, stored in list(page.items()):
                if not isinstance(stored, Instance):
                    entry = self._decode(stored)
                    if self._expired(entry):
                        self._forget(identity)
                    else:
                        self._adopt(identity, self._key.decode(identity), entry, page)
        for _ in range(REARMED_AT_MOST):
            if not self._fire_once():
                return

    def _fire_once(self) -> bool:
        """Fire what is due, earliest first; whether there was anything."""
        assert self._clock is not None
        dues = [(entry.next_due, identity) for identity, entry in self._live.items() if entry.next_due is not None]
        ready = sorted((time, identity) for time, identity in dues if time <= self._clock)
        for _, identity in ready:
            entry = self._live[identity]
            if entry.due is not None and entry.due <= self._clock:
                entry.due = None
                self._call(identity, "on_timer")
            entry = self._live[identity]
            if entry.interval is not None and entry.interval <= self._clock:
                assert self.element.every is not None
                entry.interval = (self._clock // self.element.every + 1) * self.element.every
                self._call(identity, "on_interval")
        return bool(ready)

    def _call(self, identity: bytes, hook: str) -> None:
        """Call a hook that a timer causes, wholly or not at all."""
        entry = self._live[identity]
        before = self._encode(entry)
        self._context.due = entry.due
        try:
            emissions = self._emitter.collect(getattr(entry.state, hook)())
        except FAULTS as error:
            self._adopt(identity, entry.state.key, self._decode(before))
            self._bury(error, NONE)
        else:
            entry.due = self._context.due
            self._emitter.add_uncaused(emissions, NONE)

    def _note_timers(self) -> None:
        """Tell each page's header when the earliest of its timers is due."""
        if not self._has_timers:
            return
        visited = set() if self._clock is None else set(self._pages.due(self._clock))
        for number in visited:
            dues = (entry.next_due for entry in self._pages.page(number).values())
            self._pages.note_due(number, min((due for due in dues if due is not None), default=None), exact=True)
        numbers = self._pages.numbers(self._key.hashes(list(self._live))).tolist()
        for number, entry in zip(numbers, self._live.values(), strict=True):
            if number not in visited:
                self._pages.note_due(number, entry.next_due)

    def _sweep(self) -> None:
        """Drop expired instances from a few pages."""
        if self.element.expires is None:
            return
        for number in self._pages.next_to_sweep():
            page = self._pages.page(number)
            for identity, stored in list(page.items()):
                if identity not in self._live and self._expired(self._decode(stored)):
                    del page[identity]
                    self._pages.header.instances -= 1


def _plain_fields(prototype: type[ProcessingElement]) -> tuple[Callable[[Any], Any] | None, tuple[type, ...]]:
    """A reader of a prototype's state and the types it must find, where all fields are plain scalars."""
    names = prototype.__struct_fields__
    hints = typing.get_type_hints(prototype)
    kinds = tuple(hints[name] for name in names)
    if not names or not all(kind in (bool, int, float, str, bytes) for kind in kinds):
        return None, ()
    if len(names) == 1:
        return lambda state: (getattr(state, names[0]),), kinds
    return attrgetter(*names), kinds


class _Batch:
    """A micro-batch's events for one container, and which of them have not been applied."""

    def __init__(self, identities: Sequence[bytes], events: list[Any], late: set[int]) -> None:
        self.identities, self.events, self.late = identities, events, late
        self.failed = set(late)

    def first_rows(self) -> dict[bytes, int]:
        """For each instance the first event that is not late."""
        rows = range(len(self.identities) - 1, -1, -1)
        return {self.identities[row]: row for row in rows if row not in self.late}

    def last_rows(self) -> dict[bytes, int]:
        """For each instance the last event that was applied; in the order of their first events."""
        if not self.failed:
            return dict(zip(self.identities, range(len(self.identities)), strict=True))
        return {identity: row for row, identity in enumerate(self.identities) if row not in self.failed}
