"""The balance of each account; an account that rests for an hour is said once more, for readers that have lost its row."""

from penstock import App, Event, ProcessingElement


class Booking(Event):
    account: str
    cents: int


class Balance(Event):
    account: str
    cents: int


app = App("refreshed")
bookings = app.source("Bookings", Booking)
balances = app.stream("Balances", Balance)
app.sink("Balances", balances, key="account")


@app.element(bookings, key="account", emits=balances)
class Account(ProcessingElement):
    cents: int = 0

    def on_event(self, booking):
        self.cents += booking.cents
        yield balances(self.key, self.cents)
        self.set_timer(after="1 hour")

    def on_timer(self):
        yield balances(self.key, self.cents)
