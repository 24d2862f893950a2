"""The application with which Chauhan et al. evaluated Yahoo! S4: which long numbers divide by 3, which by 11.

A word of 100 characters is a number most of the time. Numbers are multiplied by the number of
keys, as in the paper, and checked digit by digit, for they are too long for a machine's integer.
"""

from penstock import App, Event, ProcessingElement


class RawWord(Event):
    text: str


class Candidate(Event):
    text: str
    key: int


class Divisible(Event):
    by: str
    key: int


class Total(Event):
    by: str
    count: int


app = App("divisibility")
keys = app.parameter("keys", 4, choices=[1, 2, 4, 8], help="How many instances each receiver has.")

raw_words = app.source("RawWords", RawWord)
for_eleven = app.stream("ElevenCandidates", Candidate)
for_three = app.stream("ThreeCandidates", Candidate)
eleven = app.stream("Eleven", Divisible)
three = app.stream("Three", Divisible)
totals = app.stream("Totals", Total)
app.sink("Output", totals)


@app.element(raw_words, emits=[for_eleven, for_three])
def WordReceiver(word):
    if word.text.isdigit():
        for key in range(keys):
            yield for_eleven(word.text, key)
            yield for_three(word.text, key)


@app.element(for_eleven, key="key", emits=eleven)
class ElevenReceiver(ProcessingElement):
    def on_event(self, candidate):
        digits = [int(digit) for digit in candidate.text]
        if (sum(digits[::2]) - sum(digits[1::2])) % 11 == 0:
            yield eleven("Eleven", self.key)


@app.element(for_three, key="key", emits=three)
class ThreeReceiver(ProcessingElement):
    def on_event(self, candidate):
        if sum(int(digit) for digit in candidate.text) % 3 == 0:
            yield three("Three", self.key)


@app.element([eleven, three], key="by", emits=totals)
class AggregationReceiver(ProcessingElement):
    count: int = 0

    def on_event(self, divisible):
        self.count += 1

    def on_batch(self):
        yield totals(self.key, self.count)
