"""An application with two clocks: windows by event time, and behind them timers on processing time."""

from datetime import datetime

from penstock import App, Event, ProcessingElement, Tumbling, reducers


class Bid(Event):
    item: str
    at: datetime


class Bids(Event):
    item: str
    bids: int


class Said(Event):
    item: str
    bids: int


clocks = App("clocks")
bids = clocks.source("Bids", Bid, event_time="at")
counted = clocks.stream("Counted", Bids)
said = clocks.stream("Said", Said)
clocks.sink("Counted", counted)
clocks.sink("Said", said)
clocks.aggregate(bids, key="item", window=Tumbling("10 s"), into=counted, bids=reducers.count())


@clocks.element(counted, key="item", emits=said)
class Later(ProcessingElement):
    bids: int = 0

    def on_event(self, one):
        self.bids += one.bids
        self.set_timer(after="20 s")

    def on_timer(self):
        yield said(self.key, self.bids)
