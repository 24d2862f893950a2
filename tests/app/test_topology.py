"""What an application may declare, and the one sentence for each thing it may not."""

from datetime import datetime

import pytest

from penstock import App, Event, ProcessingElement
from penstock.app.drawing import mermaid
from penstock.app.picture import svg
from penstock.errors import ConfigurationError, CyclicTopologyError, EventSchemaError, PenstockError, StateError, TopologyError
from penstock.kinds.coding import json_schema


class Word(Event):
    text: str
    size: int = 0


class Counter(ProcessingElement):
    seen: int = 0

    def on_event(self, event):
        self.seen += 1


def echo(event):
    return None


def app_with(*declare):
    """An application with a source, a stream and whatever is declared on them."""
    app = App("test")
    words, out = app.source("Words", Word), app.stream("Out", Word)
    for one in declare:
        one(app, words, out)
    return app


def cycle(app, words, out):
    back = app.stream("Back", Word)
    app.element([words, back], emits=out, name="first")(echo)
    app.element(out, emits=back, name="second")(echo)


def foreign(app, words, out):
    app.element(App("other").source("Theirs", Word), name="listener")(echo)


def unfed(app, words, out):
    app.element([words, out], name="listener")(echo)


def unheard(app, words, out):
    app.element(app.source("Others", Word), name="listener")(echo)


def twice(app, words, out):
    app.element(words, name="same")(echo)
    app.element(words, name="same")(echo)


def into_source(app, words, out):
    app.element(words, emits=words, name="loop")(echo)


def bad_key(app, words, out):
    app.element(words, key="lenght", name="Counter")(Counter)


def function_with_key(app, words, out):
    app.element(words, key="text", name="counter")(echo)


def foreign_class(app, words, out):
    app.element(words, key="text", name="plain")(int)


def timer_without_key(app, words, out):
    class Late(ProcessingElement):
        def on_timer(self):
            return None

    app.element(words)(Late)


def every_without_hook(app, words, out):
    app.element(words, key="text", every="10 s")(Counter)


def two_outputs_of_a_batch(app, words, out):
    app.batch(words, emits=[out, app.stream("Other", Word)], name="columns")(echo)


def misspelt_hook(app, words, out):
    @app.element(words, key="text")
    class Counter(ProcessingElement):
        def on_evnt(self, event):
            """Never called."""

        def on_batch(self):
            """Called."""


def unknown_hook(app, words, out):
    @app.element(words, key="text")
    class Counter(ProcessingElement):
        def on_start(self):
            """Never called."""

        def on_batch(self):
            """Called."""


def hook_without_its_argument(app, words, out):
    @app.element(words, key="text")
    class Counter(ProcessingElement):
        def on_event(self):
            """Cannot be called."""


def function_of_two(app, words, out):
    @app.element(words)
    def pair(one, other):
        """Cannot be called."""


def sink_of_a_name(app, words, out):
    app.sink("Output", "Words")


def nothing_to_do(app, words, out):
    class Idle(ProcessingElement):
        seen: int = 0

    app.element(words, key="text")(Idle)


def not_a_stream(app, words, out):
    app.element("Words", name="listener")(echo)


def odd_name(app, words, out):
    app.element(words, name="a b")(echo)


def name_of_dots(app, words, out):
    app.sink("..", words)


@pytest.mark.parametrize(
    ("mistake", "kind", "words"),
    [
        (cycle, CyclicTopologyError, ["first", "second", "cycle", "emitting into a stream"]),
        (foreign, TopologyError, ["listener", "Theirs", "its streams are Words, Out"]),
        (unfed, TopologyError, ["Out", "listener", "emits="]),
        (unheard, TopologyError, ["Nothing listens to source Words", "add an element"]),
        (twice, TopologyError, ["Two elements are named same", "name="]),
        (into_source, TopologyError, ["loop", "Words", "app.stream"]),
        (bad_key, TopologyError, ["'lenght'", "text, size"]),
        (function_with_key, TopologyError, ["counter", "ProcessingElement"]),
        (foreign_class, TopologyError, ["plain", "derive it from ProcessingElement"]),
        (timer_without_key, TopologyError, ["Late", "on_timer", "no key"]),
        (every_without_hook, TopologyError, ["Counter", "on_interval"]),
        (two_outputs_of_a_batch, TopologyError, ["columns", "exactly one stream"]),
        (misspelt_hook, TopologyError, ["Counter", "on_evnt", "did you mean on_event?"]),
        (unknown_hook, TopologyError, ["Counter", "on_start", "on_interval"]),
        (hook_without_its_argument, TopologyError, ["Counter: on_event", "def on_event(self, event)"]),
        (function_of_two, TopologyError, ["pair", "must accept the event"]),
        (sink_of_a_name, TopologyError, ["Output", "'Words'", "app.stream"]),
        (nothing_to_do, TopologyError, ["Idle", "does nothing"]),
        (not_a_stream, TopologyError, ["listener", "'Words'", "app.stream"]),
        (odd_name, TopologyError, ["'a b'", "letters, digits"]),
        (name_of_dots, TopologyError, ["'..'", "dots alone"]),
    ],
)
def test_a_mistake_is_named_with_its_mend(mistake, kind, words):
    with pytest.raises(kind) as caught:
        app_with(mistake).topology()
    sentence = str(caught.value)
    assert isinstance(caught.value, PenstockError)
    assert isinstance(caught.value, ValueError)
    assert "\n" not in sentence
    for word in words:
        assert word in sentence


def test_state_without_a_key_is_refused():
    def unkeyed(app, words, out):
        app.element(words)(Counter)

    with pytest.raises(StateError, match="seen.*add key="):
        app_with(unkeyed)


def test_state_without_a_default_is_refused():
    class Needy(ProcessingElement):
        seen: int

        def on_event(self, event):
            return None

    with pytest.raises(StateError, match="'seen' has no default"):
        App("x").element(App("x").source("W", Word), key="text")(Needy)


def test_state_of_an_unknown_type_is_refused():
    class Odd(ProcessingElement):
        seen: complex | int = 0

        def on_event(self, event):
            return None

    # complex is known to MessagePack libraries as an extension at best; what cannot be decoded back is refused.
    class Worse(ProcessingElement):
        lists: list[int] | tuple[int, ...] = []

        def on_event(self, event):
            return None

    with pytest.raises(StateError, match="Worse.*cannot be kept"):
        App("x").element(App("x").source("W", Word), key="text")(Worse)


@pytest.mark.parametrize(
    ("annotation", "path"),
    [
        (complex, "Bad.field"),
        (int | str, "Bad.field"),
        (list[complex], r"Bad.field\[\]"),
        (dict[int, str], "Bad.field"),
        (object, "Bad.field"),
        (tuple[int, int], "Bad.field"),
    ],
)
def test_a_schema_error_names_the_field(annotation, path):
    namespace = {"__annotations__": {"field": annotation}, "__module__": __name__}
    bad = type(Event)("Bad", (Event,), namespace)
    with pytest.raises(EventSchemaError, match=f"{path} has type"):
        App("x").source("Words", bad)


def test_a_schema_error_names_a_nested_field():
    class Inner(Event):
        odd: complex

    class Outer(Event):
        inner: list[Inner] | None = None

    with pytest.raises(EventSchemaError, match=r"Outer.inner\[\].odd"):
        App("x").source("Words", Outer)


def test_event_time_must_be_a_datetime_field():
    class Timed(Event):
        at: datetime
        text: str

    assert App("x").source("A", Timed, event_time="at", lateness="5 min").event_time.lateness == 300
    with pytest.raises(TopologyError, match="'text'.*datetime"):
        App("x").source("B", Timed, event_time="text")
    with pytest.raises(ConfigurationError, match="no policy"):
        App("x").source("C", Timed, event_time="at", late="forgive")


def diamond():
    def declare(app, words, out):
        left, right = app.stream("Left", Word), app.stream("Right", Word)
        app.element(words, emits=left, key="text", name="a")(Counter)
        app.element(words, emits=right, name="b")(echo)
        app.element([left, right], emits=out, key="text", name="c")(Counter)
        app.sink("End", out)

    return app_with(declare).topology()


def test_depths_count_the_keyed_hops_before_an_element():
    assert diamond().depths == {"a": 1, "b": 0, "c": 2}


def test_a_topology_is_drawn_without_being_run():
    topology = diamond()
    text = mermaid(topology)
    assert text.startswith("flowchart LR\n")
    assert "element_a -->|Left| element_c" in text
    picture = svg(topology)
    assert picture.startswith("<svg")
    for name in ("Words", "a", "b", "c", "End", "Left", "Right", "key: text"):
        assert f">{name}<" in picture


def test_a_topology_is_plain_data():
    data = diamond().to_json()
    assert data["elements"][0] == {
        "name": "a",
        "dialect": "event",
        "key": ["text"],
        "inputs": ["Words"],
        "emits": ["Left"],
        "stage": 1,
        "every_s": None,
        "expires_s": None,
        "timers": "processing",
    }
    assert data["streams"][0] == {"name": "Words", "event": "Word", "fields": {"text": "str", "size": "int"}, "source": True}


def test_a_value_without_a_type_is_no_state():
    class Forgetful(ProcessingElement):
        seen = 0

        def on_event(self, event):
            self.seen += 1

    with pytest.raises(StateError, match="'seen' has a value but no type.*`seen: int = 0`"):
        App("x").element(App("x").source("W", Word), key="text")(Forgetful)


def test_event_types_have_a_json_schema():
    schema = json_schema(Word)
    assert schema["$defs"]["Word"]["required"] == ["text"]
