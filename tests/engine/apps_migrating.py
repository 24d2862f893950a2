"""One application in the versions that it has had: a count, a count and a text, and a list."""

from penstock import App, Event, ProcessingElement


class Word(Event):
    text: str


class Seen(Event):
    text: str
    seen: int


first, second, third, without, failing = (App("migrating") for _ in range(5))


def version(app):
    """The streams of a version, and its sink."""
    words, seen = app.source("Words", Word), app.stream("Seen", Seen)
    app.sink("Out", seen)
    return app.element(words, key="text", emits=seen, name="Counter"), seen


element, seen_by_first = version(first)


@element
class FirstCounter(ProcessingElement):
    seen: int = 0

    def on_event(self, word):
        self.seen += 1
        return seen_by_first(self.key, self.seen)


element, seen_by_second = version(second)


@element
class SecondCounter(ProcessingElement):
    number: int = 0

    @classmethod
    def migrate(cls, old):
        return cls(number=old["seen"])

    def on_event(self, word):
        self.number += 1
        return seen_by_second(self.key, self.number)


element, seen_by_third = version(third)


@element
class ThirdCounter(ProcessingElement):
    words: list[str] = []

    @classmethod
    def migrate(cls, old):
        return cls(words=["?"] * (old["number"] if "number" in old else old["seen"]))

    def on_event(self, word):
        self.words.append(word.text)
        return seen_by_third(self.key, len(self.words))


element, seen_by_failing = version(failing)


@element
class FailingCounter(ProcessingElement):
    number: int = 0

    @classmethod
    def migrate(cls, old):
        return cls(number=old["gone"])

    def on_event(self, word):
        self.number += 1
        return seen_by_failing(self.key, self.number)


element, seen_without = version(without)


@element
class CounterWithoutMigrate(ProcessingElement):
    words: list[str] = []

    def on_event(self, word):
        self.words.append(word.text)
        return seen_without(self.key, len(self.words))
