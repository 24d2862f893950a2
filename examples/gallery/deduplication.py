"""Deduplication: each message once, although its sender repeats it.

A message is known by its id for an hour of event time. State that can match nothing any more is dropped.
"""

from datetime import datetime

from penstock import App, Event


class Message(Event):
    id: str
    text: str
    at: datetime


app = App("deduplication")
messages = app.source("Messages", Message, event_time="at", lateness="1 minute")
once = app.stream("Once", Message)
app.sink("Once", once)
app.distinct(messages, key="id", within="1 hour", into=once)
