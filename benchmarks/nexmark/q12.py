"""Bids of a bidder in ten seconds by the clock: its windows depend on when bids come, their total does not."""

from model import bids

from penstock import App, Event, ProcessingElement

SQL = "SELECT bidder, count(*) AS bids FROM bid GROUP BY bidder"
SUM = ("bidder",)


class Counted(Event):
    bidder: int
    bids: int


app = App("q12")
given = bids(app)
first, counted = app.stream("Bidders", Counted), app.stream("Counted", Counted)
app.sink("Out", counted)


@app.element(given, key="bidder", emits=first)
class PerBatch(ProcessingElement):
    bids: int = 0

    def on_event(self, bid):
        self.bids += 1

    def on_batch(self):
        yield first(self.key, self.bids)
        self.bids = 0


@app.element(first, key="bidder", every="10 s", emits=counted)
class PerTenSeconds(ProcessingElement):
    bids: int = 0

    def on_event(self, counted):
        self.bids += counted.bids

    def on_interval(self):
        if self.bids:
            yield counted(self.key, self.bids)
        self.bids = 0
