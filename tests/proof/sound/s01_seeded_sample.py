"""A tenth of the requests are traced; which, the request's own number decides."""

import random

from penstock import App, Event


class Request(Event):
    id: str
    path: str
    ms: int


app = App("seeded_sample")
requests = app.source("Requests", Request)
traced = app.stream("Traced", Request)
app.sink("Traced", traced)


@app.element(requests, emits=traced)
def trace(request):
    draw = random.Random(f"trace {request.id}").random()
    if draw < 0.3:
        yield traced.emit(request)
