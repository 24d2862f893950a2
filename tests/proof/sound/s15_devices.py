"""How many devices each member has used."""

from msgspec import field

from penstock import App, Event, ProcessingElement


class Login(Event):
    member: str
    device: str


class Devices(Event):
    member: str
    devices: int
    latest: list[str]


app = App("devices")
logins = app.source("Logins", Login)
devices = app.stream("Devices", Devices)
app.sink("Devices", devices)


@app.element(logins, key="member", emits=devices, name="Devices")
class PerMember(ProcessingElement):
    known: set[str] = field(default_factory=set)
    latest: list[str] = field(default_factory=lambda: ["none"])

    def on_event(self, login):
        self.known.add(login.device)
        self.latest = [*self.latest[-2:], login.device]
        yield devices(self.key, len(self.known), self.latest)
