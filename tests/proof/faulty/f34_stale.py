"""Quotes of each share, and how many of them were stale when they came."""

from datetime import datetime

from penstock import App, Event, ProcessingElement


class Quote(Event):
    share: str
    cents: int
    at: datetime


class Quality(Event):
    share: str
    quotes: int
    stale: int


app = App("stale")
quotes = app.source("Quotes", Quote, event_time="at", lateness="5 s", late="process")
quality = app.stream("Quality", Quality)
app.sink("Quality", quality, key="share")


@app.element(quotes, key="share", emits=quality)
class Feed(ProcessingElement):
    quotes: int = 0
    stale: int = 0

    def on_event(self, quote):
        self.quotes += 1
        if self.watermark is not None and quote.at < self.watermark:
            self.stale += 1
        yield quality(self.key, self.quotes, self.stale)
