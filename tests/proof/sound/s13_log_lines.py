"""Errors of each day in a web server's log."""

from datetime import datetime

from penstock import App, Event, ProcessingElement


class Line(Event):
    host: str
    time: str
    status: int


class Failed(Event):
    host: str
    day: str
    minute: int


class Day(Event):
    host: str
    day: str
    failures: int


app = App("log_lines")
lines = app.source("Lines", Line)
failed = app.stream("Failed", Failed)
days = app.stream("Days", Day)
app.sink("Days", days, key=("host", "day"))


@app.element(lines, emits=failed)
def parse(line):
    at = datetime.strptime(line.time, "%d/%b/%Y:%H:%M:%S %z")
    if line.status >= 500:
        yield failed(line.host, at.date().isoformat(), at.hour * 60 + at.minute)


@app.element(failed, key=("host", "day"), emits=days)
class Days(ProcessingElement):
    failures: int = 0

    def on_event(self, failure):
        self.failures += 1
        yield days(*self.key, self.failures)
