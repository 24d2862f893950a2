"""Each step of a recipe with its number, and how long the step before took, by the clock in the kitchen."""

from datetime import datetime

from penstock import App, Event, ProcessingElement


class Step(Event):
    kitchen: str
    did: str
    at: datetime


class Numbered(Event):
    kitchen: str
    number: int
    did: str
    seconds: float | None


app = App("steps")
steps = app.source("Steps", Step)
numbered = app.stream("Numbered", Numbered)
app.sink("Numbered", numbered)


@app.element(steps, key="kitchen", emits=numbered)
class Recipe(ProcessingElement):
    number: int = 0
    before: datetime | None = None

    def on_event(self, step):
        self.number += 1
        seconds = None if self.before is None else (step.at - self.before).total_seconds()
        self.before = step.at
        yield numbered(self.key, self.number, step.did, seconds)
