"""A container: the instances of one keyed element that live in one partition."""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from penstock.app.element import Element, InstanceContext, ProcessingElement, overrides
from penstock.app.state import LARGEST_STATE
from penstock.app.stepwise import Stepwise
from penstock.app.stream import Emission
from penstock.errors import LateEventError, StateError
from penstock.kinds.coding import msgpack_decoder, msgpack_encoder
from penstock.runtime.awaiting import outcome, run, side_by_side
from penstock.runtime.delivery import Delivery
from penstock.runtime.earlier import EarlierReader
from penstock.runtime.emitter import Emitter
from penstock.runtime.hottest import Hottest
from penstock.runtime.instance import Instance, decode_shallow
from penstock.runtime.kept import surely_kept
from penstock.runtime.late import Latecomers
from penstock.runtime.letters import FAULTS, Failure, described
from penstock.runtime.lineage import LAST, NONE, Lineage, LineageColumns
from penstock.runtime.log import AtWork, working
from penstock.runtime.pages import Page, Pages, PageStore
from penstock.runtime.places import sent_to
from penstock.runtime.stage import Stage
from penstock.runtime.together.windows import Together

REARMED_AT_MOST = 1000
"""How often in one batch an instance may set its timer to a time that has passed already."""


BYTES_PER_REPLAY = 1000
"""Encoding so many bytes of state takes about as long as applying an event again."""


class Container:
    """Handles a micro-batch's events for one element, in order, in one delivery or several: each is handled and, but for the
    last, settled.

    An event is applied wholly or not at all: if a hook raises, the instance is put back to what it
    was before, and the event becomes a dead letter.
    """

    def __init__(self, element: Element, stage: Stage, store: PageStore, now: float, watermark: float | None) -> None:
        assert element.prototype is not None
        self.element = element
        self.prototype: type[ProcessingElement] = element.prototype
        self._stage = stage
        self._tally, self._place = stage.tally.element(element.name), sent_to(element.name)
        self._latecomers = Latecomers(element, stage)
        self._key = stage.wiring.keys[element.name]
        self._work = AtWork(stage.tally.log, element.name, self._key.decode)
        self._pages = Pages(element.name, store)
        self._context = InstanceContext(now, watermark, element.timers == "event", self._pages.header.fired)
        self._clock = now if element.timers == "processing" else watermark
        self._decode: Callable[[Any], Instance[Any]] = msgpack_decoder(Instance[self.prototype]).decode  # type: ignore[name-defined]
        self._encode = msgpack_encoder().encode
        forms = stage.wiring.earlier.get(element.name, ())
        self._form = len(forms)
        self._earlier = EarlierReader(element.name, self.prototype, forms, self._key.decode) if forms else None
        self._surely_kept = surely_kept(self.prototype)
        self._has_timers = element.has_timers
        self._together = Together.of(element, self._context)
        self._live: dict[bytes, Instance[Any]] = {}
        self._made: set[bytes] = set()
        """Instances that did not exist before this batch."""
        self._touched: dict[bytes, int] = {}
        """The instances to which events were applied, in the order of their first ones, and the birth of the last of each."""
        self._settled: dict[bytes, bytes] = {}
        """Instances as settled deliveries have left them."""
        self._calls_back = overrides(self.prototype, "on_batch")
        self._emitter = self._new_emitter(LineageColumns.uncaused([], 0))
        self._batch = _Batch([], Delivery(stage.wiring, []), set())
        self._fire_before_expiry()

    def handle(self, delivery: Delivery) -> None:
        """Apply events, which are in order and come after those of earlier deliveries."""
        events, lineage = delivery.events, delivery.lineage
        self._stage.tally.come(self._place, lineage)
        late = self._latecomers.refuse_all(self._context.watermark, lineage, delivery.row)
        self._emitter = self._new_emitter(lineage.judged())
        self._batch = batch = _Batch(self._key.identities(events), delivery, late)
        self._tally.hottest.merge(Hottest.of(batch.identities, self._key.decode))
        self._open_all(batch)
        if self.element.asynchronous:
            with self._tally.timed_together(len(events)):
                self._await_all(batch)
            return
        with working(self._work):
            self._apply_all(batch, delivery)

    def _apply_all(self, batch: "_Batch", delivery: Delivery) -> None:
        """Apply a delivery's events, one by one."""
        late, events, lineage = batch.late, delivery.events, delivery.lineage
        live, context, identities = self._live, self._context, batch.identities
        collect, add, timers, saved = self._emitter.collect, self._emitter.add, self._has_timers, batch.saved
        work = self._work
        for row in self._tally.timed(self._apply_together(batch, events)):
            if row in late:
                continue
            work.identity = identity = identities[row]
            instance = live[identity]
            if timers:
                context.due = instance.due
            try:
                emissions = collect(instance.state.on_event(events[row]))
            except LateEventError as error:  # of a window; nothing has been changed
                self._latecomers.refuse(row, error, lineage, delivery.row)
                late.add(row)
                batch.failed[row] = None
                continue
            except FAULTS as error:
                self._restore(identity, row)
                kept = self._without_result(identity, row, error, lineage)
                if kept is None:
                    batch.failed[row] = Failure.of(error)
                    continue
                emissions, instance = kept, live[identity]
            if timers:
                instance.due = context.due
            if emissions:
                add(emissions, row)
            if saved and identity in saved:
                saved[identity].since.append(row)
        self._tally.late_in_part += context.late_in_part
        context.late_in_part = 0

    def _apply_together(self, batch: "_Batch", events: Sequence[Any]) -> Sequence[int]:
        """Apply the events that can be taken all at once; returns the rows of the others."""
        rows = range(len(events))
        if self._together is None or batch.late:
            return rows
        numbers = {identity: number for number, identity in enumerate(dict.fromkeys(batch.identities))}
        of = np.fromiter(map(numbers.__getitem__, batch.identities), np.int64, len(events))
        self._work.identity = None  # predicates are asked of many keys' events
        begun = time.perf_counter_ns()
        taken = self._together.take(events, of, [self._live[identity] for identity in numbers], batch.delivery.lineage.time)
        self._tally.took_together(int(taken.sum()), begun)
        return np.flatnonzero(~taken).tolist()

    def _await_all(self, batch: "_Batch") -> None:
        """Apply a delivery's events where that is to be awaited: many instances at once, each with one event after another."""
        applied: dict[int, Sequence[Emission]] = {}
        chains = [partial(self._await_each, identity, rows, applied) for identity, rows in batch.chains()]
        run(side_by_side(chains, self.element.concurrency))
        for row in sorted(applied):
            self._emitter.add(applied[row], row)

    async def _await_each(self, identity: bytes, rows: list[int], applied: dict[int, Sequence[Emission]]) -> None:
        """Apply an instance's events. It is saved after each, so that none has to be applied again, with all its calls, if one
        fails.
        """
        batch, key, instance = self._batch, self._live[identity].state.key, self._live[identity]
        before, timeout = self._encode(instance), self.element.timeout
        assert timeout is not None
        with working(self._work.of(identity)):
            for row in rows:
                context = instance.state._context = self._context.of_its_own(instance.due)
                came = await outcome(instance.state.on_event, batch.delivery.events[row], timeout)
                try:
                    emissions = self._emitter.collect(came.get())
                    instance.due = context.due
                    self._keepable(identity, instance)
                except FAULTS as error:
                    batch.failed[row] = Failure.of(error)
                    instance = self._decode(before)
                    self._adopt(identity, key, instance)
                else:
                    before, applied[row] = self._encode(instance), emissions
        instance.state._context = self._context
        batch.saved[identity] = _Saved(before, [])

    def settle(self) -> None:
        """Be done with a delivery, after which another comes: its events are applied for good, and what they caused is
        routed.
        """
        for identity in self._note_touched():
            self._live[identity].touched = self._context.now
            try:
                self._keepable(identity, self._live[identity])
            except StateError:
                self._redo(identity, self._batch.rows_of(identity))
                if self._is_untouched(identity):
                    continue
            self._settled[identity] = self._encode(self._live[identity])
        self._write_failed()
        self._route()

    def reread(self) -> None:
        """Put each instance in the place of what it is kept as, so that nothing but its state is left of it."""
        for identity, content in self._settled.items():
            if identity in self._live:
                self._adopt(identity, self._live[identity].state.key, self._decode(content))

    def _without_result(
        self, identity: bytes, row: int, error: BaseException, lineage: LineageColumns
    ) -> Sequence[Emission] | None:
        """Where an event has failed that makes a result due: apply it, and write a dead letter for the result; None if it is
        the event that fails.
        """
        state = self._live[identity].state
        if not (isinstance(state, Stepwise) and state.would_say()):
            return None
        self._batch.without_result.add(row)
        try:
            emissions = self._again(identity, row)
        except FAULTS:
            self._batch.without_result.remove(row)
            self._restore(identity, row)
            return None
        self._write_letter(error, int(lineage.born[row]))
        return emissions

    def _note_touched(self) -> dict[bytes, int]:
        """Of the delivery's instances, to which events were applied, the last of these events."""
        last, born = self._batch.last_rows(), self._batch.delivery.lineage.born
        self._touched.update({identity: int(born[row]) for identity, row in last.items()})
        return last

    def _finish_batch(self) -> None:
        """Call ``on_batch`` on the instances that were touched, see that their state can be kept, write what failed as dead
        letters.
        """
        self._note_touched()
        for identity, born in list(self._touched.items()):
            self._work.identity = identity
            try:
                self._end_batch(identity, born)
            except FAULTS as error:
                self._recover(identity, born, error)
        for identity in self._made - self._touched.keys():  # made for events of which none could be applied
            self._forget(identity)
        self._write_failed()

    def _write_failed(self) -> None:
        delivery = self._batch.delivery
        for row, failure in sorted(self._batch.failed.items()):
            if failure is not None:
                stream, origin = delivery.streams[row], delivery.lineage.row(row)
                self._stage.letters.write(self.element.name, stream, delivery.again(row), failure, origin)

    def _route(self) -> None:
        for batch in self._emitter.batches():
            self._stage.route(batch)

    def _end_batch(self, identity: bytes, born: int) -> None:
        """Call ``on_batch`` on an instance.

        Raises
        ------
        Exception: whatever the hook does, or StateError, where what is left cannot be kept.
        """
        instance = self._live[identity]
        instance.touched = self._context.now
        emissions: Sequence[Emission] = ()
        if self._calls_back:
            self._context.due = instance.due
            emissions = self._emitter.collect(instance.state.on_batch())
            instance.due = self._context.due
        self._keepable(identity, instance)
        if emissions:
            self._emitter.add_uncaused(emissions, born)

    def _recover(self, identity: bytes, born: int, error: BaseException) -> None:
        """Undo an end of the batch that failed; if an event has led to it, the instance's batch is handled anew."""
        if self._redo(identity, self._batch.rows_of(identity)):
            if self._is_untouched(identity):
                return
            self._work.muted = True  # it has printed before
            try:
                self._end_batch(identity, born)
                return
            except FAULTS as another:
                error = another
            finally:
                self._work.muted = False
        self._restore(identity, len(self._batch.identities))
        self._write_letter(error, born)

    def _is_untouched(self, identity: bytes) -> bool:
        """Whether none of an instance's events is left that was applied; it is then no longer among those that were touched."""
        if identity in self._settled or any(row not in self._batch.failed for row in self._batch.rows_of(identity)):
            return False
        del self._touched[identity]
        return True

    def _redo(self, identity: bytes, rows: list[int]) -> bool:
        """Apply an instance's events again and look at its state after each: one that leaves what cannot be kept fails.

        Returns whether there was any; otherwise all is as it was, but for the instance, which is as before ``on_batch``.
        """
        batch, key = self._batch, self._live[identity].state.key
        if self.element.asynchronous:  # each of whose events has been looked at
            self._restore(identity, len(batch.identities))
            return False
        batch.saved.pop(identity, None)
        self._restore(identity, len(batch.identities))
        try:
            self._keepable(identity, self._live[identity])
            return False
        except StateError:
            pass
        self._emitter.drop(rows)
        self._adopt(identity, key, self._before(identity))
        for row in rows:
            if row in batch.late:
                continue
            batch.failed.pop(row, None)
            instance = self._live[identity]
            before = self._encode(instance)
            try:
                emissions = self._again(identity, row)
                self._keepable(identity, instance)
            except FAULTS as error:
                self._adopt(identity, key, self._decode(before))
                batch.failed[row] = Failure.of(error)
            else:
                instance.due = self._context.due
                self._emitter.add(emissions, row)
        batch.saved.pop(identity, None)
        return True

    def finish(self) -> float | None:
        """End the micro-batch: call ``on_batch``, fire what is due, write the state, route what was emitted.

        Returns the time at which a timer of this container is next due, if there is one.
        """
        with working(self._work):
            self._finish_batch()
            self._fire()
        self._drop_empty()
        self._note_timers()
        self._sweep()
        self._pages.header.ran = max(self._context.now, self._pages.header.ran or 0.0)
        self._tally.instances[self._stage.tally.partition] = self._pages.header.instances
        self._pages.flush(self._key.hashes)
        self._route()
        return min(self._pages.header.due.values(), default=None)

    def _new_emitter(self, causes: LineageColumns) -> Emitter:
        return Emitter(self.element, self._stage.wiring, causes, self._stage.tally.partition)

    # --- instances ------------------------------------------------------------------------------

    def _open_all(self, batch: "_Batch") -> None:
        """Bring to life the instance of every event: read from its page, or made on first use."""
        first = batch.first_rows()
        identities = [identity for identity in first if identity not in self._live]
        numbers = self._pages.numbers(self._key.hashes(identities)).tolist()
        value, events, header = self._key.value, batch.delivery.events, self._pages.header
        for identity, number in zip(identities, numbers, strict=True):
            page = self._pages.page(number)
            stored = page.get(identity)
            if stored is None:
                header.instances += 1
                self._made.add(identity)
            page[identity] = entry = self._revive(identity, stored)
            self._adopt(identity, value(events[first[identity]]), entry, page)

    def _read(self, identity: bytes, stored: Any) -> Instance[Any]:
        """An instance from what its page holds of it, whichever version of the code has stored that."""
        return self._decode(stored) if self._earlier is None else self._earlier.read(identity, stored)

    def _revive(self, identity: bytes, stored: Any) -> Instance[Any]:
        """An instance from what its page holds of it, if anything, and it has not expired."""
        gone = stored is None or (self.element.expires is not None and self._expired(decode_shallow(stored)))
        entry = None if gone else self._read(identity, stored)
        if entry is None:
            every, clock = self.element.every, self._clock
            interval = None if every is None else ((clock or 0.0) // every + 1) * every
            entry = Instance(self.prototype(), self._context.now, None, interval, self._form)
        return entry

    def _before(self, identity: bytes) -> Instance[Any]:
        """An instance as it was before the delivery."""
        settled = self._settled.get(identity)
        if settled:
            return self._decode(settled)
        return self._revive(identity, self._pages.stored(self._number(identity), identity))

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

    def _restore(self, identity: bytes, before: int) -> None:
        """Put an instance back to what it was before a row of the batch: from its page, or from when it was last saved.

        It is saved whenever many events had to be applied again, so that many failures of one key cost no more than
        its events and its state each.
        """
        batch = self._batch
        key, saved = self._live[identity].state.key, batch.saved.get(identity)
        if saved is None:
            instance = self._before(identity)
            rows = [row for row in batch.rows_of(identity) if row < before and row not in batch.failed]
        else:
            instance, rows = self._decode(saved.content), saved.since
        self._adopt(identity, key, instance)
        for row in rows:
            self._apply_again(identity, row)
        instance.touched = self._context.now
        if saved is None or len(rows) * BYTES_PER_REPLAY >= len(saved.content):
            with suppress(StateError):
                self._keepable(identity, instance)
                batch.saved[identity] = _Saved(self._encode(instance), [])

    def _apply_again(self, identity: bytes, row: int) -> None:
        """Apply an event that has been applied before, to the instance as it is now; what it emits is known already."""
        self._again(identity, row)
        self._live[identity].due = self._context.due

    def _again(self, identity: bytes, row: int) -> Sequence[Emission]:
        """Call the hook for an event once more, or what takes it in without its result, if that has failed."""
        instance = self._live[identity]
        self._context.due = instance.due
        self._work.muted = True
        leaves_out = row in self._batch.without_result
        hook = instance.state.without_result if leaves_out else instance.state.on_event
        counted = self._context.late_in_part
        try:
            emissions = self._emitter.collect(hook(self._batch.delivery.again(row)))
        finally:
            self._work.muted = False
        self._context.late_in_part = counted
        return emissions

    def _write_letter(self, error: BaseException, born: int, event: Any = None) -> None:
        """Keep the failure of a hook that no single event has called, with the event that had waited for it, if one had."""
        lineage = Lineage(born, NONE, LAST, self._stage.tally.partition)
        came_by = (stream for stream in self.element.inputs if stream.event_type is type(event))
        stream = next(came_by, self.element.inputs[0])
        self._stage.letters.write(self.element.name, stream, event, error, lineage)

    def _keepable(self, identity: bytes, instance: Instance[Any]) -> None:
        """Refuse state that could not be written or read back.

        Raises
        ------
        StateError: names the element, the key and what is wrong.
        """
        if self._surely_kept(instance.state):
            return
        key = self._key.decode(identity)
        try:
            content = self._encode(instance)
            self._decode(content)
        except FAULTS as error:  # of encoding, of decoding, and of what the prototype asks in its __post_init__
            raise StateError(
                f"Element {self.element.name}: the state of key {key!r} cannot be kept: {described(error)} (index 0 is the "
                "state); declare the field as what is assigned to it, and keep integers within 64 bits."
            ) from error
        if len(content) > LARGEST_STATE:
            raise StateError(
                f"Element {self.element.name}: the state of key {key!r} has {len(content):,} bytes, and at most "
                f"{LARGEST_STATE:,} are kept; keep less of it, or divide the key."
            )

    # --- timers and expiry ----------------------------------------------------------------------

    def _fire_before_expiry(self) -> None:
        """Fire timers that had come due before their instances expired, where no micro-batch has come in between."""
        if self.element.expires is None or not self._has_timers or self._clock is None:
            return
        for number in self._pages.due(self._clock):
            page = self._pages.page(number)
            for identity, stored in list(page.items()):
                entry = decode_shallow(stored)
                due = entry.next_due
                if due is not None and self._expired(entry) and due <= self._fires_until(entry):
                    self._adopt(identity, self._key.decode(identity), self._read(identity, stored), page)
        if self._live:
            with working(self._work):
                for _ in range(REARMED_AT_MOST):
                    if not self._fire_once():
                        break
            for identity in list(self._live):
                self._forget(identity)
            self._route()

    def _fires_until(self, entry: Instance[Any]) -> float:
        """Up to when the timers of an instance fire: the clock, or when it expired, if that was before."""
        assert self._clock is not None
        if self.element.expires is None:
            return self._clock
        end, ran = entry.touched + self.element.expires, self._pages.header.ran
        if self.element.timers == "processing":
            return min(self._clock, end)
        return self._clock if ran is None or end > ran or end > self._context.now else -math.inf

    def _fire(self) -> None:
        header, mark = self._pages.header, self._context.watermark
        if mark is not None:  # of a run that was moved the watermark may have fallen; what has closed stays closed
            header.fired = mark if header.fired is None else max(header.fired, mark)
        if not self._has_timers or self._clock is None:
            return
        for number in self._pages.due(self._clock):
            page = self._pages.page(number)
            for identity, stored in list(page.items()):
                if not isinstance(stored, Instance):
                    if self.element.expires is not None and self._expired(decode_shallow(stored)):
                        self._forget(identity)
                    else:
                        self._adopt(identity, self._key.decode(identity), self._read(identity, stored), page)
        for _ in range(REARMED_AT_MOST):
            if not self._fire_once():
                return

    def _fire_once(self) -> bool:
        """Fire what is due, earliest first; whether there was anything."""
        assert self._clock is not None
        dues = [(entry.next_due, identity) for identity, entry in self._live.items() if entry.next_due is not None]
        ready = sorted((time, identity) for time, identity in dues if time <= self._fires_until(self._live[identity]))
        for _, identity in ready:
            entry = self._live[identity]
            until = self._fires_until(entry)
            if entry.due is not None and entry.due <= until:
                entry.due = None
                self._call(identity, "on_timer")
            entry = self._live[identity]
            if entry.interval is not None and entry.interval <= until:
                assert self.element.every is not None
                entry.interval = (self._clock // self.element.every + 1) * self.element.every
                self._call(identity, "on_interval")
        return bool(ready)

    def _call(self, identity: bytes, hook: str) -> None:
        """Call a hook that a timer causes, wholly or not at all."""
        entry = self._live[identity]
        undo = entry.state.undo() if isinstance(entry.state, Stepwise) else None
        before = b"" if undo is not None else self._encode(entry)
        self._context.due, self._work.identity = entry.due, identity
        try:
            emissions = self._emitter.collect(getattr(entry.state, hook)())
            if undo is None:  # else nothing was added to what could be kept before
                self._keepable(identity, entry)
        except FAULTS as error:
            if undo is not None:
                undo()
            else:
                self._adopt(identity, entry.state.key, self._decode(before))
            if isinstance(entry.state, Stepwise):
                self._step_by_step(identity)
            else:
                self._write_letter(error, NONE)
        else:
            entry.due = self._context.due
            self._emitter.add_uncaused(emissions, NONE)

    def _step_by_step(self, identity: bytes) -> None:
        """Take the steps of a timer one by one, so that one that fails keeps no other from being taken."""
        while self._live[identity].state.is_due():
            entry = self._live[identity]
            before = self._encode(entry)
            try:
                emissions = self._emitter.collect(entry.state.step())
                self._keepable(identity, entry)
            except FAULTS as error:
                self._adopt(identity, entry.state.key, self._decode(before))
                self._write_letter(error, NONE, self._live[identity].state.skip())
            else:
                self._emitter.add_uncaused(emissions, NONE)
        entry = self._live[identity]
        entry.state.rearm()
        entry.due = self._context.due

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

    def _drop_empty(self) -> None:
        """Forget instances whose windows have all closed, say: one made anew would be the same."""
        if issubclass(self.prototype, Stepwise):
            for identity, entry in list(self._live.items()):
                if entry.due is None and entry.state.is_empty():
                    self._forget(identity)

    def _sweep(self) -> None:
        """Drop expired instances from a few pages."""
        if self.element.expires is None:
            return
        for number in self._pages.next_to_sweep():
            page = self._pages.page(number)
            for identity, stored in list(page.items()):
                if identity not in self._live and self._expired(decode_shallow(stored)):
                    del page[identity]
                    self._pages.header.instances -= 1


class _Saved(NamedTuple):
    """An instance of which an event has failed: what it was at some row, and the rows applied since."""

    content: bytes
    since: list[int]


class _Batch:
    """A delivery's events for one container, and which of them have not been applied."""

    def __init__(self, identities: Sequence[bytes], delivery: Delivery, late: set[int]) -> None:
        self.identities, self.delivery, self.late = identities, delivery, late
        self.failed: dict[int, Failure | None] = dict.fromkeys(late)
        """Why events were not applied; None for late ones, of which is known already what becomes."""
        self.saved: dict[bytes, _Saved] = {}
        self.without_result: set[int] = set()
        """Events that have been applied, but for the result that they made due."""

    def first_rows(self) -> dict[bytes, int]:
        """For each instance the first event that is not late."""
        rows = range(len(self.identities) - 1, -1, -1)
        return {self.identities[row]: row for row in rows if row not in self.late}

    def last_rows(self) -> dict[bytes, int]:
        """For each instance the last event that was applied; in the order of their first events."""
        if not self.failed:
            return dict(zip(self.identities, range(len(self.identities)), strict=True))
        return {identity: row for row, identity in enumerate(self.identities) if row not in self.failed}

    def rows_of(self, identity: bytes) -> list[int]:
        """An instance's events; it may have none, where it was touched by an earlier delivery."""
        return self._by_identity.get(identity, [])

    def chains(self) -> list[tuple[bytes, list[int]]]:
        """Each instance's events that are not late, where it has any; in the order of their first ones."""
        of = {identity: [row for row in rows if row not in self.late] for identity, rows in self._by_identity.items()}
        return [(identity, rows) for identity, rows in of.items() if rows]

    @cached_property
    def _by_identity(self) -> dict[bytes, list[int]]:
        rows: dict[bytes, list[int]] = {}
        for row, identity in enumerate(self.identities):
            rows.setdefault(identity, []).append(row)
        return rows
