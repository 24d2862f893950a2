"""Moves of chess games, counted, and which side is to move."""

from typing import ClassVar

from penstock import App, Event, ProcessingElement


class Move(Event):
    game: str
    move: str


class Said(Event):
    game: str
    number: int
    side: str
    move: str


app = App("chess_clock")
moves = app.source("Moves", Move)
said = app.stream("Said", Said)
app.sink("Said", said)


@app.element(moves, key="game", emits=said)
class Game(ProcessingElement):
    SIDES: ClassVar[list[str]] = ["white", "black"]
    moves: int = 0

    def on_event(self, move):
        side = self.SIDES[self.moves % 2]
        self.moves += 1
        yield said(self.key, (self.moves + 1) // 2, side, move.move)
