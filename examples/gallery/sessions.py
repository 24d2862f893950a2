"""Sessions: visits of each user, with how long they lasted and how many pages they saw.

A visit ends after two minutes without a click. A session window merges what belongs together, whatever the order in which
the clicks come.
"""

from datetime import datetime

from penstock import App, Event, Session, reducers


class Click(Event):
    user: str
    page: str
    at: datetime


class Visit(Event):
    user: str
    start: datetime
    end: datetime
    clicks: int
    pages: int
    entered: str


app = App("sessions")
clicks = app.source("Clicks", Click, event_time="at", lateness="30 s")
visits = app.stream("Visits", Visit)
app.sink("Visits", visits)
app.aggregate(
    clicks,
    key="user",
    window=Session("2 minutes"),
    into=visits,
    clicks=reducers.count(),
    pages=reducers.distinct("page"),
    entered=reducers.first("page"),
)
