"""Sessions of visitors, with the pages in the order of their names."""

from datetime import datetime

from penstock import App, Event, ProcessingElement, Session


class Click(Event):
    visitor: str
    page: str
    at: datetime


class Visit(Event):
    visitor: str
    start: datetime
    end: datetime
    clicks: int
    pages: list[str]


app = App("sessions")
clicks = app.source("Clicks", Click, event_time="at", lateness="1 day")
visits = app.stream("Visits", Visit)
app.sink("Visits", visits)


@app.element(clicks, key="visitor", window=Session("5 minutes"), emits=visits)
class Visits(ProcessingElement):
    clicks: int = 0
    pages: set[str] = set()

    def on_event(self, click):
        self.clicks += 1
        self.pages.add(click.page)

    def merge(self, other):
        self.clicks += other.clicks
        self.pages |= other.pages

    def on_close(self):
        yield visits(self.key, self.window.start, self.window.end, self.clicks, sorted(self.pages))
