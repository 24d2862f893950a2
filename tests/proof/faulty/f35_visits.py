"""Visits: the clicks of a visitor until five minutes have passed without one."""

from datetime import datetime, timedelta

from penstock import App, Event, ProcessingElement

PAUSE = timedelta(minutes=5)


class Click(Event):
    visitor: str
    page: str
    at: datetime


class Visit(Event):
    visitor: str
    pages: int


app = App("visits")
clicks = app.source("Clicks", Click, event_time="at", lateness="30 s", late="process")
visits = app.stream("Visits", Visit)
app.sink("Visits", visits)


@app.element(clicks, key="visitor", emits=visits, timers="event")
class Visits(ProcessingElement):
    pages: int = 0

    def on_event(self, click):
        self.pages += 1
        self.set_timer(at=click.at + PAUSE)

    def on_timer(self):
        yield visits(self.key, self.pages)
        self.pages = 0
