"""Readings beyond a limit that the operator sets for a run."""

from penstock import App, Event, ProcessingElement

app = App("limits")
LIMIT = app.parameter("limit", 30, help="What is too warm.")


class Reading(Event):
    room: str
    celsius: int


class TooWarm(Event):
    room: str
    celsius: int
    times: int


readings = app.source("Readings", Reading)
too_warm = app.stream("TooWarm", TooWarm)
app.sink("TooWarm", too_warm)


@app.element(readings, key="room", emits=too_warm)
class Rooms(ProcessingElement):
    times: int = 0

    def on_event(self, reading):
        if reading.celsius > LIMIT:
            self.times += 1
            yield too_warm(self.key, reading.celsius, self.times)
