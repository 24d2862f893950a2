"""What a run's directory says of it: at a glance, and its dead letters."""

import json
import threading
import time
from contextlib import suppress

import httpx
import pytest
from click.testing import CliRunner
from conftest import APPS

from penstock.cli.main import cli, main
from penstock.errors import ConfigurationError, SinkError, SourceError
from penstock.runs.letters import letters_of
from penstock.runs.overview import overview


def said(*arguments):
    return CliRunner().invoke(cli, list(map(str, arguments)), catch_exceptions=False, standalone_mode=False).stdout


@pytest.fixture(scope="module")
def failed_run(tmp_path_factory, spark):
    """A run with 5 good events and 3 that cannot be decoded."""
    good = "".join(json.dumps({"text": "a", "size": size}) + "\n" for size in range(5))
    return counted(tmp_path_factory.mktemp("failed"), spark, "jsonl", good + '{"text": 1}\n{"text": 2}\n{oh\n')


def counted(place, spark, form, content):
    """The directory of a run of a file."""
    from penstock.app.loader import load_app
    from penstock.engine import RunOptions, run

    (place / "in").mkdir()
    (place / "in" / f"a.{form}").write_text(content)
    app, reference = load_app(f"{APPS}:counter")
    options = RunOptions(
        sources={"Words": f"{form}:{place / 'in'}"}, runs=place / "runs", until_idle=True, quiet=True, spark=spark.get()
    )
    return run(app, options, application=reference).directory


def test_a_run_at_a_glance(failed_run):
    found = overview(failed_run)
    assert (found.name, found.state, found.accepted, found.dead_lettered) == ("counter", "stopped", 8, 3)
    assert found.p95_s > 0
    assert json.loads(said("status", failed_run, "--json"))[0]["accepted"] == 8
    assert "counter" in said("status", "--runs", failed_run.parent)


def test_letters_are_told_by_what_was_wrong(failed_run):
    assert len(list(letters_of(failed_run))) == 3
    summary = said("letters", failed_run)
    assert "3 dead letters" in summary
    assert "2  decoding Words: ValidationError: Expected `str`, got `int`" in summary
    assert "{oh" in said("letters", failed_run, "--show", 3)
    assert len(said("letters", failed_run, "--json").splitlines()) == 3


def test_letters_are_written_to_be_read_again(failed_run, tmp_path):
    again = tmp_path / "again.jsonl"
    assert "3 events of Words" in said("letters", failed_run, "--of", "decoding Words", "--replay", again)
    assert again.read_text().splitlines() == ['{"text": 1}', '{"text": 2}', "{oh"]
    with pytest.raises(SinkError, match="exists"):
        said("letters", failed_run, "--replay", again)


def test_letters_of_a_table_are_lines_of_json_and_no_table(tmp_path, spark):
    run = counted(tmp_path, spark, "csv", "text,size\ngate,1\nlock,x\n")
    with pytest.raises(ConfigurationError, match=r"written as JSON lines, and .*in is read as csv: name a file elsewhere"):
        said("letters", run, "--replay", tmp_path / "in" / "again.csv")
    told = said("letters", run, "--replay", tmp_path / "again.jsonl")
    assert "0 events of Words" in told
    assert "put the file into the directory" not in told
    assert "1 are left out" in told


def test_what_is_no_run_is_said(failed_run, tmp_path):
    with pytest.raises(SourceError, match="is not the directory of a run"):
        said("letters", tmp_path)
    with pytest.raises(SourceError, match="There is no run in"):
        said("status", "--runs", tmp_path)
    with pytest.raises(ConfigurationError, match="there are decoding Words"):
        said("letters", failed_run, "--of", "Counter")


@pytest.mark.slow
def test_a_run_is_on_a_page_while_it_is_on(spark, tmp_path, capsys):
    spark.leave()
    source = "Words=generator:constant?rate=20&count=200"
    seen = []

    def look():
        while not seen:
            with suppress(httpx.HTTPError):
                found = httpx.get("http://127.0.0.1:8479/api/runs/counter").json()
                if found.get("counts", {}).get("processed"):
                    seen.append(found)
            time.sleep(0.2)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    main(
        [
            "run",
            f"{APPS}:counter",
            "--ui",
            "8479",
            "--until-idle",
            "--source",
            source,
            "--runs",
            str(tmp_path),
            "--master",
            "local[2]",
        ]
    )
    assert "shown at http://127.0.0.1:8479" in capsys.readouterr().err
    assert seen[0]["state"] == "running"
    with pytest.raises(httpx.HTTPError):
        httpx.get("http://127.0.0.1:8479/")
