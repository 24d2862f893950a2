"""Selection: bids on some auctions."""

from model import bids

from penstock import App, Event

SQL = "SELECT auction, price FROM bid WHERE auction % 123 = 0"


class Selected(Event):
    auction: int
    price: int


app = App("q2")
given = bids(app)
selected = app.stream("Selected", Selected)
app.sink("Out", selected)


@app.element(given, emits=selected)
def select(bid):
    if bid.auction % 123 == 0:
        yield selected(bid.auction, bid.price)
