"""Sales within ten minutes of a click on the advertisement."""

from datetime import datetime

from penstock import App, Event


class Click(Event):
    customer: str
    ad: str
    at: datetime


class Sale(Event):
    customer: str
    cents: int
    at: datetime


class Earned(Event):
    customer: str
    ad: str
    cents: int | None
    at: datetime


app = App("clicks_and_sales")
clicks = app.source("Clicks", Click, event_time="at", lateness="12 hours")
sales = app.source("Sales", Sale, event_time="at", lateness="12 hours")
earned = app.stream("Earned", Earned)
app.sink("Earned", earned)


@app.join(clicks, sales, key="customer", within=("0 s", "10 minutes"), emits=earned, how="left")
def attribute(click, sale):
    yield earned(click.customer, click.ad, None if sale is None else sale.cents, click.at)
