"""Timers: finds the instances of an element with a due timer, and calls their hooks."""

import math
from collections.abc import Iterable, Iterator
from typing import Any

from penstock.app.duration import multiple_after
from penstock.app.element import Element, InstanceContext
from penstock.app.stepwise import Stepwise
from penstock.runtime.emitter import Emitter
from penstock.runtime.instance import Instance, decode_shallow
from penstock.runtime.letters import FAULTS, DeadLetters
from penstock.runtime.lineage import NONE
from penstock.runtime.live import LiveInstances
from penstock.runtime.log import AtWork, working

REARMED_AT_MOST = 1000
"""In one micro-batch an instance may set its timer this often to a time that has already passed."""

PAGES_AT_ONCE, BYTES_AT_ONCE = 256, 16 << 20
"""Where more pages than so many, or of so many bytes, have due timers, these fire part by part, to bound memory."""


class Timers:
    """Fires the timers of one element's instances in one partition.

    Args:
        clock: the time up to which timers fire, in seconds since the epoch; None while there is no event time yet.
    """

    def __init__(
        self,
        element: Element,
        instances: LiveInstances,
        context: InstanceContext,
        clock: float | None,
        work: AtWork,
        letters: DeadLetters,
    ) -> None:
        self._element, self._instances, self._context, self._clock = element, instances, context, clock
        self._pages, self._live = instances.pages, instances.live
        self._work, self._letters = work, letters
        self._hashes = instances.key.hashes
        self._exhausted: set[bytes] = set()
        """Instances that have fired as often as they may, part by part."""

    def fire_before_expiry(self, emitter: Emitter) -> None:
        """Fire the timers of expired instances that came due before the expiry, when no micro-batch ran in between."""
        if self._element.expires is None or not self._element.has_timers or self._clock is None:
            return
        # Decode only the expired instances with a due timer, then fire these; they are gone afterwards.
        for number in self._pages.due(self._clock):
            page = self._pages.page(number)
            for identity, stored in list(page.items()):
                entry = decode_shallow(stored)
                due = entry.next_due
                if due is not None and self._instances.is_expired(entry) and due <= self._fires_until(entry):
                    self._instances.adopt(identity, self._instances.read(identity, stored), page)
        if self._live:
            with working(self._work):
                for _ in range(REARMED_AT_MOST):
                    if not self._fire_once(emitter, self._live):
                        break
            for identity in list(self._live):
                self._instances.forget(identity)

    def _fires_until(self, entry: Instance[Any]) -> float:
        """The latest due time at which an instance's timers fire: the clock, or its expiry if that was earlier."""
        assert self._clock is not None
        if self._element.expires is None:
            return self._clock
        end, ran = entry.touched + self._element.expires, self._pages.header.ran
        if self._element.timers == "processing":
            return min(self._clock, end)
        # With event time, an expired instance fires only if no micro-batch has run since it expired.
        return self._clock if ran is None or end > ran or end > self._context.now else -math.inf

    def fire(self, emitter: Emitter) -> None:
        """Fire the timers that are due by the clock, at the end of a micro-batch."""
        header, mark = self._pages.header, self._context.watermark
        if mark is not None:  # the watermark of a moved run may be lower than before; closed windows stay closed
            header.fired = mark if header.fired is None else max(header.fired, mark)
        if not self._element.has_timers or self._clock is None:
            return
        for number in self._pages.due(self._clock):
            self._adopt_all(number)
        identities = [identity for identity in self._live if identity not in self._exhausted]
        for _ in range(REARMED_AT_MOST):
            if not self._fire_once(emitter, identities):
                return

    def parts(self) -> Iterator[list[int]]:
        """Yield the pages with due timers in parts, each for `fire_part`; nothing where `fire` can take all of them at once."""
        if not self._element.has_timers or self._clock is None:
            return
        numbers = self._pages.due(self._clock)
        if len(numbers) <= PAGES_AT_ONCE and self._pages.header.bytes <= BYTES_AT_ONCE:
            return
        part, size = list[int](), 0
        for number in numbers:
            part.append(number)
            size += self._pages.size(number)
            if len(part) >= PAGES_AT_ONCE or size >= BYTES_AT_ONCE:
                yield part
                part, size = [], 0
        if part:
            yield part

    def fire_part(self, numbers: list[int], emitter: Emitter) -> None:
        """Fire the due timers on some pages, and encode the instances there again that have had no event."""
        held = set(self._live)
        for number in numbers:
            self._adopt_all(number)
        identities = [identity for number in numbers for identity in self._pages.page(number)]
        for _ in range(REARMED_AT_MOST):
            if not self._fire_once(emitter, identities):
                break
        else:
            self._exhausted.update(identities)
        for number in numbers:
            self._note_all(number)
            self._instances.put_back(number, held)

    def _adopt_all(self, number: int) -> None:
        """Decode all instances on a page, but for those that have expired."""
        page = self._pages.page(number)
        for identity, stored in list(page.items()):
            if not isinstance(stored, Instance):  # it is still encoded
                if self._element.expires is not None and self._instances.is_expired(decode_shallow(stored)):
                    self._instances.forget(identity, page)
                else:
                    entry = self._instances.read(identity, stored)
                    self._instances.adopt(identity, entry, page)

    def _fire_once(self, emitter: Emitter, identities: Iterable[bytes]) -> bool:
        """Fire the due timers of some instances, the earliest first; returns whether any was due."""
        assert self._clock is not None
        live = self._live
        dues = [(due, identity) for identity in identities if (due := live[identity].next_due) is not None]
        ready = sorted((time, identity) for time, identity in dues if time <= self._fires_until(self._live[identity]))
        for _, identity in ready:
            entry = self._live[identity]
            until = self._fires_until(entry)
            if entry.due is not None and entry.due <= until:
                entry.due = None
                self._call(identity, "on_timer", emitter)
            entry = self._live[identity]
            if entry.interval is not None and entry.interval <= until:
                assert self._element.every is not None
                entry.interval = multiple_after(self._clock, self._element.every)
                self._call(identity, "on_interval", emitter)
        return bool(ready)

    def _call(self, identity: bytes, hook: str, emitter: Emitter) -> None:
        """Call a timer's hook, wholly or not at all: if it fails, the instance is restored."""
        entry = self._live[identity]
        undo = entry.state.undo() if isinstance(entry.state, Stepwise) else None
        before = b"" if undo is not None else self._instances.encode(entry)
        self._context.due, self._work.identity = entry.due, identity
        try:
            emissions = emitter.collect(getattr(entry.state, hook)())
            if undo is None:  # steps that can be undone add nothing that might not be storable
                self._instances.check_storable(identity, entry)
        except FAULTS as error:
            if undo is not None:
                undo()
            else:
                self._instances.adopt(identity, self._instances.decode(before))
            if isinstance(entry.state, Stepwise):
                self._step_by_step(identity, emitter)
            else:
                self._letters.write_uncaused(self._element, error, NONE)
        else:
            entry.due = self._context.due
            emitter.add_uncaused(emissions, NONE)

    def _step_by_step(self, identity: bytes, emitter: Emitter) -> None:
        """Take the steps of a timer one by one, so that a failing step does not prevent the others."""
        while self._live[identity].state.is_due():
            entry = self._live[identity]
            before = self._instances.encode(entry)
            try:
                emissions = emitter.collect(entry.state.step())
                self._instances.check_storable(identity, entry)
            except FAULTS as error:
                self._instances.adopt(identity, self._instances.decode(before))
                self._letters.write_uncaused(self._element, error, NONE, self._live[identity].state.skip())
            else:
                emitter.add_uncaused(emissions, NONE)
        entry = self._live[identity]
        entry.state.rearm()
        entry.due = self._context.due

    def note(self) -> None:
        """Record in the header when the earliest timer of each page is due."""
        if not self._element.has_timers:
            return
        visited = set() if self._clock is None else set(self._pages.due(self._clock))
        for number in visited:
            self._note_all(number)
        numbers = self._pages.numbers(self._hashes(list(self._live))).tolist()
        dues = [
            None if number in visited else entry.next_due for number, entry in zip(numbers, self._live.values(), strict=True)
        ]
        self._pages.note_dues(numbers, dues)

    def _note_all(self, number: int) -> None:
        """Record when the earliest timer of a page is due whose instances are all decoded."""
        dues = (entry.next_due for entry in self._pages.page(number).values())
        self._pages.note_due(number, min((due for due in dues if due is not None), default=None))
