"""Compares the results of runs at each sink, by the sink's semantics, and finds the first element that differs."""

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
    """A difference between two runs.

    Args:
        element: the first element in topological order that differs; its input is equal in both runs.
        place: the stream that differs, or the dead letters.
        rounding: whether only the last digits of floats differ.
        late: whether the numbers of late events differ.
    """

    element: str
    place: str
    difference: Difference
    rounding: bool = False
    late: bool = False


class Agreement:
    """Compares runs of a topology.

    A row that an instance emits in ``on_batch`` is a momentary row: it shows the state at the end of a micro-batch. Runs with
    different micro-batches have different momentary rows, so only the last of each instance must agree.

    Args:
        topology: the topology of the runs.
    """

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._excused: set[str] = set()
        """Elements with findings, and all elements downstream of them; they are no longer compared."""

    def excuse(self, element: str) -> None:
        """Exclude an element, and all elements downstream of it, from comparison."""
        waiting = [element]
        while waiting:
            name = waiting.pop()
            if name in self._excused:
                continue
            self._excused.add(name)
            emits = next((known.emits for known in self._topology.elements if known.name == name), ())
            waiting += [consumer.name for stream in emits for consumer in self._topology.consumers(stream)]

    @property
    def all_excused(self) -> bool:
        """Whether no sink is left to compare."""
        return all(self._is_excused(sink.stream) for sink in self._topology.sinks)

    def of(self, expected: Outcome, got: Outcome, *, same_batches: bool) -> Disagreement | None:
        """Find the first element in which two runs disagree; None where they agree at all sinks.

        Args:
            same_batches: whether both runs have equal micro-batches; then momentary rows must agree, too.
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
        # Blame the first element, in topological order, that emits a differing stream leading to a wrong sink.
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
                    rows = self._differs(stream, sink, expected, got, moments)
                    if rows:
                        rounding = not self._differs(stream, sink, expected.rounded(), got.rounded(), moments)
                        return Disagreement(element.name, stream.name, rows, rounding, late)
        return None

    def momentary(self, *outcomes: Outcome) -> dict[str, tuple[str, ...] | None]:
        """Return the streams with momentary rows, each with the JSON fields that name the instance that has emitted a row.

        No fields, where none name it; None in place of fields, where the outcomes say themselves which rows are momentary.
        """
        fields_of: dict[str, tuple[str, ...] | None] = {}
        for element in self._topology.in_order:
            inherited = [source for source in element.inputs if source.name in fields_of] if not element.keyed else []
            for stream in element.emits:
                if any(stream.name in outcome.moments for outcome in outcomes):
                    fields_of[stream.name] = None
                elif inherited or _in_columns(element, stream, outcomes):
                    fields_of[stream.name] = _named_by(element.key, stream) if not inherited else ()
        return fields_of

    def moments_within(self, coarse: Outcome, finest: Outcome) -> Disagreement | None:
        """Find momentary rows that the run with one event per micro-batch, in equal order, does not have: they depend on the
        cut into micro-batches.
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
        """Return the dead letters that only one run has, by element; those of sources are equal in all runs."""
        letters = difference(expected.letters, got.letters)
        by_element: dict[str, Difference] = {}
        for rows, side in ((letters.missing, "missing"), (letters.extra, "extra")):
            for row in rows:
                name = json.loads(row)["element"]
                if name is not None and name not in self._excused:
                    getattr(by_element.setdefault(name, Difference([], [])), side).append(row)
        return by_element

    def _of_failure(self, expected: Outcome, got: Outcome) -> Disagreement | None:
        """Compare runs of which an error stopped one: only the error counts, not how far the other run came."""
        if bool(expected.failed) == bool(got.failed):
            return None
        error = got.failed or expected.failed
        names = [element.name for element in self._topology.in_order if error.startswith(f"{element.name}:")]
        if not names or names[0] in self._excused:
            return None
        errors = Difference([expected.failed or "(no error)"], [got.failed or "(no error)"])
        return Disagreement(names[0], "the error that stops the run", errors)

    def _is_excused(self, stream: Stream[Any]) -> bool:
        return any(element.name in self._excused for element in self._topology.producers(stream))

    def _upstream(self, stream: Stream[Any]) -> Iterable[Stream[Any]]:
        seen, waiting = {stream}, [stream]
        while waiting:
            for element in self._topology.producers(waiting.pop()):
                fresh = [source for source in element.inputs if source not in seen]
                seen.update(fresh)
                waiting += fresh
        return seen

    def _downstream(self, stream: Stream[Any]) -> set[Stream[Any]]:
        seen, waiting = {stream}, [stream]
        while waiting:
            for element in self._topology.consumers(waiting.pop()):
                fresh = [target for target in element.emits if target not in seen]
                seen.update(fresh)
                waiting += fresh
        return seen


def says_moments(element: Element) -> bool:
    """Whether an element of the event dialect overrides ``on_batch``, and so emits momentary rows."""
    body = element.prototype
    return body is not None and overrides(getattr(body, "body", body), "on_batch")  # a window wraps its body


def names_of(sink: Sink) -> list[str]:
    """Return the fields of a sink's key by their names in JSON."""
    return _encoded(sink.stream, sink.key)


def _encoded(stream: Stream[Any], fields: Iterable[str]) -> list[str]:
    names = encoded_names(stream.event_type)
    return [names[field] for field in fields]


def _named_by(key: tuple[str, ...], stream: Stream[Any]) -> tuple[str, ...]:
    """Return the JSON fields of a stream that name an instance; empty where the key is not among its fields."""
    return tuple(_encoded(stream, key)) if set(key) <= set(stream.event_type.__struct_fields__) else ()


def _in_columns(element: Element, stream: Stream[Any], outcomes: Iterable[Outcome]) -> bool:
    """Whether a keyed element of the batch dialect emits a row per instance instead of a row per event."""
    return (
        element.dialect == "batch"
        and element.keyed
        and any(len(run.streams.get(stream.name, ())) != run.events.get(element.name, 0) for run in outcomes)
    )


def _without(rows: Rows, others: Rows) -> Rows:
    return list((Counter(rows) - Counter(others)).elements())
