"""The best player of each room in each minute."""

from datetime import datetime

from penstock import App, Event, Tumbling, reducers


class Hit(Event):
    room: str
    player: str
    points: int
    at: datetime


class Score(Event):
    room: str
    player: str
    start: datetime
    points: int


class Winner(Event):
    room: str
    start: datetime
    winner: list[Score]


app = App("best_player")
hits = app.source("Hits", Hit, event_time="at", lateness="1 day")
scores = app.stream("Scores", Score)
winners = app.stream("Winners", Winner)
app.sink("Winners", winners, key=("room", "start"))
app.aggregate(hits, key=("room", "player"), window=Tumbling("1 minute"), into=scores, points=reducers.sum("points"))
app.aggregate(
    scores, key="room", window=Tumbling("1 minute", at="start"), into=winners, name="Best", winner=reducers.top(1, by="points")
)
