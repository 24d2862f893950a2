"""The directories of a link."""

from model import bids

from penstock import App, Event

SQL = """
SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS one, split_part(url, '/', 5) AS two,
    split_part(url, '/', 6) AS three
FROM bid
"""


class Directories(Event):
    auction: int
    bidder: int
    price: int
    channel: str
    one: str
    two: str
    three: str


app = App("q22")
given = bids(app)
directories = app.stream("Directories", Directories)
app.sink("Out", directories)


@app.element(given, emits=directories)
def divide(bid):
    yield directories(bid.auction, bid.bidder, bid.price, bid.channel, *bid.url.split("/")[3:6])
