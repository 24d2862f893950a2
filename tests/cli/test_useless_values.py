"""Values of options that could do nothing, or something else than asked, are refused by the option's name."""

import json
from pathlib import Path

import pytest
from cli.command import complaint, said

from penstock.app.duration import above_zero, seconds_of
from penstock.errors import ConfigurationError
from penstock.launch.starting import exported
from penstock.web.access import Access
from penstock.web.exposure import HostNames
from penstock.web.guard import Guard

RECORDING = str(Path(__file__).parents[2] / "examples" / "recordings" / "digests-1.jsonl")
APP = """
from penstock import App, Event


class Word(Event):
    text: str


app = App("useless")
app.sink("Out", app.source("Words", Word))
"""


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "useless.py").write_text(APP)
    (tmp_path / "graph.json").write_text('{"tasks": {"a": 1, "b": 2}, "transfers": [["a", "b", 1]]}')
    return tmp_path


DURATIONS = [
    *(["adapter", "useless.py", option, "abc"] for option in ("--receive-within", "--answer-within", "--retain", "--remember")),
    *(["run", "useless.py", option, "abc"] for option in ("--duration", "--trigger", "--checkpoint-every")),
    ["run", "useless.py", "--adapt", "--p95", "abc"],
    ["tune", RECORDING, "--p95", "abc"],
    ["plan", RECORDING, "--p99", "abc"],
    ["predict", RECORDING, "--trigger", "abc"],
    ["predict", RECORDING, "--min-rows", "5", "--max-delay", "abc"],
    ["observe", "useless.py", "--probe", "--seconds", "abc"],
]


def shown(part):
    """A command without the directory of this tree."""
    return " ".join(part).replace(str(Path(RECORDING).parent), "") if isinstance(part, list) else ""


@pytest.mark.parametrize("command", DURATIONS, ids=shown)
def test_a_duration_that_is_none_names_its_option(capsys, command):
    option = command[-2]
    more = ["--real-time"] if option == "--checkpoint-every" else []
    assert f"{option}: 'abc' is not a duration" in complaint(capsys, *command, *more)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["adapter", "useless.py", "--answer-within", "0"], "--answer-within 0 leaves no time"),
        (["adapter", "useless.py", "--remember", "0 s"], "--remember 0 s leaves no time"),
        (["adapter", "useless.py", "--gate", "Words=5,abc"], "--gate Words=5,abc: 'abc' is not a duration"),
        (["adapter", "useless.py", "--spool", ""], "--spool '': name a directory"),
        (["adapter", "useless.py", "--spool", "s3a://b/x"], "--spool 's3a://b/x': name a directory"),
        (["run", "useless.py", "--adapter", "--spool", "hdfs://h/x"], "--spool 'hdfs://h/x': name a directory"),
        (["run", "useless.py", "--adapt", "--p95", "0"], "--p95 0 leaves no time"),
        (["observe", "useless.py", "--probe", "--seconds", "0"], "--seconds 0 leaves no time"),
        (
            ["adapter", "useless.py", "--allow-origin", "http://a.example/"],
            "--allow-origin http://a.example/: write it as browsers send it",
        ),
        (["adapter", "useless.py", "--allow-host", "a.example:8470"], "--allow-host a.example:8470: give a host's name"),
        (["adapter", "useless.py", "--allow-host", "http://x/"], "--allow-host http://x/: give a host's name"),
        (["ui", "useless.py"], "useless.py is no directory"),
        (["status", "--runs", ""], "--runs is empty; name a directory"),
        (["tune", RECORDING, "--p95", "0"], "--p95 0 leaves no time"),
        (["ui", "--save", "page.html", "--port", "1"], "--port belongs to a page that is served"),
        (["status", "one", "--runs", "."], "--runs says where all runs lie"),
        (["rescale", "runs/one", "--partitions", "2", "--runs", "."], "--runs belongs to the name of a run"),
        (["predict", RECORDING, "--max-delay", "5s"], "--max-delay is how long rows wait for --min-rows, and there is none"),
        (["allocate", "graph.json", "-r", "a=1,=2"], "--resources is 'a=1,=2'; give a number, or capacities"),
        (["allocate", "graph.json", "-r", "2", "--together", "a"], "--together is 'a', which is about one task"),
        (["allocate", "graph.json", "-r", "2", "--apart", "a,a"], "--apart is 'a,a', which is about one task"),
        (["allocate", "graph.json", "-r", "a=1,b=2", "--pin", "a="], "--pin is 'a='; give TASK=RESOURCE"),
        (["bench", "s4", "--cpu", "nan"], "nan is not finite"),
        (["bench", "s4", "--master", "spark://h:7077", "--cpu", "1"], "--cpu limits nodes of this command's own"),
        (["prove", "useless.py", "--seconds", "inf"], "inf is not finite"),
        (["tune", RECORDING, "--p95", "5s", "--recorded-cores", "nan"], "nan is not finite"),
        (["predict", ""], "Name a run, or a directory; the text is empty"),
        *((["new", name], "must be letters") for name in ("é", "_", "-", "a-", "..", "x" * 101)),
    ],
    ids=shown,
)
def test_a_useless_value_is_refused(capsys, command, says):
    assert says in complaint(capsys, *command)


def test_a_directory_of_several_runs_is_no_recording(capsys, directory):
    for name in ("one", "two"):
        (directory / "runs" / name).mkdir(parents=True)
        (directory / "runs" / name / "manifest.json").write_text("{}")
        (directory / "runs" / name / "progress.jsonl").write_text("{}")
    assert "runs holds 2 runs (one, two): name one of them, as runs/one" in complaint(capsys, "observe", "runs")


def test_a_link_that_leads_nowhere_is_in_the_way(capsys, directory):
    (directory / "here").symlink_to("nowhere")
    assert "here exists already" in complaint(capsys, "new", "here")
    assert "cd 'my dir/foo'" in said(capsys, "new", "my dir/foo")
    assert "Made b/" in said(capsys, "new", "a/../b")
    assert not (directory / "a").exists()


@pytest.mark.parametrize(
    ("tokens", "says"),
    [
        ("{}", "are none, so nobody could do anything"),
        ('{"produce": []}', "are none, so nobody could do anything"),
        ('{"produce": ["aaaaaaaa"], "produce": ["bbbbbbbb"]}', "a role is named twice"),
    ],
)
def test_tokens_that_let_nobody_in_are_refused(directory, tokens, says):
    (directory / "tokens.json").write_text(tokens)
    with pytest.raises(ConfigurationError, match=says):
        Access.read(directory / "tokens.json")


def test_origins_and_hosts_that_can_be_are_taken():
    origins = ("*", "null", "https://a.example", "http://a.example:81", "chrome-extension://abc", "http://[::1]:3000")
    Guard(Access(), ("0.0.0.0", "::", "[::1]", "events.example", "my_host"), origins)
    for never in ("https://*.a.example", "http://a.example:80", "https://a.example:443", "https://A.example", "https://a/b"):
        with pytest.raises(ConfigurationError, match="--allow-origin"):
            Guard(Access(), (), (never,))
    names = HostNames(("a.example",))
    assert all(map(names.has, ("a.example:8470", "A.example", "localhost:1", "[::1]:8470", "127.0.0.1", "")))
    assert not any(
        map(names.has, ("evil.example@localhost", "localhost@evil.example", "localhost/", "a.example:8470:1", "[::1", "::1/"))
    )


@pytest.mark.parametrize("endpoint", ["http://[", "foo"])
def test_where_spans_cannot_go_names_who_said_so(directory, endpoint, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    with pytest.raises(ConfigurationError, match="OTEL_EXPORTER_OTLP_ENDPOINT "), exported(directory, ""):
        pass
    with pytest.raises(ConfigurationError, match="--otlp "), exported(directory, endpoint):
        pass


def test_durations_by_name():
    assert seconds_of("--x", "2 s") == above_zero("--x", 2) == 2.0
    with pytest.raises(ConfigurationError, match="--x 0 leaves no time"):
        above_zero("--x", 0)


def test_a_recording_that_is_one_run_is_still_one(directory):
    from penstock.planner.lines import files_of

    run = directory / "runs" / "one"
    run.mkdir(parents=True)
    (run / "manifest.json").write_text("{}")
    (run / "progress.jsonl").write_text(json.dumps({}))
    assert files_of(run) == files_of(directory / "runs") == [run / "progress.jsonl"]
