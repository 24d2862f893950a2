"""A sum per key, in the event dialect."""

from penstock import App, Event, ProcessingElement


class Reading(Event):
    key: int
    value: int


class Sum(Event):
    key: int
    total: int


app = App("sums")
readings = app.source("Words", Reading, sample=lambda number: Reading(number % 500, number))
sums = app.stream("Sums", Sum)
app.sink("Out", sums)


@app.element(readings, key="key", emits=sums)
class Adder(ProcessingElement):
    total: int = 0

    def on_event(self, reading):
        self.total += reading.value

    def on_batch(self):
        yield sums(self.key, self.total)
