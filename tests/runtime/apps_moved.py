"""Counters by key in both dialects, whose pages a test moves to another number of partitions."""

import numpy as np

from penstock import App, Event, ProcessingElement


class Whole(Event):
    key: int


class Text(Event):
    key: str


class Pair(Event):
    key: int
    other: str


class Seen(Event):
    key: str
    seen: int


class Kept(Event):
    seen: int = 0


def counted(name, kind, fields, in_columns):
    app = App(name)
    events, seen = app.source("Events", kind), app.stream("Seen", Seen)
    app.sink("Out", seen)
    if in_columns:

        @app.batch(events, emits=seen, key=fields, state=Kept, name="Counts")
        def count(batch, at, states):
            states.seen += np.bincount(at, minlength=len(states))
            return {"key": ["/".join(map(str, row.values())) for row in states.keys.to_pylist()], "seen": states.seen}

    else:

        @app.element(events, key=fields, emits=seen, name="Counts")
        class Count(ProcessingElement):
            seen: int = 0

            def on_event(self, event):
                self.seen += 1
                return seen("/".join(str(getattr(event, field)) for field in fields), self.seen)

    return app


KEYS = {"whole": (Whole, ["key"]), "text": (Text, ["key"]), "pair": (Pair, ["key", "other"])}
whole_columns, text_columns, pair_columns = (counted(name, *KEYS[name], True) for name in KEYS)
whole_objects, text_objects, pair_objects = (counted(name, *KEYS[name], False) for name in KEYS)
