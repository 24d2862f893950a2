"""Balances of accounts. What is drawn beyond the balance is refused, and noted in a file for the auditors."""

import tempfile
from pathlib import Path

from penstock import App, Event, ProcessingElement

AUDIT = Path(tempfile.gettempdir()) / "proof-audit.txt"


class Booking(Event):
    account: str
    cents: int


class Balance(Event):
    account: str
    cents: int


app = App("audit_file")
bookings = app.source("Bookings", Booking)
balances = app.stream("Balances", Balance)
app.sink("Balances", balances)


@app.element(bookings, key="account", emits=balances)
class Accounts(ProcessingElement):
    cents: int = 0

    def on_event(self, booking):
        if self.cents + booking.cents < 0:
            with open(AUDIT, "a") as audit:
                audit.write(f"{self.key} {booking.cents}\n")
            return
        self.cents += booking.cents
        yield balances(self.key, self.cents)
