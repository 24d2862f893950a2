"""Trips of taxis: from the position at which the meter is switched on to the one at which it is switched off."""

from datetime import datetime

from penstock import App, Event, ProcessingElement


class Position(Event):
    taxi: str
    hired: bool
    metres: int
    at: datetime


class Trip(Event):
    taxi: str
    start: datetime
    metres: int


app = App("trips")
positions = app.source("Positions", Position, event_time="at", lateness="10 s", late="drop")
trips = app.stream("Trips", Trip)
app.sink("Trips", trips)


@app.element(positions, key="taxi", emits=trips, ordered=True)
class Trips(ProcessingElement):
    start: datetime | None = None
    metres: int = 0

    def on_event(self, position):
        if position.hired:
            self.start = self.start or position.at
            self.metres += position.metres
        elif self.start:
            yield trips(self.key, self.start, self.metres)
            self.start, self.metres = None, 0
