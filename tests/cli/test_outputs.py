"""Commands overwrite what they have written themselves, and nothing else; plans of gates are taken as they are."""

import json
from pathlib import Path

import pytest
from cli.command import complaint, said

from penstock.cli.adapter import _gates
from penstock.errors import ConfigurationError
from penstock.runs.gate import TransferGate

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
