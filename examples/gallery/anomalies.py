"""Anomalies by online statistics: readings far from what their own sensor usually says.

Mean and variance are updated with each reading (Welford's method), so the state is three numbers a sensor.
"""

from math import sqrt

from penstock import App, Event, ProcessingElement

WARM, LIMIT = 5, 4.0


class Reading(Event):
    sensor: str
    value: float


class Anomaly(Event):
    sensor: str
    value: float
    mean: float
    deviations: float


app = App("anomalies")
readings = app.source("Readings", Reading)
anomalies = app.stream("Anomalies", Anomaly)
app.sink("Anomalies", anomalies)


@app.element(readings, key="sensor", emits=anomalies)
class Judge(ProcessingElement):
    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def on_event(self, reading):
        off = reading.value - self.mean
        if self.count >= WARM and self.squares > 0:
            deviations = off / sqrt(self.squares / (self.count - 1))
            if abs(deviations) > LIMIT:
                yield anomalies(self.key, reading.value, round(self.mean, 3), round(deviations, 1))
                return  # what is not usual is not learned from
        self.count += 1
        self.mean += off / self.count
        self.squares += off * (reading.value - self.mean)
