"""The energy that each region uses: meters report often, so each one's readings are summed up before."""

from penstock import App, Event, ProcessingElement


class Reading(Event):
    meter: str
    region: str
    kwh: float


class Use(Event):
    region: str
    kwh: float


app = App("energy")
readings = app.source("Readings", Reading)
uses = app.stream("Uses", Use)
totals = app.stream("Totals", Use)
app.sink("Totals", totals, key="region")


@app.element(readings, key="meter", emits=uses)
class Meter(ProcessingElement):
    region: str = ""
    fresh: float = 0.0

    def on_event(self, reading):
        self.region = reading.region
        self.fresh += reading.kwh

    def on_batch(self):
        yield uses(self.region, self.fresh)
        self.fresh = 0.0


@app.element(uses, key="region", emits=totals)
class Region(ProcessingElement):
    total: float = 0.0

    def on_event(self, use):
        self.total += use.kwh
        yield totals(self.key, self.total)
