"""Nothing that came from outside is obeyed by a terminal, whichever command shows it."""

import json
import shutil
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.main import main
from penstock.connectors.files.sink import ConsoleSink
from penstock.engine.running.element_log import ElementLog
from penstock.errors import PenstockError
from penstock.runtime.log import ELEMENT_LOG, Line, Lines
from penstock.runtime.tally import Tally
from penstock.visible import OBEYED, line, visible

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eall is well\x7f"
RECORDED = Path(__file__).parent / "ui/recorded/keyed"


@pytest.fixture
def run(tmp_path):
    """A run whose name, application, element, letters and results are not what they should be."""
    place = tmp_path / "runs" / f"evil{EVIL.replace('/', '')}"
    shutil.copytree(RECORDED, place)
    letters = place / "dead-letters"
    letters.mkdir()
    texts = {"element": f"Counter{EVIL}", "stream": f"Readings{EVIL}", "raw": f"{EVIL}\nall is well", "line": f"app.py{EVIL}:3"}
    (letters / "main.jsonl").write_text(json.dumps({**texts, "error": f"ValueError: {EVIL}\nall is well"}) + "\n")
    manifest = json.loads((place / "manifest.json").read_text())
    (place / "manifest.json").write_text(json.dumps({**manifest, "application": f"keyed{EVIL}"}))
    return place


@pytest.mark.parametrize(
    "arguments",
    [
        ["letters"],
        ["letters", "--show", "3"],
        ["letters", "--json"],
        ["letters", "--of", EVIL],
        ["status"],
        ["status", "--json"],
        ["predict"],
        ["observe"],
        ["tune", "--p95", "3s"],
    ],
)
def test_no_command_prints_what_a_terminal_obeys(run, arguments, capsys):
    with suppress(SystemExit):
        main([arguments[0], str(run), *arguments[1:]])
    printed = "".join(capsys.readouterr())
    assert printed.strip()
    assert not OBEYED.search(printed.replace("\r", ""))
    assert "\nall is well" not in printed


def test_names_in_a_graph_are_made_visible(tmp_path, capsys):
    names = [f"first{EVIL}", f"second{EVIL}"]
    graph = {"tasks": dict.fromkeys(names, 1.0), "transfers": [[*names, 1.0]]}
    (tmp_path / "graph.json").write_text(json.dumps(graph))
    with suppress(SystemExit):
        main(["allocate", str(tmp_path / "graph.json"), "--resources", "2", "--explain"])
    printed = "".join(capsys.readouterr())
    assert "first" in printed
    assert not OBEYED.search(printed)


def test_what_the_console_sink_prints_is_made_visible(tmp_path, capsys):
    (tmp_path / "part.jsonl").write_text(json.dumps({"text": EVIL}, ensure_ascii=False) + "\n")
    ConsoleSink._show(SimpleNamespace(files=SimpleNamespace(name="Out")), tmp_path / "part.jsonl")
    printed = capsys.readouterr().out
    assert not OBEYED.search(printed)
    assert json.loads(printed.removeprefix("Out: ")) == {"text": EVIL}


def test_an_error_is_made_visible_where_it_is_made():
    assert not OBEYED.search(str(PenstockError(f"The stream {EVIL} is not there.")))


def test_what_elements_print_is_made_visible_in_their_log(tmp_path):
    log = ElementLog(tmp_path)
    log.write("main", 3, [Tally(stage=0, partition=0, log=Lines([Line(1.5, "PRINT", "Counter", EVIL, EVIL)]))])
    log.close()
    text = (tmp_path / ELEMENT_LOG).read_text()
    assert "all is well" in text
    assert not OBEYED.search(text)


@given(st.text())
def test_nothing_that_is_obeyed_is_left_and_json_stays_what_it_is(text):
    assert not OBEYED.search(visible(text))
    assert "\n" not in line(text)
    encoded = json.dumps(text, ensure_ascii=False)
    assert json.loads(visible(encoded)) == text
