"""A join of two streams: which advertisement led to which order, and which led to none.

Orders count for an impression of the same user up to five minutes before. What has met no order is said once none can come.
"""

from datetime import datetime

from penstock import App, Event


class Impression(Event):
    user: str
    campaign: str
    at: datetime


class Order(Event):
    user: str
    amount: float
    at: datetime


class Conversion(Event):
    user: str
    campaign: str
    amount: float | None


app = App("conversions")
impressions = app.source("Impressions", Impression, event_time="at", lateness="10 s")
orders = app.source("Orders", Order, event_time="at", lateness="10 s")
conversions = app.stream("Conversions", Conversion)
app.sink("Conversions", conversions)


@app.join(impressions, orders, key="user", within=("0 s", "5 minutes"), emits=conversions, how="left")
def credited(impression, order):
    yield conversions(impression.user, impression.campaign, order and order.amount)
