"""A directory of members: since when we know them, and how often they came."""

from datetime import datetime, timezone

from msgspec import field

from penstock import App, Event, ProcessingElement


class Login(Event):
    member: str
    device: str


class Member(Event):
    member: str
    since: datetime
    logins: int


app = App("member_since")
logins = app.source("Logins", Login)
members = app.stream("Members", Member)
app.sink("Members", members, key="member")


@app.element(logins, key="member", emits=members)
class Members(ProcessingElement):
    since: datetime = field(default_factory=lambda: datetime.now(timezone.utc))
    logins: int = 0

    def on_event(self, login):
        self.logins += 1

    def on_batch(self):
        yield members(self.key, self.since, self.logins)
