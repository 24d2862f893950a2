"""The greatest value of each sensor and how many it sent, in columns."""

import numpy as np

from penstock import App, Event


class Reading(Event):
    sensor: str
    celsius: float


class Known(Event):
    events: int = 0
    hottest: float = -273.15


class Hottest(Event):
    sensor: str
    events: int
    hottest: float


app = App("hottest")
readings = app.source("Readings", Reading)
hottest = app.stream("Hottest", Hottest)
app.sink("Hottest", hottest, key="sensor")


@app.batch(readings, key="sensor", state=Known, emits=hottest)
def so_far(batch, at, states):
    states.events += np.bincount(at, minlength=len(states))
    np.maximum.at(states.hottest, at, batch["celsius"].to_numpy())
    return {"sensor": states.keys["sensor"], "events": states.events, "hottest": states.hottest}
