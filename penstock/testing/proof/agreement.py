"""In what runs of a topology must agree: at each sink, by its semantics; and which element is to blame where they do not."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from penstock.app.element import Element, overrides
from penstock.app.stream import Stream
from penstock.app.topology import Topology
from penstock.testing.proof.outcome import (
    Compared,
    Difference,
    Outcome,
    Rows,
    difference,
    difference_of_tables,
    is_rounding,
)

LETTERS = "dead letters"


@dataclass(frozen=True)
class Disagreement:
    """Where two runs differ.

    Parameters
    ----------
    element: the first that does: what it was handed is the same.
    place: the stream, or the dead letters. rounding: whether it is one of the last digits of floats alone. late: whether other events
        were late.
    """

    element: str
    place: str
    difference: Difference
    rounding: bool
    late: bool


class Agreement:
    """Compares runs.

    A row that an instance emits with each micro-batch (``on_batch``) stands for a state of that moment. In other micro-batches there
    are other moments, so of such streams only the last row of each key must agree.

    Parameters
    ----------
    topology: whose runs they are.
    """

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self.excused: set[str] = set()
        """Elements that were found out, and what comes after them, which is not compared any more."""
        self.momentary = self._momentary()
        """Streams with rows of moments, each with the fields that name an instance; none where no field does."""

    def excuse(self, element: str) -> None:
        """Compare no more what comes of an element."""
        waiting = [element]
        while waiting:
            name = waiting.pop()
            if name in self.excused:
                continue
            self.excused.add(name)
            emits = next(one for one in self._topology.elements if one.name == name).emits
            waiting += [one.name for stream in emits for one in self._topology.consumers(stream)]

    @property
    def all_excused(self) -> bool:
        """Whether nothing is left to be compared at any sink."""
        return all(self._is_excused(sink.stream) for sink in self._topology.sinks)

    def of(self, expected: Outcome, got: Outcome, *, same_batches: bool) -> Disagreement | None:
        """In what two runs disagree; None where in nothing that can be seen at a sink.

        Parameters
        ----------
        same_batches: whether their micro-batches are the same.
        """
        if expected.failed != got.failed and (found := self._of_failure(expected, got)) is not None:
            return found
        wrong = [
            sink for sink in self._topology.sinks if self._differs(sink.stream, sink.key, expected, got, same_batches)
        ]
        wrong = [sink for sink in wrong if not self._is_excused(sink.stream)]
        letters = self._letters(expected, got)
        if not wrong and letters is None:
            return None
        behind = {stream for sink in wrong for stream in self._upstream(sink.stream)}
        for element in self._topology.in_order:
            if element.name in self.excused:
                continue
            late = expected.late.get(element.name, 0) != got.late.get(element.name, 0)
            if letters is not None and letters[0] == element.name:
                return Disagreement(element.name, LETTERS, letters[1], False, late)
            for stream in element.emits:
                if stream in behind:
                    keys = [sink.key for sink in wrong if sink.stream is stream and sink.key]
                    compare = self._comparing(stream, (), same_batches)
                    apart = self._compared(stream, compare, expected, got)
                    if not apart and keys:
                        compare = self._comparing(stream, keys[0], same_batches)
                        apart = self._compared(stream, compare, expected, got)
                    if apart:
                        rounding = is_rounding(expected.streams[stream.name], got.streams[stream.name], compare)
                        return Disagreement(element.name, stream.name, apart, rounding, late)
        if wrong:  # a source goes straight into a table, whose last rows depend on the order
            sink = wrong[0]
            compare = self._comparing(sink.stream, sink.key, same_batches)
            name = next((one.name for one in self._topology.producers(sink.stream)), sink.name)
            return Disagreement(name, sink.name, self._compared(sink.stream, compare, expected, got), False, False)
        return None

    def _letters(self, expected: Outcome, got: Outcome) -> tuple[str | None, Difference] | None:
        import json

        def mine(rows: Rows) -> Rows:
            return [row for row in rows if json.loads(row)["element"] not in (*self.excused, None)]

        found = difference(mine(expected.letters), mine(got.letters))
        if not found:
            return None
        return json.loads((found.missing or found.extra)[0])["element"], found

    def _of_failure(self, expected: Outcome, got: Outcome) -> Disagreement | None:
        said = got.failed or expected.failed
        names = [element.name for element in self._topology.in_order if said.startswith(f"{element.name}:")]
        if not names or names[0] in self.excused:
            return None
        found = Difference([expected.failed or "(no error)"], [got.failed or "(no error)"])
        return Disagreement(names[0], "the error that stops the run", found, False, False)

    def _differs(
        self, stream: Stream[Any], key: tuple[str, ...], expected: Outcome, got: Outcome, same_batches: bool
    ) -> bool:
        return bool(self._compared(stream, self._comparing(stream, key, same_batches), expected, got))

    def _compared(self, stream: Stream[Any], compare: Compared, expected: Outcome, got: Outcome) -> Difference:
        return compare(expected.streams.get(stream.name, []), got.streams.get(stream.name, []))

    def _comparing(self, stream: Stream[Any], key: tuple[str, ...], same_batches: bool) -> Compared:
        if key:
            return lambda mine, theirs: difference_of_tables(mine, theirs, key)
        if stream.name in self.momentary and not same_batches:
            fields = self.momentary[stream.name]
            return lambda mine, theirs: difference_of_tables(mine, theirs, fields) if fields else Difference([], [])
        return difference

    def moments_within(self, coarse: Outcome, finest: Outcome) -> Disagreement | None:
        """A row of a moment that the finest micro-batches, of one event each in the same order, have not: it is of the micro-batch."""
        for element in self._topology.in_order:
            for stream in element.emits:
                if element.name in self.excused or stream.name not in self.momentary:
                    continue
                if not any(sink.stream in self._downstream(stream) for sink in self._topology.sinks if not sink.key):
                    continue
                known = set(finest.streams.get(stream.name, []))
                strange = [row for row in coarse.streams.get(stream.name, []) if row not in known]
                if strange:
                    return Disagreement(element.name, stream.name, Difference(strange, []), False, False)
        return None

    def _momentary(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for element in self._topology.in_order:
            own = says_moments(element)
            inherited = any(stream.name in found for stream in element.inputs) and not element.keyed
            if not own and not inherited:
                continue
            for stream in element.emits:
                names = element.key if own else next(found[one.name] for one in element.inputs if one.name in found)
                fields = stream.event_type.__struct_fields__
                found[stream.name] = tuple(names) if names and set(names) <= set(fields) else ()
        return found

    def _is_excused(self, stream: Stream[Any]) -> bool:
        return any(element.name in self.excused for element in self._topology.producers(stream))

    def _upstream(self, stream: Stream[Any]) -> Iterable[Stream[Any]]:
        seen, waiting = {stream}, [stream]
        while waiting:
            for element in self._topology.producers(waiting.pop()):
                fresh = [one for one in element.inputs if one not in seen]
                seen.update(fresh)
                waiting += fresh
        return seen

    def _downstream(self, stream: Stream[Any]) -> set[Stream[Any]]:
        seen, waiting = {stream}, [stream]
        while waiting:
            for element in self._topology.consumers(waiting.pop()):
                fresh = [one for one in element.emits if one not in seen]
                seen.update(fresh)
                waiting += fresh
        return seen


def says_moments(element: Element) -> bool:
    """Whether an element emits something with each micro-batch."""
    if element.prototype is not None:
        return overrides(getattr(element.prototype, "body", element.prototype), "on_batch")  # a window's body is within
    return element.dialect == "batch" and element.keyed
