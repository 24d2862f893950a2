"""Visitors of each page, from the site and from the app."""

from penstock import App, Event, ProcessingElement


class View(Event):
    page: str
    visitor: str


class Unique(Event):
    page: str
    visitors: int
    first: str
    last: str


app = App("visitors")
site = app.source("Site", View)
phones = app.source("Phones", View)
unique = app.stream("Unique", Unique)
app.sink("Unique", unique, key="page")


@app.element([site, phones], key="page", emits=unique)
class Page(ProcessingElement):
    visitors: set[str] = set()

    def on_event(self, view):
        self.visitors.add(view.visitor)
        yield unique(self.key, len(self.visitors), min(self.visitors), max(self.visitors))
