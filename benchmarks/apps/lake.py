"""Numbers into two tables of a lake: each of them as a row, and the sum of each key as the only row of its key."""

from penstock import App, Event, ProcessingElement


class Number(Event):
    key: int
    value: int


class Sum(Event):
    key: int
    count: int
    total: int


app = App("lake")
numbers, sums = app.source("Numbers", Number), app.stream("Sums", Sum)
app.sink("Rows", numbers)
app.sink("Totals", sums, key="key")


@app.element(numbers, key="key", emits=sums)
class Summing(ProcessingElement):
    count: int = 0
    total: int = 0

    def on_event(self, event: Number) -> None:
        self.count += 1
        self.total += event.value

    def on_batch(self) -> Sum:
        return sums(self.key, self.count, self.total)
