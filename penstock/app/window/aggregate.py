"""Classes made of reducers, for windows whose results need no code by the user."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from inspect import signature
from operator import attrgetter
from typing import Any, ClassVar, Literal

import msgspec

from penstock.app.element import ProcessingElement
from penstock.app.reducers import Reducer, fold
from penstock.app.spelling import check_name
from penstock.app.stream import Emission, Stream
from penstock.app.window.windowing import Windowing
from penstock.errors import TopologyError
from penstock.kinds.event import field_types, shown
from penstock.kinds.fitting import may_fit
from penstock.kinds.moments import microseconds

Results = Literal["final", "updates", "both"]


class Reducing(ProcessingElement):
    """Base of the classes made of reducers; the fields of an instance are the reducers' states."""

    reducers: ClassVar[Mapping[str, Reducer[Any]]]
    states: ClassVar[tuple[tuple[str, Reducer[Any]], ...]]
    """Each reducer with the field of its state, named differently, as a reducer's name could clash with an attribute."""
    into: ClassVar[Stream[Any]]
    keys: ClassVar[tuple[str, ...]]
    spans: ClassVar[tuple[str, ...]]
    places: ClassVar[tuple[int, ...]]
    """For each field of a result, its index in the list of key fields, span fields and reducers."""
    make: ClassVar[Callable[..., Any]]
    """Makes a result from its fields."""
    time_of: ClassVar[Any]
    merges_apart: ClassVar[bool]
    """Whether a merged state shares nothing mutable with its parts. This holds for all built-in reducers but `fold`."""

    @classmethod
    def merged(cls, parts: Sequence[Any]) -> Any:
        """Return an instance merged from the parts of a window, in order; only valid if `merges_apart`."""
        return cls(*(reducer.merge_all(list(map(attrgetter(state), parts))) for state, reducer in cls.states))

    @classmethod
    def meaning(cls) -> list[list[Any]]:
        """Return what identifies the states, in order: the name, the kind and the field of each reducer."""
        return [[name, *reducer.meaning()] for name, reducer in cls.reducers.items()]

    def on_event(self, event: Any) -> None:
        """Add the event to the state of each reducer that takes it."""
        time = 0 if self.time_of is None else microseconds(type(self).time_of(event))
        for state, reducer in self.states:
            if reducer.wanted is not None and not reducer.wanted(event):
                continue
            value = event if reducer.field is None else getattr(event, reducer.field)
            setattr(self, state, reducer.add(getattr(self, state), value, time))

    def _result(self) -> Emission:
        """Return a result: an event of the window's key, its span, and the reducers' results."""
        known = [*self.key] if len(self.keys) > 1 else [self.key]
        known += [getattr(self.window, name) for name in self.spans]
        known += [reducer.result(getattr(self, state)) for state, reducer in self.states]
        return Emission(self.into, self.make(*[known[place] for place in self.places]))


class _Final(Reducing):
    def on_close(self) -> Emission:
        return self._result()


class _Updates(Reducing):
    def on_batch(self) -> Emission:
        return self._result()


class _Both(Reducing):
    def on_batch(self) -> Emission:
        return self._result()

    def on_close(self) -> Emission:
        return self._result()


def _merge(self: Reducing, other: Reducing) -> None:
    for state, reducer in self.states:
        setattr(self, state, reducer.merge(getattr(self, state), getattr(other, state)))


def _maker(event_type: Any) -> Callable[..., Any]:
    """Return a function that makes an event from its fields in order, even if some are keyword-only."""
    parameters = signature(event_type).parameters.values()
    if all(parameter.kind is not parameter.KEYWORD_ONLY for parameter in parameters):
        return staticmethod(event_type)
    names = event_type.__struct_fields__
    return staticmethod(lambda *values: event_type(**dict(zip(names, values, strict=True))))


def aggregate(
    name: str,
    source: Stream[Any],
    window: Windowing,
    key: tuple[str, ...],
    into: Stream[Any],
    reducers: Mapping[str, Reducer[Any]],
    results: Results,
    field: str | None,
) -> type[ProcessingElement]:
    """Return a class that reduces the events of a window to a result.

    Args:
        field: the field of the source's events that holds their time; None for windows by count without times.

    Raises:
        TopologyError: the fields of ``into`` are not those of the key, the span and the reducers; or a reducer does not fit.
    """
    if isinstance(name, Reducer):
        raise TopologyError("Aggregate: a result cannot have a field called name, which names the element; call it otherwise.")
    check_name("element", name)
    bases: dict[str, type[Reducing]] = {"final": _Final, "updates": _Updates, "both": _Both}
    if results not in bases:
        raise TopologyError(f"Aggregate {name}: results={results!r}; choose {', '.join(bases)}.")
    if not window.closes and results != "final":
        raise TopologyError(f"Aggregate {name}: a window of {window} says itself when there is a result: leave out results=.")
    both = next((each for each in reducers if each in key), None)
    if both is not None:
        raise TopologyError(f"Aggregate {name}: {both} is both of the key and a reducer; give the reducer another name.")
    fields = set(field_types(into.event_type))
    spans = sorted(fields & {"start", "end"} - set(reducers) - set(key))
    wanted = {*key, *spans, *reducers}
    if not reducers or wanted != fields:
        raise TopologyError(
            f"Aggregate {name}: {into.event_type.__name__} has {', '.join(sorted(fields))}, and is to be made of the key "
            f"({', '.join(key)}), start and end where it has them, and {', '.join(reducers) or 'no reducer'}: name a reducer "
            "for each of the other fields, as bids=reducers.count()."
        )
    mergeable = all(reducer.merges for reducer in reducers.values() if isinstance(reducer, fold))
    if not mergeable and window.merges:
        raise TopologyError(f"Aggregate {name}: windows of {window} merge, so give fold() its merge=.")
    for each in key:
        _refuse_unfit(name, into, each, field_types(source.event_type)[each], f"the key of {source.name}")
    for each in spans:
        _refuse_unfit(name, into, each, datetime, "the span of a window")
    # The reducers' states become the fields of a new class; all else that it needs are class attributes.
    states: list[Any] = []
    for each, reducer in reducers.items():
        if not isinstance(reducer, Reducer):
            raise TopologyError(f"Aggregate {name}: {each}={reducer!r} is no reducer; give one, as reducers.count().")
        _refuse_unfit(name, into, each, reducer.gives(source.event_type), f"what {type(reducer).__name__}() gives")
        states.append((f"state_{len(states)}", reducer.kind(source.event_type), msgspec.field(default_factory=reducer.start)))
    made: Any = msgspec.defstruct(
        name,
        states,
        bases=(bases[results],),
        dict=True,
        namespace={
            "reducers": dict(reducers),
            "states": tuple(zip((field for field, *_ in states), reducers.values(), strict=True)),
            "into": into,
            "keys": key,
            "spans": tuple(spans),
            "places": tuple([*key, *spans, *reducers].index(each) for each in into.event_type.__struct_fields__),
            "time_of": None if field is None else attrgetter(field),
            "make": _maker(into.event_type),
            "merges_apart": not any(
                isinstance(reducer, fold) or type(reducer).__module__ != fold.__module__ for reducer in reducers.values()
            ),
            **({"merge": _merge} if mergeable else {}),
        },
    )
    prototype: type[ProcessingElement] = made
    return prototype


def _refuse_unfit(name: str, into: Stream[Any], field: str, given: Any, what: str) -> None:
    """Refuse a result whose field no value can fill, so that each result would be a dead letter."""
    wanted = field_types(into.event_type)[field]
    if not may_fit(given, wanted):
        raise TopologyError(
            f"Aggregate {name}: {into.event_type.__name__}.{field} is of type {shown(wanted)}, and {what} is of type "
            f"{shown(given)}; declare the field as that."
        )
