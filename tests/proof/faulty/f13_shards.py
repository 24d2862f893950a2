"""Users are divided among four shards, and each shard counts its own."""

from penstock import App, Event, ProcessingElement


class User(Event):
    name: str


class Placed(Event):
    name: str
    shard: int


class Load(Event):
    shard: int
    users: int


app = App("shards")
users = app.source("Users", User)
placed = app.stream("Placed", Placed)
loads = app.stream("Loads", Load)
app.sink("Loads", loads, key="shard")


@app.element(users, emits=placed)
def shard(user):
    yield placed(user.name, hash(user.name) % 4)


@app.element(placed, key="shard", emits=loads)
class Count(ProcessingElement):
    users: int = 0

    def on_event(self, user):
        self.users += 1
        yield loads(self.key, self.users)
