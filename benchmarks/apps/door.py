"""The application behind the adapter in benchmarks/doors.py."""

from penstock import App, Event


class Line(Event):
    text: str
    size: int


app = App("door")
lines = app.source("Lines", Line)
app.sink("Out", lines)
