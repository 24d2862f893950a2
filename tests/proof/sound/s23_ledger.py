"""The ledger of each account, exact to the cent, from bookings and from fees."""

from decimal import Decimal

from penstock import App, Event, ProcessingElement


class Booking(Event):
    account: str
    amount: Decimal


class Fee(Event):
    account: str
    amount: Decimal


class Balance(Event):
    account: str
    amount: Decimal


app = App("ledger")
bookings = app.source("Bookings", Booking)
fees = app.source("Fees", Fee)
balances = app.stream("Balances", Balance)
app.sink("Balances", balances, key="account")


@app.element([bookings, fees], key="account", emits=balances)
class Ledger(ProcessingElement):
    amount: Decimal = Decimal("0.00")

    def on_event(self, event):
        self.amount += -event.amount if isinstance(event, Fee) else event.amount

    def on_batch(self):
        yield balances(self.key, self.amount)
