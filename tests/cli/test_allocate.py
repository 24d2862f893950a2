"""`penstock allocate` as a user meets it."""

import json
import signal
import subprocess
import sys
import time

import pytest
from cli import command

from penstock.allocation import StreamGraph, random_graph, streaming_cost

GRAPH = {
    "tasks": {"read": 1, "parse": 4, "count": 2, "write": 1},
    "transfers": [["read", "parse", 0.5], ["read", "count", 0.5], ["parse", "write", 0.5], ["count", "write", 0.5]],
}


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "graph.json").write_text(json.dumps(GRAPH))
    return tmp_path


def said(capsys, *arguments):
    return command.said(capsys, "allocate", *arguments)


def complaint(capsys, *arguments):
    return command.complaint(capsys, "allocate", *arguments)


def test_a_table_a_path_and_a_proof(capsys):
    text = said(capsys, "graph.json", "--resources", "3", "--explain")
    assert "by count 8" in text
    assert "predicted" in text
    assert "read > parse > write" in text
    assert "Proved optimal." in text
    assert "parse on R" in text


def test_json_can_be_read_and_used_as_the_present(capsys, directory):
    answer = json.loads(said(capsys, "graph.json", "-r", "3", "--json"))
    assert answer["cost"] == 8
    assert answer["optimal"]
    assert streaming_cost(StreamGraph.from_json(GRAPH), answer["assignment"]) == 8
    (directory / "now.json").write_text(json.dumps(answer))
    text = said(capsys, "graph.json", "-r", "4", "--present", "now.json", "--move-price", "0.25")
    assert "Moved: 1 tasks" in text


def test_constraints_and_capacities_from_flags_and_file(capsys, directory):
    flags = ["--pin", "read=small", "--apart", "parse,count", "--together", "read,write"]
    answer = json.loads(said(capsys, "graph.json", "-r", "big=4,small=1", *flags, "--json"))
    in_file = {"resources": {"big": 4, "small": 1}, "pinned": {"read": "small"}, "apart": [["parse", "count"]]}
    (directory / "all.json").write_text(json.dumps({**GRAPH, **in_file, "together": [["read", "write"]]}))
    assert json.loads(said(capsys, "all.json", "--json")) == answer
    assert answer["assignment"]["read"] == answer["assignment"]["write"] == "small"
    assert answer["assignment"]["parse"] != answer["assignment"]["count"]


def test_bandwidths_from_the_file(capsys, directory):
    (directory / "slow.json").write_text(json.dumps({**GRAPH, "resources": {"x": 1, "y": 1}, "bandwidths": [["x", "y", 0.01]]}))
    answer = json.loads(said(capsys, "slow.json", "--json"))
    assert len(set(answer["assignment"].values())) == 1


def test_the_least_resources_for_a_cost(capsys):
    assert "2 resources are enough for a cost of 16" in said(capsys, "graph.json", "--for-cost", "16")
    assert "No number of resources" in complaint(capsys, "graph.json", "--for-cost", "1")


def test_compare_lists_every_method_best_first(capsys):
    rows = json.loads(said(capsys, "graph.json", "-r", "2", "--compare", "--json"))
    assert [row["cost"] for row in rows] == sorted(row["cost"] for row in rows)
    assert {"auto", "exact", "disc", "disc-printed", "greedy-path", "cola"} <= {row["method"] for row in rows}
    assert "measured" in said(capsys, "graph.json", "-r", "2", "--compare")


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_a_picture_is_drawn(capsys, directory, ending):
    said(capsys, "graph.json", "-r", "2", "--draw", f"plan.{ending}")
    assert (directory / f"plan.{ending}").stat().st_size > 1000
    if ending == "svg":
        assert "parse" in (directory / "plan.svg").read_text()


def test_names_are_taken_as_they_are(capsys, directory):
    odd = {"tasks": {"a[/b]": 1, "y[bold]": 1, "_z$\\foo$": 2}, "transfers": [["a[/b]", "y[bold]", 1]]}
    (directory / "odd.json").write_text(json.dumps(odd))
    text = said(capsys, "odd.json", "-r", "1", "--draw", "odd.png")
    assert "a[/b] > y[bold]" in text


@pytest.mark.parametrize(
    ("content", "arguments", "says"),
    [
        (None, ["-r", "2"], "missing.json cannot be read"),
        ("{", ["-r", "2"], "is not JSON"),
        ("[]", ["-r", "2"], "give an object"),
        ('{"tasks": {"a": NaN}}', ["-r", "2"], "weight of 'a' is nan"),
        ('{"tasks": {"a": -1}}', ["-r", "2"], "weight of 'a' is -1"),
        ('{"tasks": {"a": 1, "b": 1}, "transfers": [["a","b"],["b","a"]]}', ["-r", "2"], "cycle"),
        ('{"tasks": {"a": 1}, "transfers": [["a","b",1]]}', ["-r", "2"], "Unknown task 'b'"),
        ('{"tasks": {"a": 1}, "together": [[["a"], "b"]]}', ["-r", "2"], "together has"),
        ('{"tasks": {"a": 1}, "pinned": {"a": ["R1"]}}', ["-r", "2"], "pinned to ['R1']"),
        ('{"tasks": {"a": 1}, "bandwidths": [[["x"], "y", 1]]}', ["-r", "2"], '"bandwidths" in JSON'),
        (json.dumps(GRAPH), ["-r", "2", "--move-price", "1"], "no present assignment"),
        (json.dumps(GRAPH), ["-r", "1000000"], "from 1 to 5,000"),
        (json.dumps(GRAPH), [], "Give --resources"),
        (json.dumps(GRAPH), ["-r", "0"], "resources is 0"),
        (json.dumps(GRAPH), ["-r", "many"], "--resources is 'many'"),
        (json.dumps(GRAPH), ["-r", "a=1,a=2"], "twice"),
        (json.dumps(GRAPH), ["-r", "2", "--pin", "read"], "--pin is 'read'"),
        (json.dumps(GRAPH), ["-r", "2", "--pin", "read=R9"], "'R9'"),
        (json.dumps(GRAPH), ["-r", "2", "--apart", "read,parse,count"], "contradict"),
        (json.dumps(GRAPH), ["-r", "2", "--draw", "plan.txt"], "not a picture"),
        (json.dumps(GRAPH), ["-r", "2", "--present", "missing.json"], "cannot be read"),
        (json.dumps(GRAPH), ["-r", "2", "--method", "magic"], "magic"),
        (json.dumps(GRAPH), ["-r", "2", "--for-cost", "9"], "give no --resources"),
        (json.dumps({**GRAPH, "resources": 3}), ["--for-cost", "9"], "leave 'resources' out of wrong.json"),
        (json.dumps({**GRAPH, "bandwidths": [["R1", "R2", 2]]}), ["--for-cost", "9"], "leave 'bandwidths' out of wrong.json"),
        ('{"tasks": {"a": 1, "a": 2, "b": 1}}', ["-r", "2"], "wrong.json names 'a' twice in one object: name each once."),
        ('{"tasks": {"a": 1}, "tasks": {"b": 1}}', ["-r", "2"], "wrong.json names 'tasks' twice in one object"),
        (json.dumps(GRAPH), ["-r", "2", "--compare", "--method", "exact"], "leave out --method, --draw and --explain"),
        (json.dumps(GRAPH), ["-r", "2", "--compare", "--draw", "a.svg"], "leave out --method, --draw and --explain"),
        (json.dumps(GRAPH), ["-r", "2", "--compare", "--explain"], "leave out --method, --draw and --explain"),
    ],
)
def test_wrong_input_gets_one_sentence(capsys, directory, content, arguments, says):
    if content is not None:
        (directory / "wrong.json").write_text(content)
    assert says in complaint(capsys, "wrong.json" if content is not None else "missing.json", *arguments)


@pytest.mark.slow
def test_ctrl_c_prints_the_best_so_far(directory):
    (directory / "large.json").write_text(json.dumps(random_graph("dag", 3000, seed=1).to_json()))
    command = [sys.executable, "-m", "penstock", "allocate", "large.json", "-r", "30", "--time-limit", "60"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(10)  # it has read, solved for the shares, and searches
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=60)
    assert process.returncode == 0, error
    assert "Interrupted: this is the best found so far." in out


DRAWN = """
from penstock import App, Event

class Word(Event):
    text: str

app = App("drawn")
words, longer = app.source("Words", Word), app.stream("Longer", Word)

@app.element(words, emits=longer)
def lengthen(word):
    yield longer(word.text * 2)

@app.element(longer)
def forget(word):
    return None
"""


def test_a_topology_that_was_drawn_is_a_graph_of_equal_weights(capsys, tmp_path):
    (tmp_path / "drawn.py").write_text(DRAWN)
    command.said(capsys, "graph", "drawn.py", "-o", "topology.json")
    text = said(capsys, "topology.json", "-r", "2")
    assert "lengthen" in text
    assert "by count 2" in text
    (tmp_path / "odd.json").write_text('{"elements": 3, "streams": []}')
    assert "no topology as `penstock graph" in complaint(capsys, "odd.json", "-r", "2")


def test_a_comparison_with_moves_is_by_cost_and_moves(directory, capsys):
    transfers = [["a", "b", 1], ["a", "c", 1], ["b", "d", 1], ["c", "d", 1]]
    (directory / "g.json").write_text(json.dumps({"tasks": {"a": 1, "b": 2, "c": 2, "d": 1}, "transfers": transfers}))
    (directory / "there.json").write_text(json.dumps(dict.fromkeys("abcd", "gone")))
    words = ("allocate", "g.json", "-r", "2", "--present", "there.json", "--move-price", "50", "--compare")
    rows = json.loads(command.said(capsys, *words, "--json"))
    assert all(row["objective"] >= row["bound"] > row["cost"] for row in rows)
    assert "cost and moves" in command.said(capsys, *words)
