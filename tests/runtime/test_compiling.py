"""Keyless functions that are compiled from their source do what Python does with them as they are, event by event."""

import importlib.util
import linecache
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from itertools import count
from pathlib import Path
from textwrap import indent

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.runtime.compiling.formats import MOST, PARTS, format_of
from penstock.runtime.compiling.function import compile_function
from penstock.runtime.compiling.source import NotCompiledError
from penstock.runtime.wiring import Wiring
from penstock.testing import TopologyDriver

HEAD = """
from contextlib import suppress
from datetime import datetime
from penstock import App, Event

class In(Event):
    n: int
    x: float | None
    s: str
    t: datetime
    u: datetime | None

class Out(Event):
    a: str
    b: int

class Nested(Event):
    many: list[int]

app = App("compiled")
given = app.source("In", In)
out, nested, other = app.stream("Out", Out), app.stream("Nested", Nested), app.stream("Other", Out)
for stream in (out, nested):
    app.sink(stream.name, stream)
seen = []
"""
NUMBERS = count()
EAST = timezone(timedelta(hours=5, minutes=45))


def application(directory, body, around="", *, declared="@app.element(given, emits=[out, nested])\ndef made(event):"):
    """Write an application with one function, and load it."""
    file = directory / f"compiled_{next(NUMBERS)}.py"
    file.write_text(f"{HEAD}{around}\n{declared}\n{indent(body, '    ')}\n")
    return file


def loaded(file):
    linecache.checkcache(str(file))
    name = f"{file.stem}_{next(NUMBERS)}"
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def element_of(module):
    [element] = module.app.topology().elements
    return element


def outcome(file, events, monkeypatch, *, as_it_is):
    """What an application makes of events, its dead letters, and what its function has done besides."""
    module = loaded(file)
    with monkeypatch.context() as patched:
        if as_it_is:
            patched.setattr(Wiring, "compiled", lambda self, element: None)
        driver = TopologyDriver(module.app, dead_letters=True)
        driver.batch({"In": [module.In(**event) for event in events]})
        tally = driver.elements["made"]
        counts = (tally.events, tally.dead_letters)
        return repr([driver.output("Out"), driver.output("Nested"), counts, module.seen]), driver.dead_letters


TEXTS = st.sampled_from(
    [
        "event.s",
        "str(event.n)",
        'f"{event.t:%Y-%m-%d}"',
        'f"{event.u:%H:%M}"',
        'f"<{event.t:%d.%m.%y %I}|{event.s}|{event.n:03}>"',
        'f"{event.x:.1%}"',
        'f"{event.t:%A %f}"',
        'f"{event.t!s}"',
        'f"{event.n:%Y}"',
        'event.t.strftime("%j %S")',
        'event.u.strftime("%FT%T")',
        'event.s.strftime("%Y")',
        '(lambda value: f"{value:%Y}")(event.t)',
        '"".join(f"{at:%m}" for at in (event.t, event.u))',
        "event.n",
        "event.nothing",
        "1 / event.n and event.s",
    ]
)
WHOLE = st.sampled_from(["event.n", "len(event.s)", "event.n // 2", "True", "event.s", "len(seen)", "event.t.year"])
EMISSIONS = st.one_of(
    st.builds("out({}, {})".format, TEXTS, WHOLE),
    st.builds("out(b={1}, a={0})".format, TEXTS, WHOLE),
    st.builds("out(*({}, {}))".format, TEXTS, WHOLE),
    st.builds("out.emit(Out({}, {}))".format, TEXTS, WHOLE),
    st.builds("nested([{}, {}])".format, WHOLE, WHOLE),
    st.sampled_from(["nested(shared := [event.n])", "out()", "out.emit(event)", "other('a', 1)", "Out('a', 1)", "None", "5"]),
)
SIMPLE = st.one_of(
    st.builds("yield {}".format, EMISSIONS),
    st.sampled_from(
        [
            "return",
            "return None",
            "return 5",
            "raise ValueError(event.s)",
            "seen.append(event.n)",
            "seen.append(event.s); yield out('seen', event.n); seen.append(event.x)",
            "local = event.n",
            "yield out('local', local)",
            "got = yield out('got', 1)",
            "yield from ()",
            "yield",
            "def within():\n    yield out('within', 1)\n    return 7",
            "shared.append(1)",
        ]
    ),
)


def _within(head):
    return lambda block: f"{head}\n{indent(block, '    ')}"


BLOCKS = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("\n".join),
        inner.map(_within("if event.n % 2:")),
        inner.map(_within("for turn in range(event.n % 3):")),
        inner.map(_within("with suppress(Exception):")),
        inner.map(lambda block: _within("try:")(block) + "\nexcept Exception as error:\n    seen.append(str(error))"),
        inner.map(lambda block: _within("try:")(block) + "\nfinally:\n    seen.append('end')"),
    ),
    max_leaves=5,
)
RETURNED = st.one_of(
    st.builds("return {}".format, EMISSIONS),
    st.builds("if event.n % 2:\n    return {}\nreturn {}".format, EMISSIONS, EMISSIONS),
    st.builds("seen.append(event.n)\nreturn [{}, {}]".format, EMISSIONS, EMISSIONS),
    st.sampled_from(["return ()", "return []", "return 5", "seen.append(event.n)"]),
)
TIMES = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)).flatmap(
    lambda at: st.sampled_from([at, at.replace(tzinfo=UTC), at.replace(tzinfo=EAST)])
)
EVENTS = st.lists(
    st.fixed_dictionaries(
        {
            "n": st.integers(-3, 3),
            "x": st.none() | st.floats(-2, 2),
            "s": st.text(max_size=2),
            "t": TIMES,
            "u": st.none() | TIMES,
        }
    ),
    min_size=1,
    max_size=8,
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture(scope="module")
def patching():
    with pytest.MonkeyPatch.context() as patch:
        yield patch


def check_same(file, events, patching):
    made, letters = outcome(file, events, patching, as_it_is=True)
    made_compiled, letters_compiled = outcome(file, events, patching, as_it_is=False)
    assert made == made_compiled
    # Of an event that is refused only once it has been yielded, the compiled function knows the line, too.
    refused = [row for row, letter in enumerate(letters) if letter["line"] is None]
    assert letters == [one | {"line": None} if row in refused else one for row, one in enumerate(letters_compiled)]


@pytest.mark.parametrize(
    "body",
    [
        "yield out('first', event.n)\nyield nested([1])\nif event.n == 1:\n    raise ValueError('second')",
        "def within():\n    yield out('within', 1)\n    return 7\nseen.append(len(list(within())))\nyield out('after', 2)",
        "yield out(*map(lambda value: value, ('a', event.n)))",
        "shared = []\nyield nested(shared)\nshared.append(1)\nyield nested(shared)",
        "for number in range(event.n):\n    yield out(str(number), number)",
    ],
)
def test_the_same_of_single_cases(body, directory, patching):
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    file = application(directory, body)
    assert compile_function(element_of(loaded(file)))
    check_same(file, [{"n": n, "x": None, "s": "s", "t": moment, "u": None} for n in range(4)], patching)


@pytest.mark.parametrize("bodies", [BLOCKS, RETURNED], ids=["yields", "returns"])
def test_a_compiled_function_does_what_it_does_as_it_is(bodies, directory, patching):
    compiled = []

    @settings(max_examples=120)
    @given(bodies, EVENTS)
    def same(body, events):
        file = application(directory, body)
        check_same(file, events, patching)
        with suppress(NotCompiledError):
            compiled.append(compile_function(element_of(loaded(file))))

    same()
    assert len(compiled) > 20


@given(st.lists(st.sampled_from([*PARTS, "%"]), min_size=1, max_size=4), st.lists(TIMES, min_size=1))
def test_times_are_formatted_as_by_python(directives, times):
    spec = "-".join(f"%{directive}" for directive in directives)
    formatted = format_of(spec, lambda value: format(value, spec))
    if formatted is not None:
        assert [formatted(at) for at in times * 2] == [format(at, spec) for at in times * 2]


def test_only_so_many_texts_are_kept():
    calls = []
    formatted = format_of("%H:%M:%S", lambda at: calls.append(at) or str(at))
    start = datetime(2026, 1, 1)
    for second in range(MOST + 10):
        formatted(start + timedelta(seconds=second))
    formatted(start + timedelta(seconds=MOST + 5))
    assert len(calls) == MOST + 10
    formatted(start)
    assert len(calls) == MOST + 11


@pytest.mark.parametrize("spec", ["", "x", "%f", "%A", "%Z", ".1%", "%Y %p"])
def test_what_depends_on_more_is_formatted_each_time(spec):
    assert format_of(spec, str) is None


def why(file):
    with pytest.raises(NotCompiledError) as refused:
        compile_function(element_of(loaded(file)))
    return str(refused.value)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("yield other('a', 1)", "something else than calls of its streams"),
        ("yield Out('a', 1)", "something else"),
        ("got = yield out('a', 1)", "what a yield returns"),
        ("yield from [out('a', 1)]", "yields from"),
        ("try:\n    yield out('a', 1)\nfinally:\n    pass", "within try or with"),
        ("with suppress(Exception):\n    yield out('a', 1)", "within try or with"),
        ("yield out('a', 1)\nreturn 5", "returns something besides"),
        ("return [out('a', 1)]", "something else"),
        ("return 5", "something else"),
        ("out = other\nyield out('a', 1)", "something else"),
        ("yield out.emit(*[event])", "unpacks"),
    ],
)
def test_what_might_differ_is_not_compiled(body, reason, directory):
    assert reason in why(application(directory, body))


def test_a_source_that_has_changed_is_not_what_is_compiled(directory):
    file = application(directory, "yield out('before', event.n)")
    module = loaded(file)
    file.write_text(file.read_text().replace("before", "after"))
    linecache.checkcache(str(file))
    with pytest.raises(NotCompiledError, match="not what it was made from"):
        compile_function(element_of(module))
    file.unlink()
    linecache.checkcache(str(file))
    with pytest.raises(NotCompiledError, match="cannot be read"):
        compile_function(element_of(module))


AROUND = """
def outer(word):
    words = [word]

    @app.element(given, emits=[out, nested], name="made")
    def made(event, end=" end", *, start="start "):
        word = start + words[0] + end
        yield out(word, len(words))

    return words

words = outer("first")
"""


def test_what_is_around_a_function_stays_its_own(directory):
    """Its defaults, and what it shares with the function that it was made in."""
    module = loaded(application(directory, "pass", AROUND, declared="if True:"))
    assert compile_function(element_of(module))
    driver = TopologyDriver(module.app, dead_letters=True)
    event = module.In(1, None, "s", datetime(2026, 1, 1, tzinfo=UTC), None)
    driver.batch({"In": [event]})
    module.words[:] = ["second", "third"]
    driver.batch({"In": [event]})
    assert [one["a"] if isinstance(one, dict) else one.a for one in driver.output("Out")] == [
        "start first end",
        "start second end",
    ]


def test_a_name_that_is_bound_anew_is_followed(directory):
    module = loaded(application(directory, "yield out('a', event.n)"))
    driver = TopologyDriver(module.app, dead_letters=True)
    event = module.In(1, None, "s", datetime(2026, 1, 1, tzinfo=UTC), None)
    driver.batch({"In": [event]})
    module.out = module.other
    driver.batch({"In": [event]})
    assert len(driver.output("Out")) == 1
    [letter] = driver.dead_letters
    assert "emitted into Other" in letter["error"]


def test_a_failure_names_the_line_of_the_source(directory):
    file = application(directory, "day = f'{event.u:%Y}'\nyield out(day, 1)")
    module = loaded(file)
    assert compile_function(element_of(module))
    driver = TopologyDriver(module.app, dead_letters=True)
    driver.batch({"In": [module.In(1, None, "s", datetime(2026, 1, 1, tzinfo=UTC), None)]})
    [letter] = driver.dead_letters
    line = 1 + file.read_text().splitlines().index("    day = f'{event.u:%Y}'")
    assert letter["line"] == f"{file.name}:{line}"
    assert letter["error"] == "TypeError: unsupported format string passed to NoneType.__format__"


def test_examples_are_compiled():
    elements = loaded(Path("examples/divisibility/app.py")).app.topology().elements
    assert [compile_function(element) for element in elements if not element.keyed]
