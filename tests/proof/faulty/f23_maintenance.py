"""Alarms are held back while there is maintenance, which an order of the operators switches on and off."""

import os

from penstock import App, Event, ProcessingElement


class Order(Event):
    operator: str
    state: str


class Alarm(Event):
    device: str
    number: int


app = App("maintenance")
orders = app.source("Orders", Order)
alarms = app.source("Alarms", Alarm)
heard = app.stream("Heard", Alarm)
app.sink("Heard", heard)


@app.element(orders)
def switch(order):
    os.environ["MAINTENANCE"] = order.state


@app.element(alarms, key="device", emits=heard)
class Devices(ProcessingElement):
    held_back: int = 0

    def on_event(self, alarm):
        if os.environ.get("MAINTENANCE", "off") == "on":
            self.held_back += 1
        else:
            yield heard(self.key, alarm.number)
