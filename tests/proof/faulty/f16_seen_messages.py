"""Messages that are sent twice are let through once."""

from penstock import App, Event

seen = set()


class Message(Event):
    id: int
    sender: str
    text: str


app = App("seen_messages")
messages = app.source("Messages", Message)
fresh = app.stream("Fresh", Message)
app.sink("Fresh", fresh)


@app.element(messages, emits=fresh)
def once(message):
    if message.id not in seen:
        seen.add(message.id)
        yield fresh(message.id, message.sender, message.text)
