"""Tickets for each desk, with a number that counts up over all desks."""

from typing import ClassVar

from penstock import App, Event, ProcessingElement


class Guest(Event):
    desk: str
    name: str


class Ticket(Event):
    desk: str
    name: str
    number: int
    waiting: int


app = App("ticket_numbers")
guests = app.source("Guests", Guest)
tickets = app.stream("Tickets", Ticket)
app.sink("Tickets", tickets)


@app.element(guests, key="desk", emits=tickets)
class Desk(ProcessingElement):
    issued: ClassVar[int] = 0
    waiting: int = 0

    def on_event(self, guest):
        Desk.issued += 1
        self.waiting += 1
        yield tickets(self.key, guest.name, Desk.issued, self.waiting)
