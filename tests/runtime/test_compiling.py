"""Keyless functions that are compiled from their source do what Python does with them as they are, event by event."""

import gc
import importlib.util
import linecache
import sys
import warnings
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
from penstock.runtime.compiling.source import NotCompiledError, returned
from penstock.runtime.wiring import Wiring
from penstock.testing import TopologyDriver
from penstock.testing.proof.observed import Calls, ObservedDriver
from penstock.testing.proof.suspects import hooks_of

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
    refused = [row for row, one in enumerate(letters) if one["line"] is None and "StopIteration" not in one["error"]]
    assert letters == [one | {"line": None} if row in refused else one for row, one in enumerate(letters_compiled)]


DECLARED = "@app.element(given, emits=[out, nested])"
CLASSES = """
_A__private = 7
class A:
"""
IN_A_CLASS = f"    {DECLARED}\n    def made(event):"
SINGLE = {
    "fails after it has yielded": "yield out('first', event.n)\nyield nested([1])\nif event.n == 1:\n    raise ValueError()",
    "a generator within": "def within():\n    yield out('in', 1)\n    return 7\nseen.append(len(list(within())))\nyield",
    "a lambda within": "yield out(*map(lambda value: value, ('a', event.n)))",
    "a list that is shared": "shared = []\nyield nested(shared)\nshared.append(1)\nyield nested(shared)",
    "many of one": "for number in range(event.n):\n    yield out(str(number), number)",
    "its own name": "made.calls = getattr(made, 'calls', 0) + 1\nyield out('a', made.calls)",
    "itself": "if event.n:\n    seen.extend(each.event.b for each in made(In(0, None, '', event.t, None)))\nyield out('a', 1)",
    "an iterator at its end": "yield out(next(iter([])), 1)",
    "its own locals": "fields = dict(locals())\nyield out(str(sorted(fields)), 1)",
    "evaluated names": "yield out(eval('out.name'), 1)",
    "a stream bound anew": "global out\nout = other if event.n == 1 else given if event.n == 2 else out\nyield out('a', 1)",
    "a stream bound anew elsewhere": "if event.n == 1:\n    globals()['out'] = print\nyield out('a', 1)\nyield nested([1])",
    "a stream that is gone": "if event.n == 2:\n    globals().pop('out', None)\nyield out.emit(Out('a', 1))",
    "another local of its name": "out = other if event.n else nested\nyield out([1])",
    "a class within": "class P:\n    x: int = 0\nyield out(P.__qualname__, 1)",
    "a function within that fails": "def inner(a):\n    return a\nyield out(inner(), 1)",
    "no iterable, unpacked": "yield out(*event.n)",
    "no iterable, unpacked behind": "yield out('a', *event.n)",
    "twice by name": "yield out(a='a', **{'a': 'b'})",
    "no such field": "yield out(self='a')",
    "too many": "yield out('a', 1, 2)",
    "several lines": "yield out.emit(\n    Out(\n        event.nothing, 1)\n)",
    "several lines of a call": "yield out(\n    event.s,\n    event.nothing,\n)",
    "several lines of a method": "yield out(\n    event.s\n    .strip()\n    .strftime('%Y'), 1)",
    "a method laid out": "yield out(event.t.strftime(\n    '%Y-%m'\n), 1)",
    "a constant like ours": "one = b'penstock: one'\nyield out(str(one), 1)",
    "a long sum": "yield out('a', " + " + ".join(["event.n"] * 300) + ")",
    "a large number": "yield out('a', 0x1" + "0" * 4400 + " % 7)",
    "a match": "match event.n:\n    case 0 | 1 as few:\n        yield out('few', few)\n"
    "    case _ if (n := event.n):\n        yield out('n', n)",
    "a name that is deleted": "t = event.t\ndel event\nyield out(f'{t:%Y}', 1)",
    "nothing": "if event.n:\n    return\nyield",
    "a comprehension": "yield nested([value for value in range(event.n) if value])",
    "a comprehension of formats": "yield out(' '.join([f'{at:%d}{at:%H}' for at in (event.t, event.t)]), 1)",
    "another module's stream": "yield app.streams['Out']('a', 1)",
    "a generator that returns": "yield out('a', 1)\nreturn out('b', 2)",
    "returns one": "return out('a', event.n) if event.n else None",
    "returns a list": "return [out('a', event.n), nested([1])]",
    "returns a generator": "return (out('a', number) for number in range(event.n))",
    "returns a number": "return event.n",
}


NOT_COMPILED = ("a constant like ours", "a long sum")


@pytest.mark.parametrize("name", SINGLE)
def test_the_same_of_single_cases(name, directory, patching):
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    file = application(directory, SINGLE[name])
    if name not in NOT_COMPILED:
        assert compile_function(element_of(loaded(file)))
    check_same(file, [{"n": n, "x": None, "s": "s", "t": moment, "u": None} for n in range(4)], patching)


@pytest.mark.parametrize(
    ("around", "declared", "body"),
    [
        (CLASSES, IN_A_CLASS, "    yield out('a', __private + event.n)"),
        (CLASSES, IN_A_CLASS, "    class P:\n        pass\n    yield out(P.__qualname__, 1)"),
        ("", f"{DECLARED}\n@lambda made: made\ndef made(event, /):", "yield out(made.__qualname__, 1)"),
    ],
)
def test_the_same_of_cases_in_classes(around, declared, body, directory, patching):
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    file = application(directory, body, around, declared=declared)
    assert compile_function(element_of(loaded(file)))
    check_same(file, [{"n": n, "x": None, "s": "s", "t": moment, "u": None} for n in range(4)], patching)


def test_streams_follow_each_other_as_declared(directory, patching):
    """What listens to several gets their events in that order, whichever is emitted first."""
    both = """
@app.element([out, nested], emits=other, name="both")
def both(event):
    seen.append(type(event).__name__)
"""
    file = application(directory, "yield nested([1])\nyield out('a', 1)", both)
    check_same(file, [{"n": n, "x": None, "s": "s", "t": datetime(2026, 1, 1), "u": None} for n in range(4)], patching)


def test_a_function_that_is_prepared_still_is(directory):
    module = loaded(application(directory, "yield out('a', event.n)"))
    module.made.prepare = lambda: module.seen.append("prepared")
    driver = TopologyDriver(module.app, dead_letters=True)
    before = len(module.seen)
    driver.batch({"In": [module.In(1, None, "s", datetime(2026, 1, 1, tzinfo=UTC), None)]})
    assert len(module.seen) > before


def test_prove_runs_functions_as_they_are(directory):
    """It kills at each of their calls, and a generator is called once more for each event that it yields."""
    module = loaded(application(directory, "yield out('a', event.n)\nyield out('b', event.n)"))
    assert compile_function(element_of(module))
    driver = ObservedDriver(module.app, partitions=1, reread=False)
    calls = Calls(hooks_of(element_of(module)))
    with calls.counted(None):
        driver.batch({"In": [module.In(n, None, "s", datetime(2026, 1, 1, tzinfo=UTC), None) for n in range(3)]})
    assert calls.count == 9


def test_what_a_failed_call_held_is_free_before_the_next(directory):
    body = "held = set([event.n])\nrefs.append(weakref.ref(held))\nyield out(str([ref() for ref in refs[:-1]]), 1 // event.n)"
    module = loaded(application(directory, body, "import weakref\nrefs = []\n"))
    assert compile_function(element_of(module))
    driver = TopologyDriver(module.app, dead_letters=True)
    event = {"x": None, "s": "s", "t": datetime(2026, 1, 1, tzinfo=UTC), "u": None}
    gc.disable()
    try:
        driver.batch({"In": [module.In(n, **event) for n in (0, 0, 1)]})
    finally:
        gc.enable()
    assert [one.a for one in driver.output("Out")] == ["[None, None]"]


def test_a_wrapped_function_keeps_its_name(directory, patching):
    around = """
import functools
def wrapping(function):
    @functools.wraps(function)
    def wrapper(event, more):
        yield from function(event)
    return wrapper
"""
    declared = "@app.element(given, emits=[out, nested])\n@wrapping\ndef made(event):"
    file = application(directory, "yield out('a', 1)", around, declared=declared)
    check_same(file, [{"n": n, "x": None, "s": "s", "t": datetime(2026, 1, 1), "u": None} for n in range(2)], patching)


def test_warnings_about_a_source_are_not_given_again(directory):
    file = application(directory, "yield out('a', 1 if event.n is 1 else 2)")
    with pytest.warns(SyntaxWarning):
        module = loaded(file)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compile_function(element_of(module))


def test_a_function_that_gets_another_code_runs_as_that(directory):
    module = loaded(application(directory, "yield out('a', event.n)"))
    driver = TopologyDriver(module.app, dead_letters=True)
    event = module.In(1, None, "s", datetime(2026, 1, 1, tzinfo=UTC), None)
    driver.batch({"In": [event]})

    module.made.__code__ = eval("lambda event: [out('b', event.n)]").__code__
    driver.batch({"In": [event]})
    assert [one.a for one in driver.output("Out")] == ["a", "b"]


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
    assert len(compiled) > 5


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
        ("got = yield out('a', 1)", "what a yield returns"),
        ("yield from [out('a', 1)]", "yields from"),
        ("try:\n    yield out('a', 1)\nfinally:\n    pass", "within try or with"),
        ("with suppress(Exception):\n    yield out('a', 1)", "within try or with"),
        ("try:\n    return [out('a', 1)]\nexcept Exception:\n    pass", "within try or with"),
        ("def inner(x=(yield out('a', 1))):\n    pass\nyield out('b', 2)", "in a way that is not followed"),
        ("yield (lambda x=(yield out('a', 1)): x)", "in a way that is not followed"),
        ("class Inner((yield out('a', 1)) or object):\n    pass", "in a way that is not followed"),
        ("yield out('a', " + " + ".join(["event.n"] * 800) + ")", "fails"),
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


def test_a_lambda_that_has_moved_within_its_line_is_not_what_is_compiled(directory):
    """Another one is in its place."""
    file = directory / "conditions.py"
    file.write_text("asked = [lambda event: event.n < 1, lambda event: event.n < 22]\n")
    module = loaded(file)
    file.write_text("asked = [lambda event: event.n < 22, lambda event: event.n < 1]\n")
    linecache.checkcache(str(file))
    for function in module.asked:
        with pytest.raises(NotCompiledError, match="not what it was made from"):
            returned(function)


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
