"""Which browsers come; the parsing of their names is slow, so its results are kept."""

import re
from functools import lru_cache

from penstock import App, Event

AGENT = re.compile(r"(Firefox|Chrome|Safari)/(\d+)")


class Hit(Event):
    id: int
    agent: str


class Browser(Event):
    id: int
    name: str
    version: int


app = App("agents")
hits = app.source("Hits", Hit)
browsers = app.stream("Browsers", Browser)
app.sink("Browsers", browsers)


@lru_cache(maxsize=8)
def parsed(agent):
    found = AGENT.search(agent)
    return (found[1], int(found[2])) if found else ("other", 0)


@app.element(hits, emits=browsers)
def browser(hit):
    name, version = parsed(hit.agent)
    yield browsers(hit.id, name, version)
