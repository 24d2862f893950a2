"""The prover of anybody's query: verdicts on queries that were written before it, and its parts."""

import json
import re
import subprocess
import sys
import threading
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.app.loader import load_app
from penstock.cli.main import cli
from penstock.engine.proving.lines import CodeLine, DriverKilled, Failed, LineTracer
from penstock.engine.proving.prover import QueryProver
from penstock.engine.proving.query import UserQuery
from penstock.engine.proving.session import plain_session
from penstock.engine.proving.verdict import Disturbance, QueryVerdict, TrialResult
from penstock.errors import ApplicationNotFoundError
from penstock.testing.proof import on_spark
from penstock.testing.proof.proof import Proof
from penstock.testing.proof.sample import sample_in

QUERIES = Path(__file__).parent / "queries"
SAMPLE = QUERIES / "sales.jsonl"
VERDICTS = {
    "appended": "at least once",
    "idempotent": "exactly once",
    "files": "exactly once",
    "files_as_they_are": "at least once",
    "swallowed": "lossy",
    "two_sinks": "at least once",
    "numbered": "lossy",
    "overwritten": "exactly once",
    "clocked": "differs",
    "deduplicated": "exactly once",
    "upserted": "exactly once",
    "added_up": "at least once",
    "posted": "at least once",
    "row_by_row": "lossy",
    "watermarked": "at least once",
    "kept_open": "exactly once",
    "stamped_by_state": "differs",
    "given_up": "lossy",
    "counted_apart": "at least once",
}


@pytest.fixture(scope="module")
def plain(spark, tmp_path_factory):
    spark.leave()
    with plain_session(None, {}, tmp_path_factory.mktemp("plain") / "spark.log") as session:
        yield session


class Service(BaseHTTPRequestHandler):
    """Keeps what is posted to it, by path."""

    kept = defaultdict(list)

    def do_POST(self):
        self.kept[self.path] += json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer(b"")

    def do_GET(self):
        self.answer(json.dumps(self.kept[self.path]).encode())

    def do_DELETE(self):
        self.kept.pop(self.path, None)
        self.answer(b"")

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def service(monkeypatch):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("SERVICE", f"http://127.0.0.1:{server.server_port}")
    yield
    server.shutdown()


@pytest.mark.slow
@pytest.mark.usefixtures("service")
@pytest.mark.parametrize("name", VERDICTS)
def test_a_query_gets_the_verdict_that_it_deserves(plain, tmp_path, name):
    query = UserQuery(f"{QUERIES / name}.py:build")
    verdict = QueryProver(plain, query, SAMPLE, tmp_path / "worlds", seconds=200).prove()
    assert verdict.guarantee == VERDICTS[name], verdict.to_text()
    assert verdict.notes == []
    assert verdict.guarantee == "exactly once" or any(trial.schedule.batch == 1 for trial in verdict.trials)
    page = verdict.to_html()
    assert page.count("<section") == len(verdict.trials) + 1


@pytest.mark.slow
def test_the_command_says_its_verdict_and_writes_the_page(tmp_path, spark):
    spark.leave()
    words = ["prove", "--query", f"{QUERIES / 'appended'}.py:build", "--sample", str(SAMPLE), "--json"]
    ended = CliRunner().invoke(cli, [*words, "--html", str(tmp_path / "page.html")])
    assert ended.exit_code == 1
    found = json.loads(ended.stdout)
    assert found["verdict"] == "at least once"
    assert any("before its commit is written" in trial["schedule"]["words"] for trial in found["trials"])
    assert "the driver ends" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--query", "nothing.py:build", "--sample", str(SAMPLE)], "There is no file nothing.py"),
        (["--query", f"{QUERIES / 'files'}.py:started", "--sample", str(SAMPLE)], "there is no function started in it"),
        (["--query", "build", "--sample", str(SAMPLE)], "name the function that starts the query"),
        (["--query", f"{QUERIES / 'files'}.py:build"], "Give the recorded input of the query"),
        (["--query", f"{QUERIES / 'files'}.py:build", "--sample", "none.jsonl"], "none.jsonl is no file"),
        ([], "Name what is to be proved"),
        (["app.py", "--query", "jobs.py:build"], "Name what is to be proved"),
    ],
)
def test_what_cannot_be_proved_is_said(words, says):
    ended = CliRunner().invoke(cli, ["prove", *words])
    assert says in str(ended.exception)


def several(told):
    told.append("one")
    for number in range(3):
        told.append(number)
    told.append("last")


@pytest.mark.slow
def test_a_package_that_is_not_there_is_said(spark):
    spark.leave()
    words = ["prove", "--query", f"{QUERIES / 'appended'}.py:build", "--sample", str(SAMPLE), "--packages", "org.none:none:1"]
    done = subprocess.run([sys.executable, "-m", "penstock", *words], capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert re.search(
        r"Spark 4\S+ does not start: unresolved dependency: org.none#none;1: not found. Check --packages", done.stderr
    )


def test_lines_are_noted_once_and_raised_at():
    lines, told = LineTracer(lambda file: file == __file__), []
    lines.call(several, told)
    first = several.__code__.co_firstlineno
    once = [first + 1, first + 2, first + 3, first + 4]
    assert [line.number for line in lines.executed if line.time == 1] == once
    assert {line.number for line in lines.executed if line.time == 2} == {first + 2, first + 3}
    told.clear()
    lines.raise_at(CodeLine(__file__, first + 4), DriverKilled)
    with pytest.raises(DriverKilled, match=f"line {first + 4}"):
        lines.call(several, told)
    assert told == ["one", 0, 1, 2]
    lines.raise_at(CodeLine(__file__, first + 3, 2), DriverKilled)
    with pytest.raises(DriverKilled, match="the second time"):
        lines.call(several, told := [])
    assert told == ["one", 0]
    lines.raise_at(CodeLine(__file__, first + 1), Failed)
    with pytest.raises(Failed):
        lines.call(several, told)
    assert sys.gettrace() is None or told == ["one", 0]


def try_three_times(told):
    for _ in range(3):
        try:
            told.append("written")
            return
        except Failed:
            continue


def try_and_wait(told):
    for number in range(5):
        try:
            told.append("written")
            break
        except Failed as error:
            print(number, error)


@pytest.mark.parametrize(("function", "times"), [(try_three_times, 3), (try_and_wait, 5)])
def test_a_line_raises_each_time(function, times):
    lines, told = LineTracer(lambda file: file == __file__), []
    lines.call(function, told)
    line = next(line for line in lines.executed if line.number == function.__code__.co_firstlineno + 3)
    lines.raise_at(line, Failed)
    lines.call(function, told)
    assert (told, lines.raised) == (["written"] * 2, 1)
    lines.raise_at(line, Failed, each_time=True)
    lines.call(function, told)
    assert (told, lines.raised) == (["written"] * 2, times)
    assert (sys.gettrace(), sys.getprofile()) == (None, None)


@pytest.mark.parametrize(
    ("kind", "rows", "guarantee"),
    [
        ("repeat", {}, "exactly once"),
        ("repeat", {"other": ["x"]}, "differs"),
        ("cut", {"doubled": ["x"]}, "differs"),
        ("replay", {"doubled": ["x"]}, "at least once"),
        ("replay", {"missing": ["x"]}, "lossy"),
        ("replay", {"missing": ['{"shop": 1, "n": 5}'], "other": ['{"shop": 1, "n": 6}']}, "at least once"),
        ("replay", {"missing": ['{"shop": 1, "n": 5}'], "other": ['{"shop": 1, "n": 4}']}, "lossy"),
        ("replay", {"missing": ['{"shop": 1, "n": 5}'], "other": ['{"shop": 1, "n": -7}']}, "lossy"),
        ("replay", {"missing": ['{"owes": -5.0}'], "other": ['{"owes": -10.0}']}, "at least once"),
        ("replay", {"missing": ['{"of": ["a"], "k": 1}'], "other": ['{"of": ["a", "a"], "k": 1}']}, "at least once"),
        ("replay", {"missing": ['[10, "A"]', '[11, "A"]'], "other": ['[16, "A"]', '[17, "A"]']}, "lossy"),
        ("error", {"missing": ['["A", 8]', '["B", 8]'], "other": ['["A", 11]', '["B", 10]']}, "at least once"),
        ("error", {"missing": ['["A", 8]', '["B", 8]'], "other": ['["A", 11]', '["B", 5]']}, "lossy"),
        (  # keys are numbers, too; one sum came twice and another not at all
            "replay",
            {"missing": ["[1, 5]", "[2, 7]"], "other": ["[1, 4]", "[2, 8]"]},
            "lossy",
        ),
        ("replay", {"missing": ["[1, 5]", "[2, 7]"], "other": ["[1, 4]", "[2, 3]"]}, "lossy"),
        ("replay", {"missing": ["[1, 5]", "[2, 7]"], "other": ["[1, 4]"]}, "lossy"),
        ("replay", {"missing": ["[1, 5]", "[2, 7]"], "other": ["[1, 6]", "[1, 8]"]}, "lossy"),
        ("restart", {"missing": ["x"], "other": ["y"]}, "lossy"),
        ("error", {"missing": ["x"]}, "lossy"),
        ("replay", {"failed": "locked"}, "stuck"),
    ],
)
def test_what_a_trial_shows(kind, rows, guarantee):
    trial = TrialResult(Disturbance(kind, "so", 1, 1), **rows)
    assert trial.guarantee == guarantee
    verdict = QueryVerdict("jobs.py:build", 3, 3, [trial], ["there was no time"])
    assert verdict.guarantee == guarantee
    assert guarantee in verdict.to_text()
    assert verdict.to_html().count("<section") == 2
    assert json.loads(json.dumps(verdict.to_json()))["trials"][0]["guarantee"] == guarantee


def test_a_query_that_is_not_the_same_twice_says_nothing_of_kills():
    trials = [
        TrialResult(Disturbance("repeat", "again"), other=["x"]),
        TrialResult(Disturbance("replay", "killed", 1, 1), doubled=["y"]),
    ]
    assert QueryVerdict("q", 1, 3, trials, []).guarantee == "differs"


def test_a_module_that_cannot_be_loaded_is_said(tmp_path):
    (tmp_path / "broken.py").write_text("import nothing_of_that_name\n")
    with pytest.raises(ApplicationNotFoundError, match="cannot be loaded: ModuleNotFoundError"):
        UserQuery(f"{tmp_path}/broken.py:build")


def cleaned(told):
    try:
        told.append("begun")
        told.append("done")
    finally:
        told.append("closed")


@pytest.mark.parametrize("error", [DriverKilled, Failed])
def test_what_cleans_up_is_executed_and_nothing_else(error):
    lines, told = LineTracer(lambda file: file == __file__), []
    lines.raise_at(CodeLine(__file__, cleaned.__code__.co_firstlineno + 3), error)
    with pytest.raises(error):
        lines.call(cleaned, told)
    assert lines.raised
    assert told == ["begun", "closed"]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "elements"), [("faulty/f01_invoice_ids", ["bill"]), ("sound/s08_word_counts", [])])
def test_an_application_is_repeated_on_spark_with_a_kill(spark, monkeypatch, name, elements):
    spark.leave()
    monkeypatch.setattr(on_spark, "MOMENTS", dict(list(on_spark.MOMENTS.items())[:1]))
    file = QUERIES.parent.parent / "proof" / f"{name}.py"
    topology = load_app(file)[0].topology()
    sample = sample_in({topology.sources[0].name: file.with_suffix(".jsonl")}, topology)
    proof = Proof(topology.application, {}, {}, False, [], [])
    on_spark.repeat_on_spark(str(file), [], topology, sample, proof, lambda *told: None)
    assert proof.tried == {"on Spark": 2}
    assert [finding.element for finding in proof.findings] == elements
