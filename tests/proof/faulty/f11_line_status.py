"""The status in which each production line ends each five minutes; a machine reports only when its status changes."""

from datetime import datetime

from penstock import App, Event, ProcessingElement, Tumbling, reducers


class Report(Event):
    machine: str
    line: str
    status: str
    at: datetime


class LineStatus(Event):
    line: str
    start: datetime
    changes: int
    status: str


app = App("line_status")
reports = app.source("Reports", Report, event_time="at", lateness="1 day")
changed = app.stream("Changed", Report)
lines = app.stream("LineStatus", LineStatus)
app.sink("Lines", lines, key=("line", "start"))


@app.element(reports, key="machine", emits=changed)
class Changes(ProcessingElement):
    status: str = ""

    def on_event(self, report):
        if report.status != self.status:
            self.status = report.status
            yield changed(self.key, report.line, report.status, report.at)


app.aggregate(
    changed,
    key="line",
    window=Tumbling("5 minutes", at="at"),
    into=lines,
    changes=reducers.count(),
    status=reducers.fold("unknown", lambda status, state: state.status),
)
