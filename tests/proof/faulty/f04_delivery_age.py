"""How long parcels were on their way, and which were delivered too late."""

from datetime import UTC, datetime

from penstock import App, Event

PROMISED = 3 * 24 * 3600


class Parcel(Event):
    id: int
    depot: str
    sent: datetime


class Delivered(Event):
    id: int
    depot: str
    hours: float
    too_late: bool


app = App("delivery_age")
parcels = app.source("Parcels", Parcel)
delivered = app.stream("Delivered", Delivered)
app.sink("Delivered", delivered)


@app.element(parcels, emits=delivered)
def measure(parcel):
    age = (datetime.now(UTC) - parcel.sent).total_seconds()
    yield delivered(parcel.id, parcel.depot, age / 3600, age > PROMISED)
