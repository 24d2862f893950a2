"""A container for a keyed element of the batch dialect in one partition: its instances' states lie in arrays."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.app.element import Element
from penstock.app.state import LARGEST_STATE
from penstock.app.states import States
from penstock.app.window.windowing import FOREVER
from penstock.errors import StateError
from penstock.kinds.table import named
from penstock.runtime.bodies import conformed
from penstock.runtime.column_pages import DUE, HASH, TOUCHED, Array, ColumnPages, Field, Instances, fields_of, seconds_us
from penstock.runtime.events import EventBatch
from penstock.runtime.hottest import Hottest
from penstock.runtime.key import Places
from penstock.runtime.late import Latecomers
from penstock.runtime.letters import FAULTS
from penstock.runtime.lineage import NONE, Ints, Lineage, LineageColumns
from penstock.runtime.pages import PageStore
from penstock.runtime.places import sent_to
from penstock.runtime.stage import Stage
from penstock.runtime.timers import REARMED_AT_MOST

NEVER = np.datetime64("NaT", "us")
_DUE = Field("due", named("datetime"), True, None)


class ColumnDelivery:
    """All events of a micro-batch for one element, in order: a record batch, and the events' lineages."""

    def __init__(self, element: Element, stage: Stage, columns: pa.RecordBatch, lineage: LineageColumns) -> None:
        [self.stream] = element.inputs
        self.columns, self.lineage = columns, lineage
        self._codec = stage.wiring.codec(self.stream.event_type)

    def __len__(self) -> int:
        return int(self.columns.num_rows)

    def take(self, rows: Ints) -> None:
        """Keep only the events of some rows."""
        self.columns, self.lineage = self.columns.take(pa.array(rows)), self.lineage.take(rows)

    def row(self, row: int) -> tuple[Any, Any]:
        """Return the stream, and one of its events, for a dead letter."""
        return self.stream, self._codec.shown(self.columns, row)


class ColumnContainer:
    """Applies a micro-batch's events to the instances of one element, all of them in one call.

    The body works on copies of the state arrays, so a call applies all of its events or none. If it raises, the batch is halved
    until each faulty event is alone, and becomes a dead letter.
    """

    def __init__(self, element: Element, stage: Stage, store: PageStore, now: float, watermark: float | None) -> None:
        assert element.state is not None
        self.element, self._stage = element, stage
        self._tally = stage.tally.element(element.name)
        self._key, self._key_columns = stage.wiring.keys[element.name], stage.wiring.key_columns[element.name]
        self._emitted = stage.wiring.codec(element.emits[0].event_type)
        self._fields = fields_of(element.state)
        self._pages = ColumnPages(element.name, store, self._fields)
        self._now, self._watermark = seconds_us(now), NEVER if watermark is None else seconds_us(watermark)
        self._mark, self._ran = watermark, now
        self._clock = now if element.timers == "processing" else watermark
        self._outputs: list[EventBatch] = []
        self._held = self._none()
        self._where: Ints = np.empty(0, np.int64)

    def handle(self, delivery: ColumnDelivery) -> None:
        """Apply a delivery's events, which must be in order."""
        handed = len(delivery)
        self._stage.tally.come(sent_to(self.element.name), delivery.lineage)
        late = Latecomers(self.element, self._stage).refuse_all(self._mark, None, delivery.lineage, delivery.row)
        if late:
            delivery.take(np.setdiff1d(np.arange(len(delivery)), sorted(late)))
        places = self._key_columns.places(delivery.columns)
        delivery.lineage = delivery.lineage.judged()
        hottest = Hottest.of(places.identities, np.bincount(places.at), self._key.decode)
        self._tally.hottest.merge(hottest)
        before, is_applied = self._open(places)
        with self._tally.timed_together(handed):
            if len(delivery):
                self._apply(delivery, places.at, slice(0, len(delivery)), is_applied)
        self._held.arrays[TOUCHED][self._where] = self._now
        never = ~is_applied
        never[:before] = False
        if never.any():  # made for events of which none could be applied
            self._held.keep(~never)
        self._pages.header.instances += len(self._held) - before

    def finish(self) -> float | None:
        """Fire due timers, write the state, route the emissions.

        Returns when the next timer of this container is due, in seconds since the epoch; None where there is none.
        """
        self._fire()
        self._tally.instances[self._stage.tally.partition] = self._pages.header.instances
        self._pages.header.ran = max(self._ran, self._pages.header.ran or 0.0)
        self._pages.write(self._held)
        for batch in self._outputs:
            self._stage.route(batch)
        return min(self._pages.header.due.values(), default=None)

    # --- instances ------------------------------------------------------------------------------

    def _open(self, places: Places) -> tuple[int, Any]:
        """Read the pages of the batch's instances, of due timers, and of the expiry sweep; drop expired and add new instances.

        Returns the number of instances that existed before, and an array of False for all instances that are now held.
        """
        hashes, pages = self._key.hashes(places.identities), self._pages
        numbers = set(np.unique(pages.numbers(hashes)).tolist() if len(hashes) else ())
        if self.element.has_timers and self._clock is not None:
            numbers |= set(pages.due(self._clock))
        if self.element.expires is not None:
            numbers |= set(pages.next_to_sweep())
        self._held = held = pages.read(numbers)
        if self.element.expires is not None:
            ends = held.arrays[TOUCHED] + np.timedelta64(min(round(self.element.expires * 1e6), FOREVER), "us")
            expired = ends <= self._now
            self._fire_before_expiry(expired, ends)
            pages.header.instances -= int(expired.sum())
            held.keep(~expired)
        before = len(held)
        identities = pa.array(places.identities, pa.binary())
        where = pc.index_in(identities, value_set=held.identities).fill_null(-1).to_numpy().astype(np.int64)
        new = where < 0
        where[new] = before + np.arange(int(new.sum()))
        held.add(self._made(identities.filter(pa.array(new)), hashes[new]))
        self._where = where
        return before, np.zeros(len(held), bool)

    def _made(self, identities: pa.Array, hashes: Ints) -> Instances:
        """Create instances with default state."""
        number = len(identities)
        own = {HASH: hashes, TOUCHED: np.full(number, self._now), DUE: np.full(number, NEVER)}
        return Instances(identities, own | {field.name: field.made(number) for field in self._fields})

    def _none(self) -> Instances:
        return self._made(pa.array([], pa.binary()), np.empty(0, np.int64))

    def _states(self, rows: Ints, keys: pa.RecordBatch) -> States:
        """Copy the states of some held instances, for a call of the body."""
        arrays = {field.name: self._held.arrays[field.name][rows] for field in self._fields}
        return States(keys=keys, now=self._now, watermark=self._watermark, due=self._held.arrays[DUE][rows], **arrays)

    def _keys(self, columns: pa.RecordBatch, last: Ints, rows: Ints) -> pa.RecordBatch:
        """Return the keys of some held instances, each in the one form of all equal keys; ``last`` has a row of each."""
        if self._key_columns.respells:
            return self._key_columns.keys(self._held.identities.take(pa.array(rows)).to_pylist())
        return columns.select(self._key_columns.schema.names).take(pa.array(last))

    def _kept(self, states: States) -> dict[str, Array]:
        """Return the arrays of the states after a call, checked and converted to the types that pages store.

        Raises:
            StateError: an array cannot be stored; names the field.
        """
        states_left = {
            field.name: self._fitting(field, getattr(states, field.name), len(states.keys)) for field in self._fields
        }
        return states_left | {DUE: self._fitting(_DUE, states.due, len(states.keys))}

    def _fitting(self, field: Field, given: Any, number: int) -> Array:
        name = f"Element {self.element.name}: states.{field.name}"
        array: Array = np.asarray(given)
        if array.shape != (number,):
            raise StateError(f"{name} has the shape {array.shape}, and there are {number} instances: give each one a value.")
        if field.numpy == np.object_:
            try:
                column = pa.array(array, field.arrow)
                array = column.to_numpy(zero_copy_only=False)  # the values as they will be read from the page
            except pa.ArrowException as error:
                raise StateError(f"{name} cannot be kept: {error}; it is of type {field.kind.name}.") from error
            largest = pc.max(pc.binary_length(column)).as_py() or 0
            if largest > LARGEST_STATE:
                raise StateError(f"{name} has {largest:,} bytes, and at most {LARGEST_STATE:,} are kept; keep less of it.")
            missing = column.null_count
        else:
            if not np.can_cast(array.dtype, field.numpy, "same_kind"):
                raise StateError(
                    f"{name} is of type {array.dtype}, and kept as {field.numpy}: convert it, as "
                    f"states.{field.name} = array.astype({field.numpy.name!r})."
                )
            if array.dtype.kind == "u" and (array > np.iinfo(np.int64).max).any():
                raise StateError(f"{name} holds an integer of more than 63 bits.")
            array = array.astype(field.numpy)
            missing = int(np.isnat(array).sum()) if array.dtype.kind in "mM" else 0
        if missing and not field.optional:
            raise StateError(f"{name} misses {missing} values; declare it as `{field.kind.name} | None` to allow that.")
        return array

    # --- calls ----------------------------------------------------------------------------------

    def _apply(self, delivery: ColumnDelivery, at: Ints, part: slice, is_applied: Array) -> None:
        """Call the body for a part of a batch; if it raises, for its halves in turn."""
        if part.stop - part.start == len(at):  # the first call, for the whole batch
            places, compact = np.arange(len(self._where)), at.copy()
        else:
            places, compact = np.unique(at[part], return_inverse=True)
        compact.flags.writeable = False
        rows, lineage = self._where[places], delivery.lineage.take(part)
        columns = delivery.columns.slice(part.start, part.stop - part.start)
        last = np.empty(len(places), np.int64)
        last[compact] = np.arange(len(compact))  # the last assignment wins: each instance's last row
        states = self._states(rows, self._keys(columns, last, rows))
        try:
            output, states_left = self._call(self.element.body, columns, compact, states)
        except FAULTS as error:
            if part.stop - part.start == 1:
                stream, event = delivery.row(part.start)
                self._stage.letters.write(self.element.name, stream, event, error, lineage.row(0))
                return
            middle = (part.start + part.stop) // 2
            self._apply(delivery, at, slice(part.start, middle), is_applied)
            self._apply(delivery, at, slice(middle, part.stop), is_applied)
            return
        is_applied[rows] = True
        self._keep(rows, states_left)
        if output.num_rows == len(places) != len(compact):
            lineage = LineageColumns.uncaused(lineage.born[last].tolist(), self._stage.tally.partition)
        self._emit(output, lineage.spread(output.num_rows))

    def _call(self, body: Callable[..., Any], *given: Any) -> tuple[pa.RecordBatch, dict[str, Array]]:
        """Call the body, or ``on_timer``; returns its output and the states it has left. The states are the last argument."""
        returned = body(*given)
        return conformed(self.element, returned, self._emitted), self._kept(given[-1])

    def _keep(self, rows: Ints, kept: dict[str, Array]) -> None:
        for name, array in kept.items():
            self._held.arrays[name][rows] = array

    def _emit(self, output: pa.RecordBatch, lineage: LineageColumns) -> None:
        if output.num_rows:
            self._outputs.append(EventBatch(self.element.emits[0], lineage, columns=output))

    # --- timers ---------------------------------------------------------------------------------

    def _fire(self) -> None:
        header = self._pages.header
        if self._mark is not None:
            header.fired = self._mark if header.fired is None else max(header.fired, self._mark)
        if self._clock is not None:
            self._fire_until(np.full(len(self._held), seconds_us(self._clock)))

    def _fire_before_expiry(self, expired: Array, ends: Array) -> None:
        """Fire the timers of expired instances that came due before the expiry, when no micro-batch ran in between."""
        if self._clock is None:
            return
        clock, ran = seconds_us(self._clock), self._pages.header.ran
        if self.element.timers == "processing":
            until = np.where(expired, np.minimum(ends, clock), NEVER)
        else:
            until = np.where(expired & (ran is None or ends > seconds_us(ran)), clock, NEVER)
        self._fire_until(until)

    def _fire_until(self, until: Array) -> None:
        """Fire the timers due by ``until``, which has one time for each held instance; earliest first."""
        if self.element.on_timer is None:
            return
        for _ in range(REARMED_AT_MOST):
            due = self._held.arrays[DUE]
            ready = np.flatnonzero(due <= until)
            if not len(ready):
                return
            ready = ready[np.argsort(due[ready], kind="stable")]
            due[ready] = NEVER
            self._call_timer(ready)

    def _call_timer(self, rows: Ints) -> None:
        """Call ``on_timer`` for the instances of some rows, earliest first; if it raises, for each half of the rows."""
        assert self.element.on_timer is not None
        identities = self._held.identities.take(pa.array(rows)).to_pylist()
        try:
            output, states_left = self._call(self.element.on_timer, self._states(rows, self._key_columns.keys(identities)))
        except FAULTS as error:
            if len(rows) == 1:
                lineage = Lineage.uncaused(NONE, self._stage.tally.partition)
                self._stage.letters.write(self.element.name, self.element.inputs[0], None, error, lineage)
                return
            for half in np.array_split(rows, 2):
                self._call_timer(half)
            return
        self._keep(rows, states_left)
        self._emit(output, LineageColumns.uncaused([NONE] * output.num_rows, self._stage.tally.partition))
