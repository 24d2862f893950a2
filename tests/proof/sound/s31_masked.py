"""Numbers of accounts are masked by a table of digits that the seed makes once, as the program is loaded."""

import random

from penstock import App, Event

SHUFFLED = list("0123456789")
random.Random(7).shuffle(SHUFFLED)
MASK = str.maketrans("0123456789", "".join(SHUFFLED))


class Account(Event):
    number: str
    cents: int


app = App("masked")
accounts = app.source("Accounts", Account)
masked = app.stream("Masked", Account)
app.sink("Masked", masked)


@app.element(accounts, emits=masked)
def mask(account):
    yield masked(account.number.translate(MASK), account.cents)
