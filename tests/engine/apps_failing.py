"""An application in which events fail in every element: some in two of them, some through two descendants."""

from penstock import App, Event, ProcessingElement


class Number(Event):
    value: int


class Half(Event):
    value: int
    side: int


failing = App("failing")
numbers = failing.source("Numbers", Number)
halves, lefts = failing.stream("Halves", Half), failing.stream("Lefts", Half)
rights, lasts = failing.stream("Rights", Half), failing.stream("Lasts", Half)
failing.sink("Rights", rights)
failing.sink("Lasts", lasts)

FAILING = {"split": (0,), "left": (1,), "right": (1, 2), "last": (3,)}
"""By element, the last digits of the numbers that it refuses."""
LETTERS = {0: 1, 1: 2 + 2, 2: 2, 3: 2}
"""By last digit, how many dead letters a number leaves."""


def check(element, event):
    if event.value % 10 in FAILING[element]:
        raise ValueError(f"{element} takes no {event.value}")


@failing.element(numbers, emits=halves)
def split(number):
    check("split", number)
    for side in (0, 1):
        yield halves(number.value, side)


@failing.element(halves, key="value", emits=lefts)
class Left(ProcessingElement):
    def on_event(self, half):
        check("left", half)
        yield lefts(half.value, half.side)


@failing.element(halves, key="value", emits=rights)
class Right(ProcessingElement):
    def on_event(self, half):
        check("right", half)
        yield rights(half.value, half.side)


@failing.element(lefts, emits=lasts)
def last(half):
    check("last", half)
    yield lasts(half.value, half.side)
