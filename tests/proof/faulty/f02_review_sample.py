"""A fair sample of three reviews for each product, by reservoir sampling, for the page of the product."""

import random

from penstock import App, Event, ProcessingElement

SIZE = 3


class Review(Event):
    product: str
    text: str
    stars: int


class Sample(Event):
    product: str
    reviews: list[str]


app = App("review_sample")
reviews = app.source("Reviews", Review)
samples = app.stream("Samples", Sample)
app.sink("Samples", samples, key="product")


@app.element(reviews, key="product", emits=samples)
class Sampler(ProcessingElement):
    seen: int = 0
    kept: list[str] = []

    def on_event(self, review):
        self.seen += 1
        if len(self.kept) < SIZE:
            self.kept.append(review.text)
        else:
            place = random.randrange(self.seen)
            if place < SIZE:
                self.kept[place] = review.text

    def on_batch(self):
        yield samples(self.key, self.kept)
