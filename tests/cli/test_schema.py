"""`penstock schema`: what users give, and what they get."""

import json
import sys
from pathlib import Path

import pytest

from penstock.cli.main import main

APP = """
from penstock import App, Event

class Word(Event):
    text: str
    size: int | None = None

class Count(Event):
    text: str

app = App("words")
words = app.source("Words", Word)
counts = app.stream("Counts", Count)
app.sink("Out", counts)

@app.element(words, emits=counts)
def pass_on(word):
    yield counts(word.text)
"""


@pytest.fixture
def app(tmp_path, monkeypatch):
    (tmp_path / "app_of_schemas.py").write_text(APP)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    return "app_of_schemas.py"


def test_an_events_schema_and_the_event_of_that_schema(app, capsys):
    main(["schema", app, "Word"])
    text = capsys.readouterr().out
    assert json.loads(text)["name"] == "Word"
    Path("word.avsc").write_text(text)
    main(["schema", "word.avsc"])
    assert capsys.readouterr().out == (
        "from penstock import Event\n\n\nclass Word(Event):\n    text: str\n    size: int | None = None\n"
    )
    main(["schema", app, "Words", "--format", "protobuf"])  # a stream's name does, too
    assert "optional int64 size = 2;" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["{app}"], "name an event; there are Word, Count"),
        (["{app}", "Wrd"], "did you mean Word"),
        (["none.avsc"], "cannot be read"),
        (["none.txt"], "name an application"),
        (["none.avsc", "Word"], "no application|is none"),
        (["kafka:there:9092/words"], "registry=URL"),
        (["kafka:there:9092/words?registry=http://127.0.0.1:1"], "does not answer"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(app, arguments, words, capsys):
    with pytest.raises(SystemExit) as end:
        main(["schema", *(one.format(app=app) for one in arguments)])
    said = capsys.readouterr().err
    assert end.value.code == 2
    assert said.count("\n") == 1
    assert any(word in said for word in words.split("|")), said
