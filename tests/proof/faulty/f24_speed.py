"""The speed of each ship between two of its positions."""

from datetime import datetime

from penstock import App, Event, ProcessingElement


class Position(Event):
    ship: str
    miles: float
    at: datetime


class Knots(Event):
    ship: str
    at: datetime
    knots: float


app = App("speed")
positions = app.source("Positions", Position)
knots = app.stream("Knots", Knots)
app.sink("Knots", knots)


@app.element(positions, key="ship", emits=knots)
class Speed(ProcessingElement):
    positions: int = 0

    def on_event(self, position):
        self.positions += 1
        if hasattr(self, "before"):
            hours = (position.at - self.before.at).total_seconds() / 3600
            yield knots(self.key, position.at, round((position.miles - self.before.miles) / hours, 1))
        self.before = position
