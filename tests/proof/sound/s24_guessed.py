"""Passwords that were guessed: twice wrong, then right, within a minute."""

from datetime import datetime

from penstock import App, Event


class Login(Event):
    user: str
    right: bool
    at: datetime


class Guessed(Event):
    user: str
    at: datetime


app = App("guessed")
logins = app.source("Logins", Login, event_time="at", lateness="1 day")
guessed = app.stream("Guessed", Guessed)
app.sink("Guessed", guessed)


def wrong(login):
    return not login.right


@app.pattern(logins, key="user", within="1 minute", emits=guessed, then=[wrong, wrong, lambda login: login.right])
def alarm(first, second, last):
    yield guessed(last.user, last.at)
