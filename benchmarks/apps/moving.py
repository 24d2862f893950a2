"""Two elements by one key, with a timer for each instance: what `moving.py` moves about."""

from datetime import datetime, timedelta

from penstock import App, Event, ProcessingElement


class Sale(Event):
    item: int
    at: datetime


class Counted(Event):
    item: int
    sales: int


class Closed(Event):
    item: int
    sales: int
    disorder: int


app = App("moving")
sales = app.source("Sales", Sale, event_time="at")
counted = app.stream("Counted", Counted)
closed = app.stream("Closed", Closed)
app.sink("Closed", closed)


@app.element(sales, key="item", emits=counted, timers="event")
class Counts(ProcessingElement):
    """Counts an item's sales; a timer far in the future says that there will be no more."""

    sales: int = 0

    def on_event(self, sale):
        self.sales += 1
        self.set_timer(at=sale.at + timedelta(days=365))
        yield counted(self.key, self.sales)

    def on_timer(self):
        yield counted(self.key, -self.sales)


@app.element(counted, key="item", emits=closed)
class Keeps(ProcessingElement):
    """What has arrived in order is one more each time; the last says how many they were."""

    sales: int = 0
    disorder: int = 0

    def on_event(self, one):
        if one.sales < 0:
            yield closed(self.key, self.sales if self.sales == -one.sales else -1, self.disorder)
            return
        self.disorder += one.sales != self.sales + 1
        self.sales = one.sales
