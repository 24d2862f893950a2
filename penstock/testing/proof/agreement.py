"""In what runs of a topology must agree: at each sink, by its semantics; and which element is to blame where they do not."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from penstock.app.element import Element, overrides
from penstock.app.stream import Sink, Stream
from penstock.app.topology import Topology
from penstock.kinds.fields import encoded_names
from penstock.testing.proof.outcome import Difference, Outcome, Rows, difference, difference_of_tables

LETTERS = "dead letters"


@dataclass(frozen=True)
class Disagreement:
    """Where two runs differ.

    Parameters
    ----------
    element: the first that does: what it was handed is the same.
    place: the stream, or the dead letters. rounding: whether it is one of the last digits of floats alone. late: whether other
        events were late.
    """

    element: str
    place: str
    difference: Difference
    rounding: bool = False
    late: bool = False


class Agreement:
    """Compares runs.

    A row that an instance emits with each micro-batch (``on_batch``) stands for a state of that moment. In other micro-batches
    there are other moments, so of such rows only the last of each instance must agree.

    Parameters
    ----------
    topology: whose runs they are.
    """

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._excused: set[str] = set()
        """Elements that were found out, and what comes after them, which is not compared any more."""

    def excuse(self, element: str) -> None:
        """Compare no more what comes of an element."""
        waiting = [element]
        while waiting:
            name = waiting.pop()
            if name in self._excused:
                continue
            self._excused.add(name)
            emits = next((one.emits for one in self._topology.elements if one.name == name), ())
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
        if expected.failed or got.failed:
            return self._of_failure(expected, got)
        moments = self.momentary(expected, got) if not same_batches else {}
        wrong = [
            sink
            for sink in self._topology.sinks
            if not self._is_excused(sink.stream) and self._differs(sink.stream, sink, expected, got, moments)
        ]
        letters = self._letters(expected, got)
        behind = {stream for sink in wrong for stream in self._upstream(sink.stream)}
        for element in self._topology.in_order:
            if element.name in self._excused:
                continue
            late = expected.late.get(element.name, 0) != got.late.get(element.name, 0)
            if element.name in letters:
                return Disagreement(element.name, LETTERS, letters[element.name], late=late)
            for stream in element.emits:
                tables = [sink for sink in wrong if sink.stream is stream and sink.key] if stream in behind else []
                for sink in (None, *tables) if stream in behind else ():
                    found = self._differs(stream, sink, expected, got, moments)
                    if found:
                        same = not self._differs(stream, sink, expected.rounded(), got.rounded(), moments)
                        return Disagreement(element.name, stream.name, found, same, late)
        return None

    def momentary(self, *outcomes: Outcome) -> dict[str, tuple[str, ...] | None]:
        """Streams with rows of moments: the fields of JSON that name an instance, or None where runs say it themselves."""
        found: dict[str, tuple[str, ...] | None] = {}
        for element in self._topology.in_order:
            inherited = [one for one in element.inputs if one.name in found] if not element.keyed else []
            for stream in element.emits:
                if any(stream.name in outcome.moments for outcome in outcomes):
                    found[stream.name] = None
                elif inherited or _in_columns(element, stream, outcomes):
                    found[stream.name] = _named_by(element.key, stream) if not inherited else ()
        return found

    def moments_within(self, coarse: Outcome, finest: Outcome) -> Disagreement | None:
        """A row of a moment that the finest micro-batches, of one event each in the same order, have not: it is of the
        micro-batch.
        """
        moments = self.momentary(coarse, finest)
        for element in self._topology.in_order:
            for stream in element.emits:
                if element.name in self._excused or stream.name not in moments:
                    continue
                if not any(sink.stream in self._downstream(stream) for sink in self._topology.sinks if not sink.key):
                    continue
                known = set(finest.streams.get(stream.name, []))
                strange = [row for row in coarse.streams.get(stream.name, []) if row not in known]
                if strange:
                    return Disagreement(element.name, stream.name, Difference(strange, []))
        return None

    def _differs(
        self,
        stream: Stream[Any],
        sink: Sink | None,
        expected: Outcome,
        got: Outcome,
        moments: dict[str, tuple[str, ...] | None],
    ) -> Difference:
        name = stream.name
        mine, theirs = expected.streams.get(name, []), got.streams.get(name, [])
        if sink is not None and sink.key:
            return difference_of_tables(mine, theirs, names_of(sink))
        if name not in moments:
            return difference(mine, theirs)
        fields = moments[name]
        if fields is not None:
            return difference_of_tables(mine, theirs, fields) if fields else Difference([], [])
        mine, theirs = _without(mine, expected.moments.get(name, [])), _without(theirs, got.moments.get(name, []))
        rest = difference(mine, theirs)
        return rest or difference(list(expected.last.get(name, {}).values()), list(got.last.get(name, {}).values()))

    def _letters(self, expected: Outcome, got: Outcome) -> dict[str, Difference]:
        """The dead letters that only one run has, by element; those of a source's own are the same in all runs."""
        found = difference(expected.letters, got.letters)
        by_element: dict[str, Difference] = {}
        for rows, side in ((found.missing, "missing"), (found.extra, "extra")):
            for row in rows:
                name = json.loads(row)["element"]
                if name is not None and name not in self._excused:
                    getattr(by_element.setdefault(name, Difference([], [])), side).append(row)
        return by_element

    def _of_failure(self, expected: Outcome, got: Outcome) -> Disagreement | None:
        """Where one run was stopped by an error: how much the other has done by then means nothing."""
        if bool(expected.failed) == bool(got.failed):
            return None
        said = got.failed or expected.failed
        names = [element.name for element in self._topology.in_order if said.startswith(f"{element.name}:")]
        if not names or names[0] in self._excused:
            return None
        found = Difference([expected.failed or "(no error)"], [got.failed or "(no error)"])
        return Disagreement(names[0], "the error that stops the run", found)

    def _is_excused(self, stream: Stream[Any]) -> bool:
        return any(element.name in self._excused for element in self._topology.producers(stream))

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
    """Whether an element of the event dialect has a hook that is called with each micro-batch."""
    body = element.prototype
    return body is not None and overrides(getattr(body, "body", body), "on_batch")  # a window's body is within


def names_of(sink: Sink) -> list[str]:
    """The fields of a sink's key as JSON calls them."""
    return _encoded(sink.stream, sink.key)


def _encoded(stream: Stream[Any], fields: Iterable[str]) -> list[str]:
    names = encoded_names(stream.event_type)
    return [names[field] for field in fields]


def _named_by(key: tuple[str, ...], stream: Stream[Any]) -> tuple[str, ...]:
    """The fields by which a stream names an instance; none where it does not."""
    return tuple(_encoded(stream, key)) if set(key) <= set(stream.event_type.__struct_fields__) else ()


def _in_columns(element: Element, stream: Stream[Any], outcomes: Iterable[Outcome]) -> bool:
    """Whether an element whose instances lie in columns emits a row for each of these, and not one for each event."""
    return (
        element.dialect == "batch"
        and element.keyed
        and any(len(one.streams.get(stream.name, ())) != one.events.get(element.name, 0) for one in outcomes)
    )


def _without(rows: Rows, others: Rows) -> Rows:
    return list((Counter(rows) - Counter(others)).elements())
