"""Outliers: readings that lie more than two standard deviations from the others."""

import numpy as np
import pyarrow as pa

from penstock import App, Event


class Reading(Event):
    sensor: str
    number: int
    value: float


app = App("outliers")
readings = app.source("Readings", Reading)
strange = app.stream("Strange", Reading)
app.sink("Strange", strange)


@app.batch(readings, emits=strange)
def outliers(batch):
    value = batch["value"].to_numpy()
    if not len(value):
        return batch
    away = np.abs(value - value.mean()) / (value.std() or 1.0)
    return batch.filter(pa.array(away > 2))
