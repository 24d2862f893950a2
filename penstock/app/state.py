"""The schema of an application's state, which is stored with a checkpoint, and the check whether new code still reads it."""

import re
from collections.abc import Sequence
from typing import Any

from penstock.app.earlier import EARLIER, OWN_CLASS, may_migrate, with_earlier
from penstock.app.element import Element, overrides
from penstock.app.queries import JoinQuery, WindowQuery
from penstock.app.reducers import count
from penstock.app.shape import Shape, is_same, misfit, same_key, shape_of, words
from penstock.app.stepwise import Stepwise
from penstock.app.stream import Stream
from penstock.app.topology import Topology
from penstock.app.window.windowing import ALLOWED
from penstock.errors import IncompatibleStateError
from penstock.kinds.event import field_types

LARGEST_STATE = 32 << 20
"""Limit of one instance's state, in bytes: a page of the store holds at least one, and passes through a Spark socket."""

MEND = "put it back, or start afresh with --fresh (which discards the stored state), or under another --name"
MIGRATE = f"give it migrate(old), which makes its state of what was stored, or {MEND}"

BY_SPARK = "by Spark"

Schema = dict[str, Any]
"""An element's state as JSON: its keyed hop, how it is kept, the key's fields, its meaning, and the full shape of values."""


def describe_state(topology: Topology, stored: dict[str, Schema] | None = None) -> dict[str, Schema]:
    """Return the schema of each element that keeps state, by the element's name.

    Args:
        stored: the schemas of a run to resume; an element with ``migrate`` may read state in its earlier shapes.
    """
    schemas: dict[str, Schema] = {}
    for element in topology.elements:
        if element.keyed:
            schemas[element.name] = _schema(element, topology.depths[element.name])
        elif isinstance(element.body, WindowQuery | JoinQuery):
            schemas[element.name] = _schema_of_query(element, element.body)
    for name, old in (stored or {}).items():
        if name in schemas:
            schemas[name] = with_earlier(old, schemas[name], topology.element(name))
    return schemas


def check_state_fits(stored: dict[str, Schema], present: dict[str, Schema]) -> None:
    """Refuse code that could not read the state in a checkpoint, or would lose or misread it.

    A table in ``docs/how-to/failures.md`` has the rules.

    Raises:
        IncompatibleStateError: names the element, the old and the new form of what has changed, and how to mend it.
    """
    for name, old in stored.items():
        new = present.get(name)
        if new is None:
            raise _refused(name, "has stored state, and is no longer in the application, or keeps none now")
        if "means" not in old:
            raise _refused(name, "has state that a version of Penstock before its first release has written")
        changed = _misfit_of_key(old["key"], new["key"]) or _misfit_of_place(old, new)
        changed = changed or _misfit_of_meaning(old["means"], new["means"])
        if changed is not None:
            raise _refused(name, changed)
        trouble = _misfit_of_columns(old, new) if old["kept"] == BY_SPARK else _misfit_of_objects(old, new)
        if trouble is not None:
            mend = MIGRATE if may_migrate(new) else MEND
            raise IncompatibleStateError(f"Element {name}: {_named(trouble, old['means'])}: {mend}.")


def _refused(name: str, what: str) -> IncompatibleStateError:
    return IncompatibleStateError(f"Element {name} {what}: {MEND}.")


def _schema(element: Element, stage: int) -> Schema:
    prototype = element.prototype
    means: dict[str, Any] = {"form": OWN_CLASS}
    if isinstance(prototype, type) and issubclass(prototype, Stepwise):
        means = prototype.meaning()
        if prototype.by_input:
            means["inputs"] = [stream.name for stream in element.inputs]
    if element.has_timers:
        means["clock of its timers"] = element.timers
        means["on_timer"] = element.on_timer is not None if prototype is None else overrides(prototype, "on_timer")
    if element.every is not None:
        means["on_interval"] = True
    return {
        "stage": stage,
        "kept": "in objects" if element.state is None else "in columns",
        "key": _key_of(element.inputs[0], element.key),
        "means": means,
        "state": shape_of(prototype._stored_as()) if prototype is not None else _columns_of(element.state),
    }


def _schema_of_query(element: Element, body: WindowQuery | JoinQuery) -> Schema:
    """Return the schema of an element that Spark plans, whose state Spark keeps in columns of its own, by position."""
    state: Any
    if isinstance(body, WindowQuery):
        types = field_types(element.inputs[0].event_type)
        read = sorted({reducer.field for reducer in body.reducers.values() if reducer.field is not None})
        whole = any(reducer.field is None and type(reducer) is not count for reducer in body.reducers.values())
        state = shape_of(element.inputs[0].event_type) if whole else [[field, shape_of(types[field])] for field in read]
        reducers = [[name, *reducer.meaning()] for name, reducer in body.reducers.items()]
        means = {**body.window.meaning(), "field of the time": body.time.field, "reducers": reducers}
    else:
        state = [shape_of(stream.event_type) for stream in element.inputs]
        means = {
            "form": f"{body.how} join",
            "interval (us)": [body.lower, body.upper],
            "fields of the times": [time.field for time in body.times],
            "inputs": [stream.name for stream in element.inputs],
            "late events": "by the micro-batch's own watermark",
        }
    return {"stage": 0, "kept": BY_SPARK, "key": _key_of(element.inputs[0], body.key), "means": means, "state": state}


def _key_of(stream: Stream[Any], fields: Sequence[str]) -> list[Any]:
    """Return the fields of a key in order, each with the full shape of its type."""
    types = field_types(stream.event_type, annotated=True)
    return [[field, shape_of(types[field])] for field in fields]


def _columns_of(state: Any) -> Shape:
    """Return the shape of state in columns, which have the fields' names and hold plain types, without constraints."""
    fields = {name: [shape_of(kind), False] for name, kind in field_types(state).items()}
    return ["struct", {"name": state.__name__, "fields": fields}]


def _misfit_of_columns(old: Schema, new: Schema) -> str | None:
    """Return why state kept by Spark cannot be read. It is stored by position and type, so it fits only if unchanged."""
    if all(is_same(old[part], new[part]) for part in ("means", "state")):
        return None
    return "what Spark keeps of it is known by its place, and the reducers, or the events or fields that it holds, have changed"


def _misfit_of_objects(old: Schema, new: Schema) -> str | None:
    """Return why stored instances cannot be read. Each shape in which some are stored must be readable, or migrated."""
    migrated = new.get(EARLIER, [])
    for shape in old.get(EARLIER, []):
        if shape not in migrated:
            return f"its state may still lie as {words(shape)}, which is to be migrated"
    return None if old["state"] in migrated else misfit(old["state"], new["state"], "its state")


def _named(trouble: str, means: dict[str, Any]) -> str:
    """Return a message in which reducers' names replace the internal names of the fields that hold their states."""
    names = [reducer[0] for reducer in means.get("reducers", means.get("reducers within", ()))]
    held = r"its state\S*\.state_(\d+)"
    return re.sub(held, lambda found: f"the state of reducer {names[int(found[1])]}", trouble)


def _misfit_of_key(old: list[Any], new: list[Any]) -> str | None:
    if len(old) == len(new):
        alike = (name == now and same_key(shape, kind) for (name, shape), (now, kind) in zip(old, new, strict=True))
        if all(alike):
            return None
    return f"was keyed by {_key(old)} and is now keyed by {_key(new)}"


def _misfit_of_place(old: Schema, new: Schema) -> str | None:
    if new["kept"] != old["kept"]:
        return f"kept its state {old['kept']} and now keeps it {new['kept']}, as another dialect does"
    if new["stage"] != old["stage"]:
        return f"was behind {old['stage']} keyed hops and is now behind {new['stage']}"
    return None


def _misfit_of_meaning(old: dict[str, Any], new: dict[str, Any]) -> str | None:
    """Return which part of the meaning has changed, so that equally stored state would be misread; None if none has."""
    for part in [*old, *(name for name in new if name not in old)]:
        before, now = old.get(part), new.get(part)
        if before == now:
            continue
        if part.startswith(ALLOWED) and isinstance(before, int) and isinstance(now, int) and now < before:
            continue
        if (
            part in ("reducers", "inputs", "fields of the times")
            and before is not None
            and now is not None
            and now[: len(before)] == before
        ):
            continue  # only additions, after the old ones
        if part in ("clock of its timers", "on_timer") and before is None:
            continue  # no instance has a timer yet
        if part == "on_timer" and before is False:
            continue
        return f"had {part}: {_shown(before)}, and now has {_shown(now)}"
    return None


def _shown(fact: Any) -> str:
    """Return a value of the state's meaning as text for a sentence."""
    if isinstance(fact, list) and fact and isinstance(fact[0], list):  # reducers
        calls = ((name, kind, ", ".join(repr(option) for option in how if option is not None)) for name, kind, *how in fact)
        return ", ".join(f"{name}={kind}({arguments})" for name, kind, arguments in calls)
    if isinstance(fact, list):
        return ", ".join(map(_shown, fact)) or "none"
    if isinstance(fact, bool) or fact is None:
        return {True: "yes", False: "no", None: "none"}[fact]
    return str(fact)


def _key(fields: list[Any]) -> str:
    return ", ".join(f"{name} ({words(shape)})" for name, shape in fields)
