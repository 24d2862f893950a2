"""Bad input as a new user would give it: one clear sentence on standard error, exit code 2, no traceback."""

import pytest

from benchmarks.servers.s3 import KEYS
from penstock.bench.servers.process import free_port
from penstock.cli import main

GOOD = """
from penstock import App, Event, ProcessingElement

class Word(Event):
    text: str
    size: int = 0

app = App("good")
level = app.parameter("level", 3)
words = app.source("Words", Word, sample=lambda n: Word(str(n)))
out = app.stream("Out", Word)
app.sink("End", out)

@app.element(words, key="text", emits=out)
class Counter(ProcessingElement):
    seen: int = 0
    def on_event(self, event):
        self.seen += 1
"""


@pytest.fixture
def app(tmp_path, monkeypatch):
    """A directory to be in, with an application and some input."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "a.jsonl").write_text('{"text": "a"}\n')
    return tmp_path


def sentence(capsys, *arguments):
    """What the command says; asserts that it is one sentence and that the exit code is 2."""
    with pytest.raises(SystemExit) as exit_:
        main(list(arguments))
    said = capsys.readouterr().err
    assert exit_.value.code == 2, said
    assert said.startswith("penstock: ")
    assert said.count("\n") == 1, said
    assert "Traceback" not in said
    return said


WORDS = "--source=Words=jsonl:input"


def test_an_application_without_a_sink_is_refused(app, capsys):
    (app / "mute.py").write_text(GOOD.replace('app.sink("End", out)', ""))
    said = sentence(capsys, "run", "mute.py", WORDS, "--until-idle")
    assert "has no sink" in said
    assert "app.sink(NAME, STREAM)" in said
    assert "(Out)" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.py"], ["There is no file missing.py"]),
        (["good.py"], ["Source Words has no URI", "--source Words=jsonl:PATH"]),
        (["good.py", "--source", "Words=jsonl:nowhere"], ["nowhere does not exist", "create the directory"]),
        (["good.py", "--source", "Words=ftp:input"], ["no known scheme", "jsonl:..."]),
        (["good.py", "--source", "Words=jsonl:input?rows=3"], ["no option 'rows'", "max_files"]),
        (["good.py", "--source", "Words=jsonl:input?max_files=0"], ["max_files=0 must be a whole number greater than zero"]),
        (["good.py", "--source", "Words"], ["write NAME=VALUE"]),
        (["good.py", "--source", "Wrods=jsonl:input"], ["there is no Wrods", "has Words"]),
        (["good.py", WORDS, "--sink", "Edn=jsonl:out"], ["there is no Edn", "has End"]),
        (["good.py", WORDS, "--sink", "End=xml:out"], ["no known scheme", "parquet:..."]),
        (["good.py", WORDS, "--levle", "4"], ["--levle", "--level"]),
        (["--trigge", "2s", "good.py", WORDS], ["--trigge is no option of this command", "did you mean --trigger?"]),
        (["--level", "4", "good.py", WORDS], ["--level is no option of this command", "follow it"]),
        ([WORDS, "--ui", "good.py"], ["--ui takes what follows it for its value: write good.py before --ui"]),
        ([WORDS, "--otlp", "good.py:app"], ["write good.py:app before --otlp"]),
        (["good.py", WORDS, "--level", "high"], ["--level high", "type int"]),
        (["good.py", WORDS, "--level"], ["--level", "needs a value"]),
        (["good.py", WORDS, "--duration", "soon"], ["'soon' is not a duration", "10 s"]),
        (["good.py", WORDS, "--partitions", "0"], ["--partitions 0", "from 1"]),
        (["good.py", WORDS, "--partitions", "two"], ["'two' is not a valid integer"]),
        (["good.py", WORDS, "--name", "../up"], ["plain directory name"]),
        (["good.py", WORDS, "--group", "Nobody=x"], ["'Nobody', which is no element", "Counter"]),
        (["good.py", "--source", "Words=text:input"], ["text source fills one field", "text, size"]),
        (["good.py", "--source", "Words=log:nolog"], ["no event log", "append to it first"]),
        (["good.py", "--source", "Words=generator:poisson"], ["how many events a second"]),
        (["good.py", "--source", "Words=generator:poisson?rate=-5"], ["rate=-5 must be a number greater than zero"]),
        (["good.py", "--source", "Words=generator:poisson?rate=nan"], ["rate=nan must be a number"]),
        (["good.py", "--source", "Words=generator:weekly?rate=5"], ["'weekly' is no schedule", "bursty"]),
        (["good.py", "--source", "Words=jsonl:"], ["names no place", "jsonl:PATH"]),
        (["good.py", "--source", "Words=log:"], ["names no place", "log:DIR"]),
        (["good.py", "--source", "Words=generator:bursty?rate=5&scv=0.5"], ["scv=0.5 must be above 1"]),
        (["good.py", "--source", "Words=generator:constant?rate=5&min_rows=9&max_rows=3"], ["min_rows=9 is above"]),
        (["good.py", "--source", "Words=replay:none.parquet?time=at"], ["none.parquet does not exist"]),
        (["good.py", WORDS, "extra"], ["'extra' is not understood"]),
        (["good.py", WORDS, "--hops", "foo:bar"], ["--hops foo:bar: write kafka:HOST:PORT", "without a topic"]),
        (["good.py", WORDS, "--hops", "kafka:h:1/topic"], ["--hops kafka:h:1/topic: write kafka:HOST:PORT"]),
        (["good.py", WORDS, "--hops", "kafka:h:1?foo=1"], ["no options but Kafka's"]),
        (["good.py", WORDS, "--hops", "kafka:h:1"], ["no stream goes from one group to another", "--group ELEMENT=GROUP"]),
    ],
)
def test_run(app, capsys, arguments, words):
    said = sentence(capsys, "run", *arguments)
    for word in words:
        assert word in said


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("x = (", ["cannot be loaded", "SyntaxError"]),
        ("import nothing_of_that_name", ["cannot be loaded", "No module named"]),
        ("x = 1", ["defines no application", "App('name')"]),
        (GOOD + "other = App('other')\n", ["defines 2 applications", "odd.py:app"]),
        (GOOD.replace('key="text"', 'key="txet"'), ["'txet'", "text, size"]),
        (GOOD.replace("seen: int = 0", "seen: int"), ["'seen' has no default"]),
        (GOOD.replace("size: int", "size: complex"), ["Word.size has type complex"]),
    ],
)
def test_an_application_at_fault(app, capsys, content, words):
    (app / "odd.py").write_text(content)
    said = sentence(capsys, "run", "odd.py", WORDS)
    for word in words:
        assert word in said


def test_a_file_that_hides_another_module(app, capsys):
    (app / "json.py").write_text(GOOD)
    assert "rename the file" in sentence(capsys, "run", "json.py", WORDS)


def test_a_csv_without_a_column(app, capsys):
    (app / "table").mkdir()
    (app / "table" / "a.csv").write_text("txt,size\nx,1\n")
    said = sentence(capsys, "run", "good.py", "--source", "Words=csv:table")
    assert "has no column 'text'" in said
    assert "'txt', 'size'" in said


def test_a_broken_parquet_file(app, capsys):
    (app / "broken").mkdir()
    (app / "broken" / "a.parquet").write_bytes(b"not parquet at all")
    assert "is not a parquet file" in sentence(capsys, "run", "good.py", "--source", "Words=parquet:broken")


def test_a_sink_that_holds_the_output_of_another_run(app, capsys):
    (app / "out").mkdir()
    (app / "out" / "000.jsonl").write_text("{}\n")
    said = sentence(capsys, "run", "good.py", WORDS, "--sink", "End=jsonl:out")
    assert "not of this run" in said
    assert (app / "out" / "000.jsonl").read_text() == "{}\n"


def test_a_sink_that_is_a_file(app, capsys):
    (app / "out").write_text("")
    assert "cannot be written" in sentence(capsys, "run", "good.py", WORDS, "--sink", "End=jsonl:out")


def test_a_full_disk(app, capsys):
    (app / "full.svg").symlink_to("/dev/full")
    said = sentence(capsys, "graph", "good.py", "-o", "full.svg")
    assert "full.svg cannot be written (No space left on device)" in said


def test_a_master_that_is_not_there(app, capsys):
    said = sentence(capsys, "run", "good.py", WORDS, "--master", "sparkle://127.0.0.1")
    assert "sparkle://127.0.0.1" in said
    assert "write local[*], local[2], spark://HOST:PORT" in said


def test_no_java(app, capsys, monkeypatch):
    from penstock.engine.session import java

    java.java_home.cache_clear()
    monkeypatch.setattr(java, "_candidates", lambda: iter(()))
    try:
        said = sentence(capsys, "run", "good.py", WORDS)
    finally:
        java.java_home.cache_clear()
    assert "Java 17 or 21" in said
    assert "apt-get install" in said


def test_graph_and_new(app, capsys):
    assert "choose a name that ends in .svg" in sentence(capsys, "graph", "good.py", "-o", "x.gif")
    assert "cannot be written" in sentence(capsys, "graph", "good.py", "-o", "no/such/place.svg")
    assert "give one of them" in sentence(capsys, "graph", "good.py", "--explain", "-o", "x.svg")
    assert "exists already" in sentence(capsys, "new", "input")
    assert "must be letters" in sentence(capsys, "new", "1st project")
    assert "There is no command fly; there are run, adapter" in sentence(capsys, "fly")
    assert "There is no command rnu; did you mean run?" in sentence(capsys, "rnu", "good.py")
    assert "did you mean --until-idle?" in sentence(capsys, "run", "good.py", "--until-idel")
    assert "did you mean --level?" in sentence(capsys, "run", "good.py", "--levle", "4")


def test_the_help_of_a_run_has_the_parameters_of_the_application(app, capsys):
    main(["run", "good.py", "--help"])
    assert "Parameters of good:\n  --level INT    [default: 3]" in capsys.readouterr().out


def test_what_executes_an_application_is_explained(app, capsys):
    main(["graph", "good.py", "--explain"])
    said = capsys.readouterr().out
    assert "(event dialect): one event after the other, for its code is the application's own." in said
    assert "In memory, for tests: yes" in said
    assert "In Spark's real-time mode: no. Element" in said


def test_drawing_to_the_screen_and_to_files(app, capsys):
    main(["graph", "good.py"])
    assert capsys.readouterr().out.startswith("flowchart LR")
    for name in ("x.svg", "x.mmd", "x.json"):
        main(["graph", "good.py", "-o", name])
        assert (app / name).stat().st_size > 100


@pytest.mark.parametrize("verb", ["run", "graph", "new"])
def test_help_shows_an_example(capsys, verb):
    main([verb, "--help"])
    assert "Example:" in capsys.readouterr().out


def test_another_end_of_the_input_is_refused_with_those_that_there_are(app, capsys):
    with pytest.raises(SystemExit) as end:
        main(["run", "good.py", "--until-idle=stop"])
    assert end.value.code == 2
    assert "--until-idle=pause" in capsys.readouterr().err


@pytest.mark.parametrize(
    "verb",
    [
        ["status", "--runs", "{}"],
        ["ui", "{}/x", "--save", "x.html"],
        ["letters", "{}/x"],
        ["observe", "{}/x"],
        ["run", "good.py", "--source", "Words=jsonl:input", "--runs", "{}"],
        ["run", "good.py", "--source", "Words=jsonl:{}/in"],
        ["run", "good.py", "--source", "Words=jsonl:input", "--sink", "End=jsonl:{}/out"],
    ],
)
def test_a_store_that_is_away_is_said_by_every_verb(app, capsys, monkeypatch, verb):
    for name, value in {**KEYS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{free_port()}"}.items():
        monkeypatch.setenv(name, value)
    said = sentence(capsys, *(part.format("s3a://bucket/runs") for part in verb))
    assert "cannot be reached, or refuses" in said
    assert "check the bucket and its room, AWS_ENDPOINT_URL, and your credentials" in said
