"""The browser that was used most on each site in each hour."""

from datetime import datetime

from penstock import App, Event, ProcessingElement, Tumbling


class Visit(Event):
    site: str
    browser: str
    at: datetime


class Usual(Event):
    site: str
    start: datetime
    browser: str


app = App("common_browser")
visits = app.source("Visits", Visit, event_time="at", lateness="1 day")
usual = app.stream("Usual", Usual)
app.sink("Usual", usual, key=("site", "start"))


@app.element(visits, key="site", window=Tumbling("1 hour"), emits=usual)
class Browsers(ProcessingElement):
    seen: list[str] = []

    def on_event(self, visit):
        self.seen.append(visit.browser)

    def on_close(self):
        yield usual(self.key, self.window.start, max(set(self.seen), key=self.seen.count))
