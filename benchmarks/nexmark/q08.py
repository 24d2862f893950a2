"""New users who sell within the ten seconds in which they have registered."""

from datetime import datetime

from model import Auction, Person, auctions, persons

from penstock import App, Event, ProcessingElement, Tumbling

SQL = """
SELECT DISTINCT p.id, p.name, time_bucket(INTERVAL 10 SECONDS, p.ts) AS start FROM person p JOIN auction a ON a.seller = p.id
AND time_bucket(INTERVAL 10 SECONDS, p.ts) = time_bucket(INTERVAL 10 SECONDS, a.ts)
"""


class Step(Event):
    id: int
    name: str | None
    ts: datetime


class New(Event):
    id: int
    name: str
    start: datetime


app = App("q8")
people, offered = persons(app), auctions(app)
steps, new = app.stream("Steps", Step), app.stream("New", New)
app.sink("Out", new)


@app.element([people, offered], emits=steps)
def step(event):
    if isinstance(event, Person):
        yield steps(event.id, event.name, event.ts)
    if isinstance(event, Auction):
        yield steps(event.seller, None, event.ts)


@app.element(steps, key="id", window=Tumbling("10 s", at="ts"), emits=new)
class Monitor(ProcessingElement):
    name: str | None = None
    sells: bool = False

    def on_event(self, step):
        self.name = step.name or self.name
        self.sells |= step.name is None

    def on_close(self):
        if self.name is not None and self.sells:
            yield new(self.key, self.name, self.window.start)
