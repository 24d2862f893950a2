"""The life of each order: from one step to the next, and what was wrong."""

from enum import Enum

from penstock import App, Event, ProcessingElement


class Step(Enum):
    NEW = "new"
    PAID = "paid"
    SENT = "sent"


class Address(Event):
    street: str
    town: str


class Change(Event):
    order: int
    step: Step
    address: Address


class Moved(Event):
    order: int
    before: Step | None
    step: Step
    moved: bool


app = App("orders")
changes = app.source("Changes", Change)
moved = app.stream("Moved", Moved)
app.sink("Moved", moved)


@app.element(changes, key="order", emits=moved)
class Life(ProcessingElement):
    step: Step | None = None
    address: Address | None = None

    def on_event(self, change):
        if self.step is not change.step:
            elsewhere = self.address is not None and self.address != change.address
            yield moved(self.key, self.step, change.step, elsewhere)
            self.step, self.address = change.step, change.address
