"""What a newcomer may declare or write that cannot be right has a sentence, and what is right does not depend on the cut."""

from datetime import UTC, datetime, time, timedelta, timezone

import numpy as np
import pytest
from cli.command import complaint, said

from penstock import App, Event, ProcessingElement, Tumbling
from penstock.errors import EventSchemaError, TopologyError
from penstock.testing import TopologyDriver


class Tree(Event):
    name: str
    children: list["Tree"] = []


class One(Event):
    other: "Other | None" = None


class Other(Event):
    one: One | None = None


@pytest.mark.parametrize(("kind", "path"), [(Tree, r"Tree.children\[\]"), (One, "One.other.one"), (Other, "Other.one.other")])
def test_an_event_within_itself_is_refused(kind, path):
    with pytest.raises(EventSchemaError, match=f"Field {path} has type"):
        App("recursive").source("Events", kind)


class Item(Event):
    name: str


def test_an_element_without_a_key_says_that_it_has_no_clock():
    app = App("clockless")
    items, out = app.source("Items", Item), app.stream("Out", Item)
    app.sink("Out", out)

    @app.element(items, emits=out)
    class Clocked(ProcessingElement):
        def on_event(self, item):
            if item.name == "timer":
                self.set_timer(after=1)
            yield out(str(self.now if item.name == "now" else self.watermark))

    driver = TopologyDriver(app, dead_letters=True)
    driver.batch({"Items": [Item("now"), Item("watermark"), Item("timer")]})
    assert len(driver.dead_letters) == 3
    assert all("Clocked has no clock, watermark or timer here" in letter["error"] for letter in driver.dead_letters)


EAST = timezone(timedelta(hours=1))


@pytest.mark.parametrize(("kind", "first", "second"), [(float, 0.0, -0.0), (time, time(1, tzinfo=UTC), time(2, tzinfo=EAST))])
def test_keys_of_the_batch_dialect_have_one_form(kind, first, second):
    class Keyed(Event):
        k: kind

    class Counted(Event):
        k: kind
        seen: int

    class Seen(Event):
        n: int = 0

    def results(cuts):
        app = App("columns")
        keyed, counted = app.source("Keyed", Keyed), app.stream("Counted", Counted)
        app.sink("Out", counted)

        @app.batch(keyed, key="k", state=Seen, emits=counted)
        def count(batch, at, states):
            for place in at:
                states.n[place] += 1
            return {"k": states.keys["k"], "seen": states.n}

        driver = TopologyDriver(app)
        for cut in cuts:
            driver.batch({"Keyed": [Keyed(value) for value in cut]})
        return repr(driver.output("Out")[-1])

    assert results([[first, second]]) == results([[first], [second]]) == repr(Counted(first, 2))


APP = """
from penstock import App, Event


class Word(Event):
    text: str


app = App("named")
app.parameter("partitions", 4)
app.sink("Out", app.source("Words", Word))
"""


def test_a_parameter_of_the_name_of_an_option_is_refused_where_that_option_is_given(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "named_oddly.py").write_text(APP)
    assert "--partitions is an option of this command" in complaint(capsys, "run", "named_oddly.py", "--partitions", "8")
    assert "Words" in said(capsys, "graph", "named_oddly.py")


def test_a_function_of_columns_may_return_nothing():
    app = App("nothing")
    items, out = app.source("Items", Item), app.stream("Out", Item)
    app.sink("Out", out)
    app.batch(items, emits=out, name="never")(lambda batch: None)
    driver = TopologyDriver(app)
    driver.batch({"Items": [Item("a")]})
    assert driver.output("Out") == []


@pytest.mark.parametrize(("ordered", "longer"), [(True, False), (False, True)])
def test_late_events_that_cannot_be_processed_have_a_mend_that_there_is(ordered, longer):
    class Timed(Event):
        k: str
        at: datetime

    app = App("late")
    timed = app.source("Timed", Timed, event_time="at", late="process")
    out = app.stream("Out", Timed)
    app.sink("Out", out)
    if ordered:

        @app.element(timed, key="k", ordered=True, emits=out)
        class InOrder(ProcessingElement):
            def on_event(self, one):
                yield out.emit(one)
    else:

        @app.element(timed, key="k", window=Tumbling("10 s"), emits=out)
        class Windowed(ProcessingElement):
            def on_event(self, one):
                yield out.emit(one)

            def on_close(self):
                """Emits nothing."""

    with pytest.raises(TopologyError, match="cannot process late events") as caught:
        app.topology()
    assert ("allowed=" in str(caught.value)) == longer


def test_a_value_of_a_type_that_no_field_has_is_named():
    class Number(Event):
        n: int

    app = App("numbers")
    items, numbers = app.source("Items", Item), app.stream("Numbers", Number)
    app.sink("Out", numbers)
    app.element(items, emits=numbers, name="count")(lambda item: [numbers(np.int64(3))])
    driver = TopologyDriver(app, dead_letters=True)
    driver.batch({"Items": [Item("a")]})
    [letter] = driver.dead_letters
    assert "Type numpy.int64 is of no field" in letter["error"]
