"""A keyed application with timers on event time: what each shop has sold, said once when a quarter of an hour has passed."""

from datetime import UTC, datetime, timedelta

from penstock import App, Event, ProcessingElement

START = datetime(2026, 1, 1, tzinfo=UTC)


class Sale(Event):
    shop: int
    amount: int
    at: datetime


class Sold(Event):
    shop: int
    amount: int
    sales: int
    since: datetime


app = App("shops")
SHOPS = app.parameter("shops", 500, help="Different shops.")
sales = app.source("Sales", Sale, event_time="at")
sold = app.stream("Sold", Sold)
app.sink("Sold", sold)


@app.element(sales, key="shop", emits=sold, timers="event")
class Counts(ProcessingElement):
    """Counts from the first sale until the timer fires, and then from the next one."""

    amount: int = 0
    sales: int = 0
    since: datetime = START

    def on_event(self, sale):
        if not self.sales:
            self.since = sale.at
            self.set_timer(at=sale.at + timedelta(minutes=15))
        self.amount += sale.amount
        self.sales += 1

    def on_timer(self):
        yield sold(self.key, self.amount, self.sales, self.since)
        self.amount = self.sales = 0
