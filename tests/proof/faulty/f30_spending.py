"""What each customer has spent, in columns, for there are many payments."""

import numpy as np

from penstock import App, Event


class Payment(Event):
    customer: str
    amount: float


class Spent(Event):
    payments: int = 0
    spent: float = 0.0


class Total(Event):
    customer: str
    payments: int
    spent: float


app = App("spending")
payments = app.source("Payments", Payment)
totals = app.stream("Totals", Total)
app.sink("Totals", totals, key="customer")


@app.batch(payments, key="customer", state=Spent, emits=totals)
def spent(batch, at, states):
    amount = batch["amount"].to_numpy()
    states.payments += np.bincount(at, minlength=len(states))
    states.spent += np.bincount(at, weights=amount, minlength=len(states))
    return {"customer": states.keys["customer"], "payments": states.payments, "spent": states.spent}
