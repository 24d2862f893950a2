"""Articles with the topics that occur in them, by name."""

from penstock import App, Event

TOPICS = {"energy", "water", "politics", "music", "sport", "science"}


class Article(Event):
    id: int
    text: str


class Tagged(Event):
    id: int
    tags: list[str]


app = App("sorted_tags")
articles = app.source("Articles", Article)
tagged = app.stream("Tagged", Tagged)
app.sink("Tagged", tagged)


@app.element(articles, emits=tagged)
def tag(article):
    found = TOPICS & set(article.text.lower().split())
    yield tagged(article.id, sorted(found))
