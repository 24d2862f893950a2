"""Events whose fields are called as columns of ours, or of Spark's, might be."""

from types import new_class

from penstock import App, Event, ProcessingElement

NAMES = [
    "n",
    "now",
    "born",
    "major",
    "minor",
    "_born",
    "path",
    "payload",
    "beside",
    "value",
    "key",
    "bucket",
    "block",
    "hop",
    "time",
    "label",
    "event_time",
    "content",
    "length",
    "modificationTime",
    "_metadata",
    "select",
    "Case",
    "case_",
    "a" * 100,
    "ünïcode",
]
Named = new_class(
    "Named", (Event,), {}, lambda space: space.update({"__annotations__": dict.fromkeys(NAMES, int), "__module__": __name__})
)
Cased = new_class(
    "Cased",
    (Event,),
    {},
    lambda space: space.update({"__annotations__": {"n": int, "a": int, "A": int}, "__module__": __name__}),
)


def grouped(event_type):
    app = App("grouped")
    source, between, out = (app.source("In", event_type), app.stream("Between", event_type), app.stream("Out", event_type))

    @app.element(source, key="n", emits=between)
    class First(ProcessingElement):
        def on_event(self, event):
            yield between.emit(event)

    @app.batch(between, emits=out)
    def second(batch):
        return batch

    app.sink("Results", out)
    return app


def queried(event_type):
    app = App("queried")
    source, out = app.source("In", event_type), app.stream("Out", event_type)

    @app.query(source, emits=out)
    def relay(frame):
        return frame

    app.sink("Results", out)
    return app


names, names_queried = grouped(Named), queried(Named)
cases = grouped(Cased)
