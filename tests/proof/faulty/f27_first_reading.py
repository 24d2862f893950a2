"""The drift of each sensor against its first reading after it was calibrated."""

from penstock import App, Event, ProcessingElement


class Reading(Event):
    sensor: str
    value: float
    calibrated: bool = True


class Drift(Event):
    sensor: str
    value: float
    drift: float


NOTHING = Reading("", 0.0)

app = App("first_reading")
readings = app.source("Readings", Reading)
drifts = app.stream("Drifts", Drift)
app.sink("Drifts", drifts)


@app.element(readings, key="sensor", emits=drifts, name="Drift")
class PerSensor(ProcessingElement):
    base: Reading = NOTHING
    skipped: int = 0

    def on_event(self, reading):
        if not reading.calibrated:
            self.skipped += 1
            return
        if self.base is NOTHING:
            self.base = reading
        yield drifts(self.key, reading.value, reading.value - self.base.value)
