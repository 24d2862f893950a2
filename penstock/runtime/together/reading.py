"""What an element that takes many events at once reads of them: the key, the time, some fields, some conditions."""

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

from penstock.app import reducers
from penstock.app.element import Element
from penstock.app.stepwise import field_of
from penstock.app.stream import Source
from penstock.app.window.windowed import Windowed
from penstock.kinds.annotations import choices, kind_of, optional
from penstock.kinds.event import Event, field_types
from penstock.kinds.moment_columns import all_microseconds
from penstock.runtime.compiling.source import NotCompiledError
from penstock.runtime.key import KeyReader, Places, distinct, first_rows
from penstock.runtime.lineage import Ints
from penstock.runtime.together.columns import KEY, TIME, Coded, Column, Columns, Kind, column
from penstock.runtime.together.predicates import Condition, compile_predicate
from penstock.runtime.together.ways import ways_of


class Reads:
    """Reads what an element needs of its events into columns, so that the events themselves are seldom needed.

    Args:
        key: reads the events' keys.

    Raises:
        Exception: the element needs the events; see `reads_of`.
    """

    def __init__(self, element: Element, key: KeyReader) -> None:
        ways = ways_of(element)
        if isinstance(ways, str):
            raise NotCompiledError(ways)
        prototype: type[Windowed] = element.body
        [stream] = element.inputs
        if hasattr(stream.event_type, "__post_init__"):  # which a decoded event goes through once more
            raise NotCompiledError(f"{stream.event_type.__name__} has a __post_init__")
        kinds = kinds_of(stream.event_type)
        self._key = key
        self._of_key = element.key[0] if len(element.key) == 1 and kinds.get(element.key[0]) == "int" else KEY
        self._time = None if times_of_source(element) else prototype.time_of
        self._columns: dict[str, Kind] = {} if self._of_key == KEY else {self._of_key: "int"}
        self.conditions: dict[int, Condition] = {}
        """The conditions of reducers, by the `id` of the functions that they are made from."""
        body: Any = prototype.body
        for name, reducer in body.reducers.items():
            self._add(name, reducer, kinds)
        self._readers = {name: attrgetter(name) for name in self._columns}
        self._needed = {*self._columns, *([KEY] if self._of_key == KEY else ()), *([TIME] if self._time is not None else ())}

    def _add(self, name: str, reducer: reducers.Reducer[Any], kinds: Mapping[str, Kind]) -> None:
        if reducer.field is not None:
            if reducer.field not in kinds:
                raise NotCompiledError(f"{name}={type(reducer).__name__}({reducer.field!r}) reads a field that is in no column")
            self._columns[reducer.field] = kinds[reducer.field]
        elif type(reducer) is not reducers.count:
            raise NotCompiledError(f"{name}={type(reducer).__name__}() takes whole events")
        if reducer.wanted is not None:
            predicate = compile_predicate(reducer.wanted, kinds)
            self.conditions[id(reducer.wanted)] = predicate.holds
            self._columns |= {field: kinds[field] for field in predicate.fields}

    def columns(self, events: list[Any]) -> Columns:
        """Return the columns that the element reads of some events.

        Raises:
            Exception: a value cannot be in a column.
        """
        columns: dict[str, Column] = {
            name: column(kind, list(map(self._readers[name], events))) for name, kind in self._columns.items()
        }
        if self._of_key == KEY:
            columns[KEY] = column("bytes", self._key.identities(events))
        if self._time is not None:
            reader: Callable[[Any], Any] = self._time
            columns[TIME] = all_microseconds(list(map(reader, events)))
        return columns

    def are_in(self, columns: Columns) -> bool:
        """Whether columns are all that the element reads."""
        return self._needed <= columns.keys()

    def buckets(self, columns: Columns) -> Ints:
        """Return the partition of each event's instance."""
        keys = columns[self._of_key]
        if isinstance(keys, Coded):
            return self._key.buckets_of(keys.values)[keys.codes]
        return self._key.buckets_of_integers(keys)

    def places(self, columns: Columns) -> Places:
        """Find the instances of events."""
        keys = columns[self._of_key]
        if not isinstance(keys, Coded):
            return self._key.places_of_integers(keys)
        present, at = distinct(keys.codes)
        return Places([keys.values[code] for code in present], first_rows(at, len(present)), at)


def reads_of(element: Element, key: KeyReader) -> Reads:
    """Return what an element reads of its events.

    Raises:
        NotCompiledError: it needs the events; the text says why.
    """
    try:
        return Reads(element, key)
    except NotCompiledError:
        raise
    except Exception as error:  # such as a source that is nested too deep for Python's own parser
        raise NotCompiledError(f"compiling its conditions fails ({type(error).__name__})") from error


def times_of_source(element: Element) -> bool:
    """Whether the times by which an element's windows go are those that the lineage has of its source."""
    prototype: type[Windowed] = element.body
    [stream] = element.inputs
    time = stream.event_time if isinstance(stream, Source) else None
    return time is not None and time.field == field_of(prototype.time_of)


def kinds_of(event_type: type[Event]) -> dict[str, Kind]:
    """Return the fields of an event that can be in columns, and the kinds of their values."""
    kinds: dict[str, Kind] = {}
    for name, annotation in field_types(event_type).items():
        row = None if choices(annotation) else kind_of(annotation)
        kind = None if row is None else COLUMNS.get(row.python)
        if kind is not None and not (optional(annotation) and kind in ("int", "float")):
            kinds[name] = kind
    return kinds


COLUMNS: Mapping[type, Kind] = {int: "int", float: "float", str: "str", bool: "bool", bytes: "bytes"}
