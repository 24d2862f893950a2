"""What users may call, with each argument made wrong in turn: a sentence, or a good reason to take it."""

import inspect
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from penstock import App, Count, Event, Global, ProcessingElement, Session, Tumbling, reducers
from penstock.errors import PenstockError

T0 = datetime(2026, 1, 1, tzinfo=UTC)


class Word(Event):
    text: str
    size: int = 0
    at: datetime = T0


class Counted(Event):
    text: str
    seen: int
    at: datetime = T0


class Seen(Event):
    text: str
    seen: int


WRONG = [
    0,
    -1,
    2.5,
    float("nan"),
    True,
    "",
    "no such thing",
    b"bytes",
    [],
    [1],
    {},
    {"a": 1},
    (),
    object(),
    int,
    lambda: 1,
    Decimal(1),
    Word("a"),
]


async def later(event):
    return True


def yielding(event):
    yield True


def streams(app):
    return app.source("Words", Word), app.source("Counts", Counted), app.stream("Others", Seen)


def calls():
    """Right calls of each declarator, as functions of an application: the call, its arguments, and what is decorated."""

    def pair(one, other): ...
    def single(one): ...

    class Counter(ProcessingElement):
        def on_event(self, event): ...

    yield "parameter", lambda words, counts, others: ({"name": "n", "default": 1}, None)
    yield "source", lambda words, counts, others: ({"name": "More", "event_type": Word}, None)
    yield "stream", lambda words, counts, others: ({"name": "More", "event_type": Word}, None)
    yield "sink", lambda words, counts, others: ({"name": "Out", "stream": counts}, None)
    yield "element", lambda words, counts, others: ({"inputs": words, "emits": others, "key": "text"}, Counter)
    yield "batch", lambda words, counts, others: ({"inputs": words, "emits": others}, single)
    yield "query", lambda words, counts, others: ({"inputs": words, "emits": others}, single)
    yield (
        "aggregate",
        lambda words, counts, others: (
            {"inputs": words, "key": "text", "window": Count(3), "into": others, "seen": reducers.count()},
            None,
        ),
    )
    yield (
        "pattern",
        lambda words, counts, others: (
            {"inputs": words, "key": "text", "then": [single, single], "within": "1 s", "emits": others, "at": "at"},
            pair,
        ),
    )
    yield (
        "join",
        lambda words, counts, others: (
            {"left": words, "right": counts, "key": "text", "within": (0, "1 s"), "emits": others, "at": ("at", "at")},
            pair,
        ),
    )
    yield (
        "join_latest",
        lambda words, counts, others: (
            {"left": words, "table": counts, "key": "text", "emits": others, "at": ("at", "at")},
            pair,
        ),
    )
    yield (
        "lookup",
        lambda words, counts, others: (
            {"inputs": words, "table": "rows.csv", "key": "text", "row": Word, "emits": others},
            pair,
        ),
    )
    yield (
        "distinct",
        lambda words, counts, others: ({"inputs": words, "key": "text", "within": "1 s", "into": others, "at": "at"}, None),
    )


CALLS = dict(calls())


def tried(name, /, **changed):
    """What comes of a call: the sentence that refuses it, or None."""
    app = App("wrong")
    given, decorated = CALLS[name](*streams(app))
    try:
        made = getattr(app, name)(**(given | changed))
        if decorated is not None:
            made(decorated)
    except PenstockError as error:
        return str(error)
    return None


TEXT, NONE_OF_THESE, NUMBER = {"'no such thing'"}, {"[]", "()"}, {"2.5"}
TAKEN = {
    # any text may be a name, a help, or a place, which the run looks at; a key's fields are looked for in the whole topology
    ("parameter", "help"): TEXT | {"''"},
    ("source", "name"): TEXT,
    ("source", "uri"): TEXT | {"''"},
    ("stream", "name"): TEXT,
    ("sink", "name"): TEXT,
    ("sink", "uri"): TEXT | {"''"},
    ("sink", "key"): TEXT | {"''"} | NONE_OF_THESE,
    **{(name, "name"): TEXT | {"''"} for name in ("element", "batch", "query", "lookup")},
    **{(name, "name"): {"''"} for name in ("aggregate", "pattern", "join", "join_latest")},  # these make a class of the name
    **{(name, "key"): TEXT | {"''"} for name in ("pattern", "join", "join_latest")},
    ("element", "key"): TEXT | {"''"} | NONE_OF_THESE,
    ("batch", "key"): NONE_OF_THESE,
    # a parameter is of its default's type, whichever
    ("parameter", "default"): {"0", "-1", "2.5", "nan", "True", "''"} | TEXT,
    ("parameter", "choices"): NONE_OF_THESE | {"[1]"},
    # seconds, which may be a fraction, and none
    ("source", "lateness"): {"0"},
    ("element", "expires"): NUMBER | {"0"},
    ("pattern", "within"): NUMBER,
    ("join_latest", "within"): NUMBER | {"0"},
    ("lookup", "refresh"): NUMBER | {"0"},
    # an element may emit into nothing; a class can be called as a function can
    **{(name, "emits"): NONE_OF_THESE for name in ("element", "pattern", "join", "join_latest", "lookup")},
    ("source", "sample"): {"<class 'int'>", "a function"},
    ("pattern", "without"): {"<class 'int'>"},
}
"""The values that are right, or right as far as one declaration can tell, by call and argument."""


@pytest.mark.parametrize(
    "given", [("",), (None,), (5,), ("a", {"trigger": None}), ("a", {"trigger": True}), ("a", {"on_error": 1})]
)
def test_an_application_of_wrong_arguments_has_a_sentence(given):
    named = given[1] if len(given) > 1 else {}
    with pytest.raises(PenstockError, match=r"App|application|duration"):
        App(given[0], **named)


def test_a_call_without_an_argument_names_itself():
    with pytest.raises(TypeError, match="sum: missing a required argument: 'field'"):
        reducers.sum()


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_argument_has_a_sentence_and_nothing_comes_from_inside(name):
    parameters = list(inspect.signature(getattr(App, name)).parameters.values())[1:]
    for argument in (one.name for one in parameters if one.kind is not one.VAR_KEYWORD):
        taken = set()
        for wrong in WRONG:
            said = tried(name, **{argument: wrong})
            if said is None:
                taken.add("a function" if inspect.isfunction(wrong) else repr(wrong))
            else:
                assert len(said) > 20, (argument, wrong, said)
                assert "\n" not in said
        assert taken == TAKEN.get((name, argument), set()), argument


@pytest.mark.parametrize("function", [later, yielding, 5, lambda: True])
def test_functions_that_answer_nothing_are_refused(function):
    app = App("functions")
    words, _, others = streams(app)
    with pytest.raises(PenstockError, match=r"where\(\.\.\.\)"):
        reducers.count().where(function)
    with pytest.raises(PenstockError, match="Pattern .*(step 2|functions of an event)"):
        app.pattern(words, key="text", then=[lambda one: True, function], within="1 s", emits=others, at="at")(
            lambda one, other: None
        )
    if function is not yielding:
        join = app.join(words, others, key="text", within=("-1 s", "1 s"), emits=others, at=("at", "at"), name="one")
        with pytest.raises(PenstockError, match="one"):
            join(function)


def test_where_leaves_the_reducer_as_it_was_and_all_conditions_hold():
    every = reducers.count()
    large = every.where(lambda word: word.size > 1)
    both = large.where(lambda word: word.size < 5)
    assert (every.wanted, large.wanted(Word("", 9)), both.wanted(Word("", 9)), both.wanted(Word("", 3))) == (
        None,
        True,
        False,
        True,
    )


@pytest.mark.parametrize(
    "made", [lambda: Count(2.5), lambda: Count(True), lambda: Tumbling([]), lambda: Session(None), lambda: Global(every=[1])]
)
def test_windows_ask_for_what_they_are_made_of(made):
    with pytest.raises(PenstockError, match="is no |give|longer"):
        made()


@pytest.mark.parametrize(
    ("values", "least", "greatest"),
    [
        ([1.0, float("nan"), 2.0], 1.0, "nan"),
        ([float("nan"), 1.0], 1.0, "nan"),
        ([None, 3.0, None, 1.0], 1.0, 3.0),
        ([None], None, None),
        ([Decimal("NaN"), Decimal(2)], Decimal(2), "NaN"),
    ],
)
def test_extremes_do_not_depend_on_the_order(values, least, greatest):
    for order in (values, values[::-1]):
        for reducer, wanted in ((reducers.min("size"), least), (reducers.max("size"), greatest)):
            state = reducer.start()
            for value in order:
                state = reducer.add(state, value, 0)
            assert str(state) == str(wanted)


def test_nan_is_one_value_and_none_is_in_no_top():
    class Sized(Event):
        size: float | None

    nan = float("nan")
    distinct, top = reducers.distinct("size"), reducers.top(2, by="size")
    state = distinct.start()
    for value in (nan, float("nan"), 1.0, -0.0, 0.0):
        state = distinct.add(state, value, 0)
    assert distinct.result(distinct.merge(state, {float("nan"), 2.0})) == 4
    best = top.start()
    for size in (1.0, None, 3.0, None, 2.0):
        best = top.add(best, Sized(size), 0)
    assert [event.size for event in best] == [3.0, 2.0]


def test_all_public_declarators_are_checked():
    public = {
        name for name, member in vars(App).items() if not name.startswith("_") and callable(member) and name != "topology"
    }
    assert public == set(CALLS)
    assert all(hasattr(getattr(App, name), "__wrapped__") for name in public)
