"""A sum per key, in the batch dialect."""

import numpy as np

from penstock import App, Event


class Reading(Event):
    key: int
    value: int


class Sum(Event):
    key: int
    total: int


class Total(Event):
    total: int = 0


app = App("sums_batch")
readings = app.source("Words", Reading, sample=lambda number: Reading(number % 500, number))
sums = app.stream("Sums", Sum)
app.sink("Out", sums)


@app.batch(readings, key="key", state=Total, emits=sums)
def add(batch, at, states):
    np.add.at(states.total, at, batch["value"].to_numpy())
    return {"key": states.keys["key"], "total": states.total}
