"""A container: holds and runs the instances of one keyed element in one partition."""

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial

import numpy as np

from penstock.app.element import Element, InstanceContext, ProcessingElement, overrides
from penstock.app.stepwise import Stepwise
from penstock.app.stream import Emission
from penstock.errors import LateEventError, StateError
from penstock.runtime.awaiting import outcome, run, side_by_side
from penstock.runtime.batch import Batch, ColumnBatch, Saved
from penstock.runtime.delivery import Delivery
from penstock.runtime.emitter import Emitter
from penstock.runtime.late import Latecomers
from penstock.runtime.letters import FAULTS, Failure
from penstock.runtime.lineage import LineageColumns
from penstock.runtime.live import LiveInstances
from penstock.runtime.log import AtWork, working
from penstock.runtime.pages import Pages, PageStore
from penstock.runtime.places import sent_to
from penstock.runtime.stage import Stage
from penstock.runtime.timers import Timers
from penstock.runtime.together.windows import FEW, Together

ENDED_AT_ONCE = 1000
"""Of so many instances the end of a micro-batch holds what ``on_batch`` emits, until it knows that all can be stored."""
BYTES_PER_REPLAY = 1000
"""Encoding this many bytes of state takes about as long as replaying one event."""


class Container:
    """Applies one micro-batch's events to the instances of one element.

    The events come in order, in one or more deliveries: call `handle` for each, `settle` between two of them, and `finish`
    after the last. An event is applied wholly or not at all: if a hook raises, the instance is restored to its state before the
    event, and the event becomes a dead letter.
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
        clock = now if element.timers == "processing" else watermark
        self._instances = LiveInstances(element, stage.wiring, self._pages, self._context, clock)
        self._live = self._instances.live
        self._timers = Timers(element, self._instances, self._context, clock, self._work, stage.letters)
        self._has_timers = element.has_timers
        self._together = Together.of(element, self._context)
        self._reads = stage.wiring.reads(element)
        self._touched: dict[bytes, int] = {}
        """By identity, the birth of the last event applied; in the order of the instances' first events."""
        self._calls_back = overrides(self.prototype, "on_batch")
        self._emitter = self._new_emitter(LineageColumns.uncaused([], 0))
        self._batch = Batch(self._key, Delivery(stage.wiring, []), set())
        self._timers.fire_before_expiry(self._emitter)
        self._route()

    def handle(self, delivery: Delivery) -> None:
        """Apply a delivery's events. They must be in order and come after the events of earlier deliveries."""
        lineage = delivery.lineage
        self._stage.tally.come(self._place, lineage)
        late = self._latecomers.refuse_all(self._context.watermark, self._context.fired, lineage, delivery.row)
        self._emitter = self._new_emitter(lineage.judged())
        if self._reads is not None and len(delivery) >= FEW and self._reads.are_in(delivery.columns):
            batch: Batch = ColumnBatch(self._key, delivery, late, self._reads)
        else:
            batch = Batch(self._key, delivery, late)
        self._batch = batch
        self._tally.hottest.merge(batch.hottest())
        self._instances.open_all(batch.on_time())
        if self.element.asynchronous:
            with self._tally.timed_together(len(delivery)):
                self._await_all(batch)
            return
        with working(self._work):
            self._apply_all(batch)
        self._tally.late_in_part += self._context.late_in_part
        self._context.late_in_part = 0

    def _apply_all(self, batch: Batch) -> None:
        """Apply the events of a delivery one by one, but for those that can be applied together."""
        number = len(batch.delivery)
        parts = [] if self._together is None else self._together.parts(number)
        if not parts:
            self._apply_each(batch, range(number))
        for part in parts:
            rows = self._apply_together(batch, part)
            if rows:
                self._apply_each(batch, rows)

    def _apply_each(self, batch: Batch, rows: Sequence[int]) -> None:
        """Apply the events of some rows one by one."""
        late, events = batch.late, batch.events_of(rows)
        live, context, identities = self._live, self._context, batch.identities
        collect, add, timers, saved = self._emitter.collect, self._emitter.add, self._has_timers, batch.saved
        work = self._work
        for row in self._tally.timed(rows):
            if row in late:
                continue
            work.identity = identity = identities[row]
            instance = live[identity]
            if timers:
                context.due = instance.due
            counted = context.late_in_part
            try:
                emissions = collect(instance.state.on_event(events[row]))
            except LateEventError as error:  # raised by a window before it changes any state
                self._refuse_late(row, error)
                continue
            except FAULTS as error:  # the hook may have changed the state half way
                context.late_in_part = counted
                self._restore(identity, row)
                retried = self._without_result(identity, row, error)
                if retried is None:
                    batch.failed[row] = Failure.of(error)
                    continue
                emissions, instance = retried, live[identity]
            if timers:
                instance.due = context.due
            if emissions:
                add(emissions, row)
            if saved and identity in saved:
                saved[identity].since.append(row)

    def _refuse_late(self, row: int, error: LateEventError) -> None:
        """Treat an event as its source's policy for late events says."""
        batch = self._batch
        self._latecomers.refuse(row, error, batch.delivery.lineage, batch.delivery.row)
        batch.late.add(row)
        batch.failed[row] = None

    def _apply_together(self, batch: Batch, part: slice) -> list[int]:
        """Apply all events of a part that can be applied together; returns the rows that remain to be applied one by one."""
        assert self._together is not None
        self._work.identity = None  # user predicates now run over the events of many keys
        begun = time.perf_counter_ns()
        instances = [self._live[identity] for identity in batch.places.identities]
        times = batch.delivery.lineage.time[part]
        events = batch.rows(part, self.element.body.time_of)
        applied = self._together.take(events, batch.places.at[part], instances, times)
        self._tally.took_together(int(applied.sum()), begun)
        batch.note_applied(part.start + np.flatnonzero(applied))
        left: list[int] = (part.start + np.flatnonzero(~applied)).tolist()
        return left

    def _await_all(self, batch: Batch) -> None:
        """Apply a delivery's events by an asynchronous hook: instances concurrently, the events of one instance in turn."""
        applied: dict[int, Sequence[Emission]] = {}
        chains = [partial(self._await_each, identity, rows, applied) for identity, rows in batch.chains()]
        run(side_by_side(chains, self.element.concurrency))
        for row in sorted(applied):
            self._emitter.add(applied[row], row)

    async def _await_each(self, identity: bytes, rows: list[int], applied: dict[int, Sequence[Emission]]) -> None:
        """Apply one instance's events in turn. Its state is saved after each, so that a failure never replays earlier events
        and their asynchronous calls.
        """
        batch, instance = self._batch, self._live[identity]
        before, timeout = self._instances.encode(instance), self.element.timeout
        assert timeout is not None
        with working(self._work.of(identity)):
            for row in rows:
                context = instance.state._context = self._context.of_its_own(instance.due)
                result = await outcome(instance.state.on_event, batch.delivery.events[row], timeout, self._emitter.checked)
                try:
                    emissions = self._emitter.collect(result.get())
                    instance.due = context.due
                    self._instances.check_storable(identity, instance)
                except FAULTS as error:
                    batch.failed[row] = Failure.of(error)
                    instance = self._instances.decode(before)
                    instance.touched = self._context.now  # a key lives on by an event that fails, too
                    self._instances.adopt(identity, instance)
                else:
                    before, applied[row] = self._instances.encode(instance), emissions
        instance.state._context = self._context
        batch.saved[identity] = Saved(before, [])

    def settle(self) -> None:
        """Finish the current delivery when another follows: make its changes of state final, write its dead letters, and
        route its emissions.
        """
        touched = self._note_touched()
        for identity in touched:
            self._live[identity].touched = self._context.now
        contents, refused = self._instances.check_all(touched)
        for identity in touched:
            if identity in refused:
                self._redo(identity, self._batch.rows_of(identity))
                if self._is_untouched(identity):
                    continue
            self._instances.settled[identity] = contents.get(identity) or self._instances.encode(self._live[identity])
        self._write_failed()
        self._route()

    def reread(self) -> None:
        """Replace each settled instance by a decoded copy of its encoded state, so that nothing outside the state survives."""
        for identity, content in self._instances.settled.items():
            if identity in self._live:
                self._instances.adopt(identity, self._instances.decode(content))

    def _without_result(self, identity: bytes, row: int, error: BaseException) -> Sequence[Emission] | None:
        """Apply a failed event without the result that it made due, which becomes a dead letter.

        Returns the emissions, or None where the event itself is at fault; the instance is then as it was before the event.
        """
        state = self._live[identity].state
        if not (isinstance(state, Stepwise) and state.would_say()):
            return None
        self._batch.without_result[row] = Failure.of(error)
        try:
            return self._again(identity, row)
        except FAULTS:
            del self._batch.without_result[row]
            self._restore(identity, row)
            return None

    def _note_touched(self) -> dict[bytes, int]:
        """Record the birth of each instance's last applied event; returns the row of that event, by identity."""
        last, born = self._batch.last_rows(), self._batch.delivery.lineage.born
        self._touched.update({identity: int(born[row]) for identity, row in last.items()})
        return last

    def _finish_batch(self) -> None:
        """Call ``on_batch`` on the touched instances, check that their state can be stored, and write failed events as dead
        letters.
        """
        self._note_touched()
        touched = list(self._touched.items())
        for first in range(0, len(touched), ENDED_AT_ONCE):
            self._end_all(touched[first : first + ENDED_AT_ONCE])
        for identity in self._instances.made - self._touched.keys():  # made for events of which none could be applied
            self._instances.forget(identity)
        self._write_failed()

    def _write_failed(self) -> None:
        delivery = self._batch.delivery
        for row, of_result in sorted(self._batch.without_result.items()):
            self._stage.letters.write_uncaused(self.element, of_result, int(delivery.lineage.born[row]))
        for row, failure in sorted(self._batch.failed.items()):
            if failure is not None:
                stream, origin = delivery.streams[row], delivery.lineage.row(row)
                self._stage.letters.write(self.element.name, stream, delivery.again(row), failure, origin)

    def _route(self) -> None:
        for batch in self._emitter.batches():
            self._stage.route(batch)

    def _end_all(self, touched: Sequence[tuple[bytes, int]]) -> None:
        """Call ``on_batch`` on instances and check their states, then add what they emit, or undo what has failed.

        Args:
            touched: the identity of each, and the birth of the last event applied to it.
        """
        emitted, faults = dict[bytes, Sequence[Emission]](), dict[bytes, BaseException]()
        for identity, _ in touched:
            try:
                emitted[identity] = self._call_back(identity)
            except FAULTS as error:
                faults[identity] = error
        self._work.identity = None  # states of many keys are now read back
        faults.update(self._instances.check_all(emitted)[1])
        for identity, born in touched:
            if identity in faults:
                self._recover(identity, born, faults[identity])
            elif emitted[identity]:
                self._add_ended(identity, emitted[identity], born)

    def _add_ended(self, identity: bytes, emissions: Sequence[Emission], born: int) -> None:
        """Add what ``on_batch`` of an instance has emitted."""
        self._emitter.add_uncaused(emissions, born)

    def _call_back(self, identity: bytes) -> Sequence[Emission]:
        """Call ``on_batch`` on an instance, if it has one; returns what it emits.

        Raises:
            Exception: whatever the hook raises.
        """
        instance = self._live[identity]
        instance.touched = self._context.now
        if not self._calls_back:
            return ()
        self._context.due, self._work.identity = instance.due, identity
        emissions = self._emitter.collect(instance.state.on_batch())
        instance.due = self._context.due
        return emissions

    def _recover(self, identity: bytes, born: int, error: BaseException) -> None:
        """Undo a failed end of the micro-batch. If one event spoilt the state, drop that event and end the batch again."""
        self._work.identity = identity
        if self._redo(identity, self._batch.rows_of(identity)):
            if self._is_untouched(identity):
                return
            self._work.muted = True  # the first call has already printed
            try:
                emissions = self._call_back(identity)
                self._instances.check_storable(identity, self._live[identity])
                self._add_ended(identity, emissions, born)
                return
            except FAULTS as another:
                error = another
            finally:
                self._work.muted = False
        self._restore(identity, len(self._batch.delivery))
        if not self._end_batch_by_steps(identity, born):
            self._stage.letters.write_uncaused(self.element, error, born)

    def _end_batch_by_steps(self, identity: bytes, born: int) -> bool:
        """Do each step of ``on_batch`` alone, and write a dead letter for each that fails; returns whether there are any."""
        state = self._live[identity].state
        steps = state.batch_steps() if self._calls_back and isinstance(state, Stepwise) else ()
        for step in steps:
            instance = self._live[identity]
            before = self._instances.encode(instance)
            self._context.due = instance.due
            try:
                emissions = self._emitter.collect(instance.state.batch_step(step))
                self._instances.check_storable(identity, instance)
            except FAULTS as error:
                self._instances.adopt(identity, self._instances.decode(before))
                self._live[identity].state.skip_batch_step(step)
                self._stage.letters.write_uncaused(self.element, error, born)
            else:
                self._emitter.add_uncaused(emissions, born)
        instance = self._live[identity]
        self._context.due = instance.due
        if steps:
            instance.state.rearm()
            instance.due = self._context.due
        return bool(steps)

    def _is_untouched(self, identity: bytes) -> bool:
        """Whether the micro-batch applied no event to an instance; if so, removes it from the touched instances."""
        if identity in self._instances.settled or any(row not in self._batch.failed for row in self._batch.rows_of(identity)):
            return False
        del self._touched[identity]
        return True

    def _redo(self, identity: bytes, rows: list[int]) -> bool:
        """Replay an instance's events and check its state after each: an event that leaves an unstorable state fails.

        Returns False where the state before ``on_batch`` can be stored: then nothing is replayed, and the instance has that
        state again.
        """
        batch = self._batch
        if self.element.asynchronous:  # the state was checked after each event already
            self._restore(identity, len(batch.delivery))
            return False
        batch.saved.pop(identity, None)
        self._restore(identity, len(batch.delivery))
        try:
            self._instances.check_storable(identity, self._live[identity])
            return False
        except StateError:
            pass
        self._emitter.drop(rows)
        self._instances.adopt(identity, self._instances.before(identity))
        for row in rows:
            if row not in batch.late:
                batch.failed.pop(row, None)
                batch.without_result.pop(row, None)
                self._redo_event(identity, row)
        batch.saved.pop(identity, None)
        return True

    def _redo_event(self, identity: bytes, row: int) -> None:
        """Apply an event again, and check the state that it leaves; note where it fails."""
        batch, before = self._batch, self._instances.encode(self._live[identity])
        for leaves_out in (False, True):
            try:
                emissions = self._again(identity, row)
                self._instances.check_storable(identity, self._live[identity])
            except FAULTS as error:
                self._instances.adopt(identity, self._instances.decode(before))
                state = self._live[identity].state
                if isinstance(error, LateEventError):
                    self._refuse_late(row, error)
                elif not leaves_out and isinstance(state, Stepwise) and state.would_say():
                    batch.without_result[row] = batch.failed[row] = Failure.of(error)
                    continue
                else:
                    batch.failed[row] = batch.without_result.pop(row, Failure.of(error))
            else:
                batch.failed.pop(row, None)
                self._live[identity].due = self._context.due
                self._emitter.add(emissions, row)
            return

    @property
    def due(self) -> float | None:
        """When the next timer of this container is due, in seconds since the epoch; None where there is none."""
        return min(self._pages.header.due.values(), default=None)

    def finish(self) -> Iterator[int]:
        """End the micro-batch: call ``on_batch``, fire due timers, write the state, route the emissions.

        Where many timers are due they fire part by part. Yields the number of pages after each part, so that its emissions can
        be sent.
        """
        with working(self._work):
            self._finish_batch()
        for numbers in self._timers.parts():
            with working(self._work):
                self._timers.fire_part(numbers, self._emitter)
            self._route()
            self._emitter = self._new_emitter(LineageColumns.uncaused([], 0))
            yield len(numbers)
        with working(self._work):
            self._timers.fire(self._emitter)
        self._instances.drop_empty()
        self._timers.note()
        self._instances.sweep()
        self._pages.header.ran = max(self._context.now, self._pages.header.ran or 0.0)
        self._tally.instances[self._stage.tally.partition] = self._pages.header.instances
        self._pages.flush(self._key.hashes)
        self._route()

    def _new_emitter(self, causes: LineageColumns) -> Emitter:
        return Emitter(self.element, self._stage.wiring, causes, self._stage.tally.partition)

    def _restore(self, identity: bytes, before: int) -> None:
        """Restore an instance to its state before a row of the batch, by replaying events on its stored or last saved state.

        The result is saved after a long replay, so that many failures of one key do not replay the same events each time. An
        event that fails only when it is replayed becomes a dead letter, without its emissions.
        """
        batch = self._batch
        saved = batch.saved.get(identity)
        rows = saved.since if saved else [row for row in batch.rows_of(identity) if row < before and row not in batch.failed]
        is_restored = False
        while not is_restored:
            instance = self._instances.decode(saved.content) if saved else self._instances.before(identity)
            self._instances.adopt(identity, instance)
            is_restored = self._replay(identity, rows)
        instance.touched = self._context.now
        if saved is None or len(rows) * BYTES_PER_REPLAY >= len(saved.content):
            with suppress(StateError):
                self._instances.check_storable(identity, instance)
                batch.saved[identity] = Saved(self._instances.encode(instance), [])

    def _replay(self, identity: bytes, rows: list[int]) -> bool:
        """Replay events on an instance; returns False at the first one that fails, which is then no longer among the rows."""
        for row in rows:
            try:
                self._apply_again(identity, row)
            except FAULTS as error:
                if isinstance(error, LateEventError):
                    self._refuse_late(row, error)
                else:
                    self._batch.failed[row] = Failure.of(error)
                self._batch.without_result.pop(row, None)
                self._emitter.drop([row])
                rows.remove(row)
                return False
        return True

    def _apply_again(self, identity: bytes, row: int) -> None:
        """Replay an event on the live instance. Its emissions are dropped, for they were collected the first time."""
        self._again(identity, row)
        self._live[identity].due = self._context.due

    def _again(self, identity: bytes, row: int) -> Sequence[Emission]:
        """Call an event's hook again, muted; ``without_result`` instead of ``on_event`` where the event's result has failed."""
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
