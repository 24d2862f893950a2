"""Readings; high ones are also written to a file, by a thread, which takes less time."""

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from penstock import App, Event

writer = ThreadPoolExecutor(1)
HIGH = Path(tempfile.gettempdir()) / "penstock-high-readings.txt"


class Reading(Event):
    meter: str
    value: int


app = App("in_background")
readings = app.source("Readings", Reading)
high = app.stream("High", Reading)
app.sink("High", high)


def write(line):
    with HIGH.open("a") as file:
        print(line, file=file)


@app.element(readings, emits=high)
def watch(reading):
    if reading.value > 7:
        writer.submit(write, reading.meter)
        yield high(reading.meter, reading.value)
