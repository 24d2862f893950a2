"""Requests and errors of each service in each minute; what comes late is not worth the wait."""

from datetime import datetime

from penstock import App, Event, Tumbling, reducers


class Request(Event):
    service: str
    status: int
    at: datetime


class Rate(Event):
    service: str
    start: datetime
    requests: int
    errors: int


app = App("requests")
requests = app.source("Requests", Request, event_time="at", late="drop")
rates = app.stream("Rate", Rate)
app.sink("Rates", rates)
app.aggregate(
    requests,
    key="service",
    window=Tumbling("1 minute"),
    into=rates,
    requests=reducers.count(),
    errors=reducers.count().where(lambda request: request.status >= 500),
)
