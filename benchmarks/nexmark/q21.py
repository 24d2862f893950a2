"""Channels by their names, or by what their links say."""

import re

from model import bids

from penstock import App, Event

SQL = """
SELECT auction, bidder, price, channel, CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1'
    WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3' ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
FROM bid WHERE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) <> ''
    OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu')
"""
NUMBERS = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}


class Numbered(Event):
    auction: int
    bidder: int
    price: int
    channel: str
    channel_id: str


app = App("q21")
given = bids(app)
numbered = app.stream("Numbered", Numbered)
app.sink("Out", numbered)


@app.element(given, emits=numbered)
def number(bid):
    said = re.search("(&|^)channel_id=([^&]*)", bid.url)
    channel = NUMBERS.get(bid.channel.lower()) or (said[2] if said else "")
    if channel:
        yield numbered(bid.auction, bid.bidder, bid.price, bid.channel, channel)
