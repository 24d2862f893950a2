"""New views of each page, written for a report that adds them up and counts the bursts."""

from penstock import App, Event, ProcessingElement


class Hit(Event):
    page: str
    visitor: str


class Views(Event):
    page: str
    fresh: int


app = App("page_views")
hits = app.source("Hits", Hit)
views = app.stream("Views", Views)
app.sink("Views", views)


@app.element(hits, key="page", emits=views, name="Views")
class PerPage(ProcessingElement):
    fresh: int = 0

    def on_event(self, hit):
        self.fresh += 1

    def on_batch(self):
        yield views(self.key, self.fresh)
        self.fresh = 0
