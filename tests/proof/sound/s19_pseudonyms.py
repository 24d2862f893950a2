"""Records of patients with pseudonyms, divided among eight studies."""

from hashlib import sha256
from uuid import UUID, uuid5

from penstock import App, Event

OURS = UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")


class Record(Event):
    patient: str
    value: int


class Pseudonymous(Event):
    patient: UUID
    study: int
    value: int


app = App("pseudonyms")
records = app.source("Records", Record)
hidden = app.stream("Hidden", Pseudonymous)
app.sink("Hidden", hidden)


@app.element(records, emits=hidden)
def hide(record):
    digest = sha256(record.patient.encode()).digest()
    yield hidden(uuid5(OURS, record.patient), digest[0] % 8, record.value)
