"""An experiment: each visitor gets one variant and keeps it. The seed makes the draws repeatable."""

import random

from penstock import App, Event, ProcessingElement

VARIANTS = ["old", "new", "new with pictures"]
draws = random.Random(42)


class Visit(Event):
    visitor: str
    page: str


class Shown(Event):
    visitor: str
    page: str
    variant: str


app = App("experiment")
visits = app.source("Visits", Visit)
shown = app.stream("Shown", Shown)
app.sink("Shown", shown)


@app.element(visits, key="visitor", emits=shown)
class Assign(ProcessingElement):
    variant: str = ""

    def on_event(self, visit):
        if not self.variant:
            self.variant = draws.choice(VARIANTS)
        yield shown(self.key, visit.page, self.variant)
