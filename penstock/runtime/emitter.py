"""Checks and collects what an element emits while it handles many events."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from inspect import isasyncgen, isawaitable, iscoroutine, isgenerator
from typing import Any, NoReturn

import numpy as np

from penstock.app.element import Element
from penstock.app.stream import Emission, Stream
from penstock.errors import EmissionError
from penstock.kinds.event import Event
from penstock.runtime.compiling.function import Puts
from penstock.runtime.events import EventBatch
from penstock.runtime.lineage import LineageColumns
from penstock.runtime.wiring import Wiring


class Emitter:
    """Collects what one element emits while it handles many events.

    Args:
        causes: the lineages of these events.
        partition: the number of the partition in which the element runs.
    """

    def __init__(self, element: Element, wiring: Wiring, causes: LineageColumns, partition: int) -> None:
        self._element = element
        self._causes = causes
        self._uncaused_born: list[int] = []
        self._dropped: dict[int, dict[Stream[Any], int]] = {}
        self._partition = partition
        self._codecs = {stream: wiring.codec(stream.event_type) for stream in element.emits}
        self._checked = {stream: codec.checked for stream, codec in self._codecs.items()}
        self._emitted: dict[Stream[Any], tuple[list[Any], list[int]]] = {stream: ([], []) for stream in element.emits}

    def collect(self, result: Any) -> Sequence[Emission]:
        """Exhaust what a hook yielded or returned, and check it; returns the emissions without adding them yet.

        Raises:
            EmissionError: the result holds something other than events of declared streams.
            msgspec.ValidationError: a value does not have its field's type.
        """
        if result is None:
            return ()
        try:
            emitted = (result,) if type(result) is Emission else iter(result)
        except TypeError:
            if isinstance(result, Event) or isawaitable(result) or isasyncgen(result):
                self._refuse(result)
            raise
        emissions: list[Emission] = []
        try:
            for emission in emitted:  # each is checked as it comes: the hook may go on to change a list that it has emitted
                if type(emission) is not Emission or emission.stream not in self._checked:
                    self._refuse(emission)
                event = self._checked[emission.stream](emission.event)
                emissions.append(emission if event is emission.event else Emission(emission.stream, event))
        except Exception:
            if isgenerator(emitted):  # it may hold a lock, or have set what its `finally` resets
                with suppress(Exception):
                    emitted.close()
            raise
        return emissions

    def checked(self, emission: Any) -> Emission:
        """Check one emission; see `collect`. Where its event holds lists, dicts or events, it gets a copy of them."""
        (own,) = self.collect((emission,))
        return own

    def add(self, emissions: Sequence[Emission], cause: int) -> None:
        """Add emissions that an event caused, given its index among the causes."""
        for emission in emissions:
            events, rows = self._emitted[emission.stream]
            events.append(emission.event)
            rows.append(cause)

    def puts(self) -> Puts:
        """Return the functions that check emissions and add them, for a compiled function; `caused` then notes their cause."""
        events = {stream: codec.appending(self._emitted[stream][0]) for stream, codec in self._codecs.items()}

        def put_one(emission: Any) -> None:
            if type(emission) is not Emission or emission.stream not in events:
                self._refuse(emission)
            events[emission.stream](emission.event)

        def put_all(result: Any) -> None:
            for emission in self.collect(result):
                self._emitted[emission.stream][0].append(emission.event)

        return Puts(events, put_one, put_all)

    def caused(self, ends: Mapping[Stream[Any], Sequence[int]]) -> None:
        """Note what caused the events that were put, given for each stream how many it had after each of the causes."""
        for stream, (_, rows) in self._emitted.items():
            rows += np.repeat(np.arange(len(ends[stream])), np.diff(ends[stream], prepend=0)).tolist()

    def add_uncaused(self, emissions: Sequence[Emission], born: int) -> None:
        """Add emissions that no single event caused; they come after all others. ``born`` is their birth."""
        self.add(emissions, len(self._causes.born) + len(self._uncaused_born))
        self._uncaused_born.append(born)

    @property
    def emitted(self) -> dict[Stream[Any], list[Any]]:
        """The events added so far, by stream."""
        return {stream: events for stream, (events, _) in self._emitted.items()}

    def drop(self, causes: Iterable[int]) -> None:
        """Drop the emissions that some events have caused so far; those that they cause later count."""
        so_far = {stream: len(rows) for stream, (_, rows) in self._emitted.items()}
        self._dropped.update(dict.fromkeys(causes, so_far))

    def batches(self) -> Iterable[EventBatch]:
        """Yield all emissions, as one batch per stream."""
        lineage = self._causes.followed_by(LineageColumns.uncaused(self._uncaused_born, self._partition))
        for stream, (events, rows) in self._emitted.items():
            if self._dropped:
                nothing = dict.fromkeys(self._emitted, 0)
                places_left = [place for place, row in enumerate(rows) if place >= self._dropped.get(row, nothing)[stream]]
                events, rows = [events[place] for place in places_left], [rows[place] for place in places_left]
            if events:
                yield EventBatch(stream, lineage.take(np.array(rows, np.int64)), events=events)

    def _refuse(self, thing: Any) -> NoReturn:
        if isawaitable(thing) or isasyncgen(thing):
            if iscoroutine(thing):
                thing.close()
            raise EmissionError(
                f"{self._element.name} returned something to be awaited, and is no asynchronous function itself: write it as "
                "async def."
            )
        declared = ", ".join(stream.name for stream in self._emitted) or "no stream"
        if isinstance(thing, Event) and self._emitted:
            first = next(iter(self._emitted)).name
            raise EmissionError(
                f"{self._element.name} emitted {thing!r}, which is in no stream, but declares that it emits into {declared}: "
                f"write {first}.emit(event), or {first}(...) with the event's fields."
            )
        emitted = f"into {thing.stream.name}" if isinstance(thing, Emission) else f"{thing!r}"
        raise EmissionError(
            f"{self._element.name} emitted {emitted}, but declares that it emits into {declared}: call a declared stream "
            "with the event's fields, and name it in emits=."
        )
