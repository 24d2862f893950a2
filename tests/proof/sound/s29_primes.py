"""The greatest prime factor of each number; those already known are not worked out again."""

from penstock import App, Event

known = {1: 1}


class Number(Event):
    value: int


class Factor(Event):
    value: int
    factor: int


app = App("primes")
numbers = app.source("Numbers", Number)
factors = app.stream("Factors", Factor)
app.sink("Factors", factors)


def greatest(value):
    if value not in known:
        least = next((d for d in range(2, int(value**0.5) + 1) if value % d == 0), value)
        known[value] = max(least, greatest(value // least))
    return known[value]


@app.element(numbers, emits=factors)
def factor(number):
    yield factors(number.value, greatest(number.value))
