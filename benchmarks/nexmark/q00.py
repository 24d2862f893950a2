"""Pass through: what reading and writing cost."""

from model import bids

from penstock import App

SQL = "SELECT auction, bidder, price, channel, url, extra, ts FROM bid"

app = App("q0")
app.sink("Out", bids(app))
