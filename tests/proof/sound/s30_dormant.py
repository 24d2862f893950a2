"""Machines that stop without having said goodbye: ten minutes of their own time without a beat."""

from datetime import datetime, timedelta

from penstock import App, Event, ProcessingElement


class Beat(Event):
    machine: str
    load: int
    at: datetime


class Stopped(Event):
    machine: str
    since: datetime
    beats: int


app = App("dormant")
beats = app.source("Beats", Beat, event_time="at", lateness="1 day")
stopped = app.stream("Stopped", Stopped)
app.sink("Stopped", stopped)


@app.element(beats, key="machine", emits=stopped, timers="event", ordered=True)
class Machine(ProcessingElement):
    last: datetime | None = None
    beats: int = 0

    def on_event(self, beat):
        self.last = beat.at
        self.beats += 1
        self.set_timer(at=beat.at + timedelta(minutes=10))

    def on_timer(self):
        yield stopped(self.key, self.last, self.beats)
        self.beats = 0
