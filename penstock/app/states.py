"""State in columns: the fields of many instances as NumPy arrays, for keyed elements of the batch dialect."""

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.app.spelling import did_you_mean
from penstock.errors import StateError, TopologyError
from penstock.kinds.annotations import demanding, kind_of, optional, plain
from penstock.kinds.event import Event, field_types
from penstock.kinds.kind import Kind
from penstock.kinds.table import kinds

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from penstock.app.element import Element


class States:
    """The states of the instances whose events are in a record batch, or whose timers are due.

    Each field of the state is an attribute: an array with one entry for each instance. It is ``int64``, ``float64`` or ``bool``
    for numbers, ``datetime64[us]`` (UTC) or ``timedelta64[us]`` for times, where NaT stands for None, and ``object`` for texts
    and bytes. Change the arrays in place, or assign others of the same length. Whole numbers beyond 64 bits wrap around, as in
    NumPy.

    Attributes:
        keys: the instances' keys: a record batch with a column for each field of the key.
        due: when each instance's timer fires, ``datetime64[us]``; NaT where it has none.
        now: the micro-batch's processing time, ``datetime64[us]``; unchanged when the micro-batch is replayed after a crash.
        watermark: the event time before which no more events are expected, ``datetime64[us]``; NaT before the first event.
    """

    keys: "pa.RecordBatch"
    due: "NDArray[np.datetime64]"
    now: "np.datetime64"
    watermark: "np.datetime64"

    def __init__(self, **arrays: Any) -> None:
        self.__dict__.update(arrays)

    def __len__(self) -> int:
        return len(self.due)

    def __setattr__(self, name: str, array: Any) -> None:
        if name not in self.__dict__ or name in FIXED:
            fields = [known for known in self.__dict__ if known not in FIXED]
            raise AttributeError(
                f"states.{name} cannot be set{did_you_mean(name, fields) or '; there are ' + ', '.join(fields) + '.'}"
            )
        self.__dict__[name] = array

    if TYPE_CHECKING:

        def __getattr__(self, field: str) -> Any: ...


FIXED = ("keys", "now", "watermark")
RESERVED = (*FIXED, "due")


def array_kind(annotation: Any) -> Kind | None:
    """Return the kind of values of a state field; None if no array can hold them."""
    kind = kind_of(annotation)
    if kind is None or kind.array is None or kind.python is not plain(annotation):
        return None
    return kind if kind.array_misses or not optional(annotation) else None


def check_states(element: "Element") -> None:
    """Check that a keyed element of the batch dialect has state that columns can hold, and a keyless one has no state.

    Raises:
        TopologyError: key, state and timers do not fit together.
        StateError: names the field that no array can hold.
    """
    name, state = element.name, element.state
    if element.keyed != (state is not None):
        raise TopologyError(
            f"Element {name}: in the batch dialect key= and state= go together: name the key's field, and a class of the "
            "instances' fields, as `class Count(Event): seen: int = 0`."
        )
    if state is None:
        if element.on_timer is not None:
            raise TopologyError(f"Element {name} has on_timer= but no key: timers belong to keyed instances.")
        return
    if len(element.inputs) != 1:
        raise TopologyError(
            f"Element {name}: a keyed element of the batch dialect has one input, so that its events are in one order; let a "
            "keyless element emit the events of all streams into one."
        )
    if element.on_timer is not None and not callable(element.on_timer):
        raise TopologyError(f"Element {name}: on_timer={element.on_timer!r} cannot be called; give a function of states.")
    fields = field_types(element.inputs[0].event_type, annotated=True)
    for field in element.key:
        if field in fields and kind_of(fields[field]) is None:
            raise TopologyError(
                f"Element {name}: key={field!r} is a list, a dict or an event, by which the batch dialect cannot tell rows "
                "apart; give it a key of one value, or use the event dialect."
            )
    _check_fields(name, state)


def _fits(default: Any, kind: Kind) -> bool:
    """Whether an array of a kind can hold a default: whole numbers are limited to 64 bits."""
    return kind.python is not int or -(2**63) <= default < 2**63


def _check_fields(name: str, state: Any) -> None:
    if not (isinstance(state, type) and issubclass(state, Event)):
        raise StateError(
            f"Element {name}: state={state!r} is no class of fields; write it as `class Count(Event): seen: int = 0`."
        )
    if demanding(state):
        raise StateError(
            f"Element {name}: {state.__name__} asks more of its fields than their types, which arrays do not check: give it "
            "plain types and no __post_init__, and test the values in the body; or use the event dialect."
        )
    annotations = field_types(state)
    for field in msgspec.structs.fields(state):
        if field.name in RESERVED or field.name.startswith("_"):
            raise StateError(f"Element {name}: a state field cannot be called {field.name!r}; give it another name.")
        if field.required:
            raise StateError(
                f"Element {name}: state {field.name!r} has no default; an instance is made on first use, so give it one, as "
                f"`{field.name}: ... = 0`."
            )
        kind = array_kind(annotations[field.name])
        if kind is not None and not _fits(field.default, kind):
            raise StateError(
                f"Element {name}: state {field.name!r} has the default {field.default!r}, which does not fit an array of "
                f"{kind.name}: give another default, or declare another type."
            )
        if kind is None:
            numbers, others = (
                ", ".join(row.name for row in kinds() if row.array and not row.naive and row.array_misses == misses)
                for misses in (False, True)
            )
            raise StateError(
                f"Element {name}: state {field.name!r} is of a type that no array can hold; a field may be {numbers}, or, also "
                f"`| None`, {others}. Lists and dicts are kept by the event dialect."
            )
