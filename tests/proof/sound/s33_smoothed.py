"""The smoothed load of each machine."""

from penstock import App, Event, ProcessingElement

WEIGHT = 0.3


class Load(Event):
    machine: str
    load: float


class Smoothed(Event):
    machine: str
    load: float


app = App("smoothed")
loads = app.source("Loads", Load)
smoothed = app.stream("Smoothed", Smoothed)
app.sink("Smoothed", smoothed)


@app.element(loads, key="machine", emits=smoothed)
class Smooth(ProcessingElement):
    load: float | None = None

    def on_event(self, event):
        self.load = event.load if self.load is None else self.load + WEIGHT * (event.load - self.load)
        yield smoothed(self.key, self.load)
