"""Fraud rules with timers: a card that pays in two countries within ten minutes, or tries a small amount and then a large one.

Each card is an instance. A timer forgets its last payment when ten minutes of event time have passed without another.
"""

from datetime import datetime, timedelta

from penstock import App, Event, ProcessingElement

SMALL, LARGE = 1.0, 500.0


class Payment(Event):
    card: str
    amount: float
    country: str
    at: datetime


class Alarm(Event):
    card: str
    rule: str
    amount: float
    at: datetime


app = App("fraud")
payments = app.source("Payments", Payment, event_time="at", lateness="5 s")
alarms = app.stream("Alarms", Alarm)
app.sink("Alarms", alarms)


@app.element(payments, key="card", emits=alarms, timers="event", ordered=True)
class Watcher(ProcessingElement):
    country: str | None = None
    tried: bool = False

    def on_event(self, payment):
        if self.country not in (None, payment.country):
            yield alarms(self.key, "two countries", payment.amount, payment.at)
        if self.tried and payment.amount >= LARGE:
            yield alarms(self.key, "small, then large", payment.amount, payment.at)
        self.country, self.tried = payment.country, payment.amount <= SMALL
        self.set_timer(at=payment.at + timedelta(minutes=10))

    def on_timer(self):
        self.country, self.tried = None, False
