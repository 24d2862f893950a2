"""A container: the instances of one keyed element that live in one partition."""

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import msgspec

from penstock.app.element import Element, InstanceContext, ProcessingElement, overrides
from penstock.app.stream import Stream
from penstock.errors import PenstockError
from penstock.runtime.lineage import LAST, NONE, SOURCE_SHIFT, Lineage
from penstock.runtime.pages import Page, Pages, PageStore
from penstock.runtime.stage import Emitter, Stage

State = TypeVar("State")


class LateEventError(PenstockError):
    """An event came after the watermark had passed its time."""


class Entry(msgspec.Struct, Generic[State], array_like=True):
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
        self._key = stage.plan.keys[element.name]
        self._pages = Pages(element.name, store)
        self._context = InstanceContext(now, watermark, element.timers == "event")
        self._clock = now if element.timers == "processing" else watermark
        self._decode: Callable[[Any], Entry[Any]] = msgspec.msgpack.Decoder(Entry[self.prototype]).decode  # type: ignore[name-defined]
        self._encode = msgspec.msgpack.Encoder().encode
        self._has_timers = overrides(self.prototype, "on_timer") or element.every is not None
        self._live: dict[bytes, Entry[Any]] = {}
        self._newest: dict[bytes, int] = {}
        """For each instance touched by events, the birth of the last of them."""
        self._emitter = Emitter(element, stage.plan)

    def handle(self, streams: list[Stream[Any]], events: list[Any], lineages: list[Lineage]) -> None:
        """Apply events, which are in order, and call ``on_batch`` on the instances they touched.

        The three lists are of one length: the stream by which each event came, the event, its lineage.
        """
        identities = list(map(self._key.identity, events))
        failed: set[int] = set()
        guarded: set[bytes] = set()
        """Instances of which an event has failed; from then on they are saved before each event."""
        live, newest, context = self._live, self._newest, self._context
        collect, add, timers = self._emitter.collect, self._emitter.add, self._has_timers
        for index in self._tally.timed(range(len(events))):
            identity, event, lineage = identities[index], events[index], lineages[index]
            if lineage.time != NONE and self._refuse_late(streams[index], event, lineage):
                failed.add(index)
                continue
            entry = live.get(identity)
            if entry is None:
                entry = self._open(identity, self._key.value(event))
            if timers:
                context.due = entry.due
            before = self._encode(entry) if identity in guarded else None
            try:
                emissions = collect(entry.state.on_event(event))
            except Exception as error:
                if before is not None:
                    self._restore(identity, before)
                else:
                    earlier = (events[i] for i in range(index) if identities[i] == identity and i not in failed)
                    self._undo(identity, earlier)
                    guarded.add(identity)
                failed.add(index)
                self._stage.dead_letter(self.element.name, streams[index], event, error, lineage)
                continue
            if timers:
                entry.due = context.due
            newest[identity] = lineage.born
            if emissions:
                add(emissions, lineage if lineage.time == NONE else lineage._replace(time=NONE))
        if overrides(self.prototype, "on_batch"):
            for identity, born in newest.items():
                self._call(identity, "on_batch", Lineage(born, NONE, LAST, self._stage.tally.partition))

    def finish(self) -> float | None:
        """Fire what is due, write the state, route what was emitted.

        Returns the time at which a timer of this container is next due, if there is one.
        """
        for identity in self._newest:
            self._live[identity].touched = self._context.now
        self._fire()
        self._note_timers()
        self._sweep()
        self._tally.instances[self._stage.tally.partition] = self._pages.header.instances
        self._pages.flush(self._key.hash)
        for batch in self._emitter.batches():
            self._stage.route(batch)
        return min(self._pages.header.due.values(), default=None)

    # --- instances ------------------------------------------------------------------------------

    def _open(self, identity: bytes, key: Any) -> Entry[Any]:
        """The instance of a key, read from its page or made on first use."""
        page = self._pages.page(self._pages.number(self._key.hash(identity)))
        stored = page.get(identity)
        entry = self._decode(stored) if stored is not None else None
        if entry is None or self._expired(entry):
            if stored is None:
                self._pages.header.instances += 1
            entry = self._new_entry()
        self._adopt(page, identity, key, entry)
        return entry

    def _new_entry(self) -> Entry[Any]:
        every, clock = self.element.every, self._clock
        interval = None if every is None else ((clock or 0.0) // every + 1) * every
        return Entry(self.prototype(), self._context.now, None, interval)

    def _adopt(self, page: Page, identity: bytes, key: Any, entry: Entry[Any]) -> None:
        entry.state.key = key
        entry.state._context = self._context
        page[identity] = self._live[identity] = entry

    def _expired(self, entry: Entry[Any]) -> bool:
        return self.element.expires is not None and entry.touched + self.element.expires <= self._context.now

    def _restore(self, identity: bytes, before: bytes) -> None:
        old, entry = self._live[identity], self._decode(before)
        self._adopt(self._page_of(identity), identity, old.state.key, entry)

    def _undo(self, identity: bytes, earlier: Iterable[Any]) -> None:
        """Put an instance back to what it was: as stored, with this batch's earlier events applied again."""
        key = self._live[identity].state.key
        stored = self._stored(identity)
        entry = self._decode(stored) if stored is not None else self._new_entry()
        if self._expired(entry):
            entry = self._new_entry()
        self._adopt(self._page_of(identity), identity, key, entry)
        for event in earlier:
            self._context.due = entry.due
            self._emitter.collect(entry.state.on_event(event))
            entry.due = self._context.due

    def _page_of(self, identity: bytes) -> Page:
        return self._pages.page(self._pages.number(self._key.hash(identity)))

    def _stored(self, identity: bytes) -> Any:
        return self._pages.stored(self._pages.number(self._key.hash(identity)), identity)

    def _call(self, identity: bytes, hook: str, lineage: Lineage) -> None:
        """Call a hook that no event causes, wholly or not at all."""
        entry = self._live[identity]
        before = self._encode(entry)
        self._context.due = entry.due
        try:
            self._emitter.add(self._emitter.collect(getattr(entry.state, hook)()), lineage)
            entry.due = self._context.due
        except Exception as error:
            self._restore(identity, before)
            self._stage.dead_letter(self.element.name, self.element.inputs[0], None, error, lineage)

    def _refuse_late(self, stream: Stream[Any], event: Any, lineage: Lineage) -> bool:
        """Whether an event is late and its source's policy keeps it from being handled."""
        watermark = self._context.watermark
        if watermark is None or lineage.time >= watermark * 1e6:
            return False
        self._tally.late += 1
        source = self._stage.plan.topology.sources[lineage.minor >> SOURCE_SHIFT]
        assert source.event_time is not None
        if source.event_time.late == "process":
            return False
        if source.event_time.late == "dead-letter":
            seconds = watermark - lineage.time / 1e6
            error = LateEventError(f"the event is {seconds:.3f} s older than the watermark")
            self._stage.dead_letter(self.element.name, stream, event, error, lineage)
        return True

    # --- timers and expiry ----------------------------------------------------------------------

    def _fire(self) -> None:
        if not self._has_timers or self._clock is None:
            return
        due: list[tuple[float, bytes]] = []
        for number in self._pages.due(self._clock):
            page = self._pages.page(number)
            for identity in list(page):
                entry = self._materialise(page, identity)
                if entry.next_due is not None and entry.next_due <= self._clock and not self._expired(entry):
                    due.append((entry.next_due, identity))
        # Instances opened in this batch have timers that no page knows of yet.
        known = {identity for _, identity in due}
        for identity, entry in self._live.items():
            if identity not in known and entry.next_due is not None and entry.next_due <= self._clock:
                due.append((entry.next_due, identity))
        lineage = Lineage(NONE, NONE, LAST, self._stage.tally.partition)
        for _, identity in sorted(due):
            entry = self._live[identity]
            if entry.due is not None and entry.due <= self._clock:
                entry.due = None
                self._call(identity, "on_timer", lineage)
            entry = self._live[identity]
            if entry.interval is not None and entry.interval <= self._clock:
                assert self.element.every is not None
                entry.interval = (self._clock // self.element.every + 1) * self.element.every
                self._call(identity, "on_interval", lineage)

    def _materialise(self, page: Page, identity: bytes) -> Entry[Any]:
        entry = page[identity]
        if not isinstance(entry, Entry):
            entry = self._decode(entry)
            self._adopt(page, identity, self._key.decode(identity), entry)
        return entry

    def _note_timers(self) -> None:
        if not self._has_timers:
            return
        visited = set() if self._clock is None else set(self._pages.due(self._clock))
        for number in visited:
            dues = (entry.next_due for entry in self._pages.page(number).values())
            self._pages.note_due(number, min((due for due in dues if due is not None), default=None), exact=True)
        for identity, entry in self._live.items():
            number = self._pages.number(self._key.hash(identity))
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
