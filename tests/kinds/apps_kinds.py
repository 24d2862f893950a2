"""Applications whose events have a field of each kind, in each form: what goes in is to come out."""

import math
from decimal import Decimal
from types import new_class

from kind_cells import columns

from penstock import App, Event, ProcessingElement
from penstock.kinds.fields import scalars_in


def is_plain(value):
    """Whether JSON and columns have a word for a value."""
    scalars = list(scalars_in(value))
    return (
        not any(isinstance(one, float) and not math.isfinite(one) for one in scalars)
        and not any(
            isinstance(one, Decimal) and (not one.is_finite() or len(one.as_tuple().digits) > 20 or one > 10**20)
            for one in scalars
        )
        and not any(isinstance(one, int) and not -(2**63) <= one < 2**63 for one in scalars)
        and not any(isinstance(one, str) and "\ud800" in one for one in scalars)
    )


COLUMNS = {f"field{number}": column for number, column in enumerate(columns())}
VALUES = {name: values for name, column in COLUMNS.items() if (values := [one for one in column.values if is_plain(one)])}
ANNOTATIONS = {"n": int, **{name: COLUMNS[name].annotation for name in VALUES}}
Everything = new_class(
    "Everything", (Event,), {}, lambda space: space.update({"__annotations__": ANNOTATIONS, "__module__": __name__})
)
ROWS = max(map(len, VALUES.values()))
EVENTS = [Everything(number, *(values[number % len(values)] for values in VALUES.values())) for number in range(ROWS)]


def of_relays():
    app = App("relays")
    source = app.source("In", Everything)
    by_event, by_batch = (app.stream(name, Everything) for name in ("ByEvent", "ByBatch"))

    @app.element(source, key="n", emits=by_event)
    class EventRelay(ProcessingElement):
        def on_event(self, event):
            yield by_event.emit(event)

    @app.batch(source, emits=by_batch)
    def batch_relay(batch):
        return batch

    for stream in (by_event, by_batch):
        app.sink(f"{stream.name}Lines", stream)
        app.sink(f"{stream.name}Columns", stream)
    app.sink("Table", by_event)
    return app


def of_a_query():
    app = App("planned")
    source, out = app.source("In", Everything), app.stream("Out", Everything)

    @app.query(source, emits=out)
    def relay(frame):
        return frame

    for name in ("Lines", "Columns", "Table"):
        app.sink(name, out)
    return app


relays, planned = of_relays(), of_a_query()
