"""Winning bids."""

from winning import SQL, winning

from penstock import App

__all__ = ["SQL"]

app = App("q9")
app.sink("Out", winning(app))
