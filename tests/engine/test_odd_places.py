"""Runs in directories of any name: what Spark would take for a pattern is refused where it matters, and the rest works."""

import json
import stat

import pytest

from penstock.app.loader import load_app
from penstock.connectors.files.source import MISREAD
from penstock.engine import RunOptions, run
from penstock.errors import ConfigurationError

PATTERNS = ["a[1]", "a{b,c}", "a?x=1", "a*", "a:b", "a\\tb"]
PLAIN = "a b%41#é日😀'\"${sys:user.home}"
ALL = "".join(PATTERNS) + PLAIN


@pytest.fixture
def words(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.jsonl").write_text('{"text": "a"}\n{"text": "b"}\n')
    return {"Words": f"jsonl:{tmp_path / 'in'}"}


@pytest.mark.slow
def test_a_run_of_one_group_lies_anywhere(run_app, words, tmp_path):
    runs = tmp_path / ALL / "runs"
    result = run_app("counter", sources=words, runs=runs)
    assert sorted(count.text for count in result.output("Out")) == ["a", "b"]
    assert run_app("counter", sources=words, runs=runs).report["counts"]["accepted"] == 2
    assert len(run_app("counter", sources=words, runs=runs, fresh=True).output("Out")) == 2


@pytest.mark.parametrize("name", [*PATTERNS, PLAIN])
def test_groups_that_are_joined_by_files_wait_for_nothing(run_app, words, tmp_path, name):
    options = {"sources": words, "runs": tmp_path / name / "runs", "groups": {"copy_word": "second"}}
    if MISREAD.search(name):
        with pytest.raises(ConfigurationError, match="which Spark takes for a pattern.*--runs or --name"):
            run_app("relayed", **options)
        assert not (tmp_path / name / "runs" / "relayed" / "manifest.json").exists()
        return
    result = run_app("relayed", **options)
    assert sorted(word.text for word in result.output("Out")) == ["a", "b"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a b#c", "a%41", "a[1]?"])
def test_a_run_is_moved_wherever_it_lies(run_app, words, tmp_path, name):
    options = {"sources": words, "runs": tmp_path / name / "runs"}
    run_app("counter", partitions=2, **options)
    (tmp_path / "in" / "2.jsonl").write_text('{"text": "a"}\n')
    result = run_app("counter", partitions=3, **options)
    assert {count.text: count.seen for count in result.output("Out")} == {"a": 2, "b": 1}


def test_what_a_run_writes_is_for_its_owner_alone(run_app, words, tmp_path):
    result = run_app("counter", sources=words, report=tmp_path / "copy.json")
    run = result.directory
    assert stat.S_IMODE(run.stat().st_mode) == 0o700
    ours = ["manifest.json", "report.json", "starts.jsonl", "progress.jsonl", "batches-main.jsonl", "spark.log"]
    assert {name: oct(stat.S_IMODE((run / name).stat().st_mode)) for name in ours} == dict.fromkeys(ours, "0o600")
    assert json.loads((tmp_path / "copy.json").read_text()) == json.loads((run / "report.json").read_text())


def test_a_directory_that_was_made_for_others_stays_theirs(run_app, words, tmp_path):
    (tmp_path / "runs" / "counter").mkdir(parents=True)
    (tmp_path / "runs" / "counter").chmod(0o755)
    result = run_app("counter", sources=words)
    assert stat.S_IMODE(result.directory.stat().st_mode) == 0o755


SECRETIVE = """
from penstock import App, Event
class Word(Event):
    text: str
app = App("secretive")
app.parameter("api_key", "none", help="of a service")
app.sink("Out", app.source("Words", Word))
"""


def test_a_runs_directory_holds_no_secret(words, tmp_path, spark):
    (tmp_path / "secretive.py").write_text(SECRETIVE)
    app, application = load_app(str(tmp_path / "secretive.py"), {"api_key": "s3same-of-this-test"})
    options = RunOptions(runs=tmp_path / "runs", sources=words, until_idle=True, quiet=True, spark=spark.get())
    files = [path for path in run(app, options, application=application).directory.rglob("*") if path.is_file()]
    assert len(files) > 5
    assert [path for path in files if b"s3same-of-this-test" in path.read_bytes()] == []
