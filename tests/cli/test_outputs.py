"""Commands overwrite what they have written themselves, and nothing else; plans of gates are taken as they are."""

import json
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from cli.command import complaint, said

from penstock.cli import main
from penstock.cli.adapter import _gates
from penstock.cli.letters import _replay
from penstock.errors import ConfigurationError
from penstock.runs.gate import TransferGate
from penstock.runs.letters import Letter

RECORDING = str(Path(__file__).parents[2] / "examples" / "recordings" / "digests-1.jsonl")


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("command", "flag", "kind"), [("plan", "-o", "plan"), ("plan", "--html", "page"), ("tune", "--html", "page")]
)
def test_what_is_something_else_is_not_overwritten(capsys, directory, command, flag, kind):
    (directory / "manifest.json").write_text('{"run": "x"}')
    text = complaint(capsys, command, RECORDING, "--p95", "5s", flag, "manifest.json")
    assert f"manifest.json is there, and no {kind}: name another file" in text
    assert (directory / "manifest.json").read_text() == '{"run": "x"}'
    for _ in range(2):
        said(capsys, command, RECORDING, "--p95", "5s", flag, "own")
    assert (directory / "own").stat().st_size > 100


GRAPH = {"tasks": {"a": 1.0, "b": 1.0}, "transfers": [["a", "b", 0.1]]}
SERVER = ["--arrival-rate", "750", "--service-rate", "1000"]
COSTS = ["--transfer-rate", "900", "--holding-cost", "1", "--transfer-cost", "0.1"]
SWEEP = ["queue", "sweep", *SERVER, "--over", "batch-size=5,25"]
RUN = ["run", "small.py", "--source", "Words=jsonl:in.jsonl", "--until-idle"]
WRITERS = [
    ["plan", RECORDING, "--p95", "5s", "-o", "own.json"],
    ["plan", RECORDING, "--p95", "5s", "--html", "own.html"],
    ["tune", RECORDING, "--p95", "5s", "--html", "own.html"],
    ["graph", "small.py", "-o", "own.svg"],
    ["allocate", "graph.json", "-r", "2", "--draw", "own.svg"],
    ["queue", "optimize", *SERVER, *COSTS, "--plot", "own.svg"],
    [*SWEEP, "-o", "own.jsonl"],
    [*SWEEP, "--plot", "own.svg"],
    ["letters", "run", "--replay", "own.jsonl"],
    ["ui", "run", "--save", "own.html"],
    [*RUN, "--report", "own.json"],
]
"""Each verb that writes a file, with its option and the file last."""
named = [" ".join(part for part in writer if part != RECORDING and not part[0].isdigit())[:40] for writer in WRITERS]


@pytest.fixture
def inputs(directory):
    (directory / "small.py").write_text(
        "from penstock import App, Event\n\n\nclass Word(Event):\n    text: str\n\n\n"
        "app = App('small')\nwords = app.source('Words', Word)\napp.sink('Out', words)\n"
    )
    (directory / "in.jsonl").write_text('{"text": "a"}\n')
    (directory / "graph.json").write_text(json.dumps(GRAPH))


@pytest.mark.parametrize("writer", WRITERS, ids=named)
def test_what_is_no_file_is_not_written(capsys, directory, inputs, writer):
    *command, place = writer
    (directory / place).mkdir()
    assert "is a directory" in complaint(capsys, *command, place)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(f"other{Path(place).suffix}")
        complaint(capsys, *command, f"other{Path(place).suffix}")
        assert stat.S_ISSOCK(Path(f"other{Path(place).suffix}").stat().st_mode)


@pytest.mark.parametrize("writer", [one for one in WRITERS if one[0] not in ("letters", "ui", "run")], ids=lambda one: one[0])
def test_a_link_stays_one(capsys, directory, inputs, writer):
    *command, place = writer
    (directory / "there").mkdir()
    (directory / place).symlink_to(directory / "there" / place)
    for _ in range(2):
        said(capsys, *command, place)
    assert (directory / place).is_symlink()
    assert (directory / "there" / place).stat().st_size > 100


@pytest.mark.parametrize("form", ["csv", "parquet", "text"])
def test_letters_are_not_written_where_they_would_be_read_as_something_else(directory, form):
    letters, sources = [Letter("E", "Words", "bad", event={"text": "a"})], {"Words": f"{form}:{directory / 'in'}"}
    (directory / "in").mkdir()
    with pytest.raises(ConfigurationError, match=f"written as JSON lines, and .* is read as {form}"):
        _replay(letters, directory / "in" / "again.jsonl", sources)
    _replay(letters, directory / "again.jsonl", sources)
    assert (directory / "again.jsonl").read_text() == '{"text":"a"}\n'


LOUD = """\
from penstock import App, Event

print("loud")


class Word(Event):
    text: str


app = App("loud")
app.sink("Out", app.source("Words", Word))
"""


@pytest.mark.parametrize(("command", "begins"), [(["graph"], "flowchart"), (["schema"], "{")], ids=["graph", "schema"])
def test_what_a_file_prints_is_not_the_answer(capsys, directory, command, begins):
    (directory / "loud.py").write_text(LOUD)
    main([*command, "loud.py"])
    printed = capsys.readouterr()
    assert printed.out.startswith(begins)
    assert printed.err == "loud\n"


def penstock(*arguments, shell="", **environment):
    command = f"{sys.executable} -m penstock {' '.join(arguments)} {shell}"
    return subprocess.run(command, shell=True, capture_output=True, text=True, env={**os.environ, **environment})


def test_a_terminal_without_a_letter_gets_its_number():
    simulate = ["queue", "simulate", *SERVER, "--batch-size", "25", "--timer-rate", "600", "--jobs", "20000"]
    done = penstock(*simulate, PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert r"\xb1" in done.stdout


def test_without_a_standard_output_nothing_begins():
    done = penstock(*SWEEP, shell=">&-")
    assert done.returncode == 2
    assert (
        done.stderr == "penstock: standard output is closed, so no answer could be read: redirect it instead, as >/dev/null.\n"
    )


def test_a_full_disk_behind_the_output_is_said():
    done = penstock(*SWEEP, shell=">/dev/full")
    assert (done.returncode, "standard output, or a file: No space left" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["queue", "sweep", *SERVER, "--over", "batch-size=1:10:100000000000"], "with a count of at most 1,000,000"),
        ([*SWEEP, "--over", "timer-rate=1:10:1000000"], "more than 1,000,000 settings together"),
        (
            ["queue", "simulate", *SERVER, "--batch-size", "25", "--timer-rate", "600", "--jobs", "1" + 14 * "0"],
            "to 1,000,000,000",
        ),
    ],
    ids=["values", "settings", "jobs"],
)
def test_what_no_memory_holds_is_refused(capsys, command, says):
    assert says in complaint(capsys, *command)


def test_too_little_memory_is_said_in_a_sentence(capsys, monkeypatch):
    def hungry(*_, **__):
        raise MemoryError("Unable to allocate 745. GiB")

    monkeypatch.setattr("penstock.queueing.sweep.settings", hungry)
    assert "too little memory for this (Unable to allocate 745. GiB)" in complaint(capsys, *SWEEP)


@pytest.mark.parametrize(
    "command",
    [
        [*SWEEP, "--json"],
        ["allocate", "graph.json", "-r", "2", "--json"],
        ["allocate", "graph.json", "-r", "2", "--compare", "--json"],
    ],
    ids=["sweep", "allocate", "compare"],
)
def test_figures_in_json_say_of_what_kind_they_are(capsys, inputs, command):
    answer = json.loads(said(capsys, *command))
    assert all(figures["kind"] for figures in (answer if isinstance(answer, list) else [answer]))


@pytest.mark.parametrize(
    "gate",
    [
        {"batch_size": 2.7},
        {"batch_size": True},
        {"batch_size": "7"},
        {"batch_size": 1000, "flush_timer": 5},
        {"batch_size": 0},
        [],
    ],
    ids=json.dumps,
)
def test_a_plan_of_gates_is_not_bent(directory, gate):
    (directory / "gates.json").write_text(json.dumps({"gates": {"Words": gate}}))
    with pytest.raises(ConfigurationError, match="The plan gates.json cannot be read"):
        _gates(Path("gates.json"), ())


def test_a_plan_of_gates_and_a_gate_beside_it(directory):
    plan = {"gates": {"Words": {"batch_size": 10, "flush_timer_s": 0.5}, "More": {"batch_size": 3}}}
    (directory / "gates.json").write_text(json.dumps(plan))
    assert _gates(Path("gates.json"), ("More=5,1s",)) == {"Words": TransferGate(10, 0.5), "More": TransferGate(5, 1.0)}


IGNORED = [
    (["observe", RECORDING, "--seconds", "5 s"], "--seconds belongs to --probe"),
    (["plan", RECORDING, "--p95", "2s", "--source", "Words=jsonl:in"], "--source belongs to --probe"),
    (["prove", "ignoring.py", "--html", "x.html"], "--html belongs to --query"),
    (["prove", "--query", "q.py:build", "--sample", "s", "--tries", "5"], "--tries is for applications"),
    (["run", "ignoring.py", "--port", "8470"], "--port belongs to --adapter"),
    (["run", "ignoring.py", "--checkpoint-every", "1 m"], "--checkpoint-every belongs to --real-time"),
]


@pytest.mark.parametrize(("command", "says"), IGNORED, ids=lambda part: part if isinstance(part, str) else part[0])
def test_an_option_that_would_be_ignored_is_refused(capsys, directory, command, says):
    (directory / "ignoring.py").write_text("from penstock import App\n\napp = App('a')\n")
    assert says in complaint(capsys, *command)
