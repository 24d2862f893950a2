"""The words of a run are the same for the command line and for Python."""

from dataclasses import fields
from datetime import timedelta
from pathlib import Path

import pytest

import penstock
from penstock.cli.run import run as command
from penstock.engine import RunOptions
from penstock.errors import ConfigurationError
from penstock.launch.words import Companions, divided
from penstock.storage.place import path_of

WORDS = {field.name for kind in (RunOptions, Companions) for field in fields(kind)}
OF_PYTHON = {"spark", "quiet"}
"""What only a Python caller can give: a session, and whether a line shows how the run goes."""
OF_THE_COMMAND = {"app", "pauses", "as_json"}
"""The application itself, what click calls `--until-idle=pause`, and how the report is printed."""


def test_every_option_of_the_command_is_a_word_of_python_and_the_other_way_round():
    assert {parameter.name for parameter in command.params} - OF_THE_COMMAND == WORDS - OF_PYTHON


def test_defaults_are_the_same():
    of_command = {parameter.name: parameter.default for parameter in command.params if parameter.name in WORDS}
    options, companions = divided({})
    for name in ("port", "spool", "log_level", "retain", "master"):
        value = getattr(companions if hasattr(companions, name) else options, name)
        assert of_command[name] == value, name


def test_durations_and_places_may_be_texts():
    options, companions = divided({"duration": "90 s", "trigger": timedelta(seconds=2), "spool": "events", "report": "r.json"})
    assert (options.duration, options.trigger, options.report) == (90.0, 2.0, Path("r.json"))
    assert companions.spool == Path("events")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"p95": "3s"}, "--p95 belongs to --adapt"),
        ({"dry_run": True}, "--dry-run belongs to --adapt"),
        ({"door": "http://127.0.0.1:1"}, "--door belongs to --adapt"),
        ({"adapt": True, "p95": "3s", "trigger": 1}, "--trigger fixes what --adapt is to choose"),
        ({"real_time": True, "adapter": True}, "--real-time reads and writes Kafka only"),
        ({"real_time": True, "adapt": True, "p95": "3s"}, "--real-time has none"),
        ({"real_time": True, "trigger": 1}, "--trigger is of micro-batches"),
        ({"partitions": 0}, "from 1 to 10000"),
        ({"adaptor": True}, "no option adaptor.*adapter"),
        ({"port": 0}, "--port 0: choose a port from 1"),
        ({"ui": 70_000}, "--ui 70000: choose a port from 0"),
        ({"trigger": "soon"}, "'soon' is not a duration"),
        ({"until_idle": "paus"}, "until_idle='paus': give True or False or 'pause'."),
        ({"fresh": "no"}, "fresh='no': give True or False."),
        ({"take_over": 1}, "take_over=1: give True or False."),
        ({"adapt": "no"}, "adapt='no': give True or False."),
        ({"partitions": 2.5}, "partitions=2.5: give whole number or None."),
        ({"partitions": "4"}, "partitions='4': give whole number or None."),
        ({"partitions": True}, "partitions=True"),
        ({"port": True}, "port=True: give whole number."),
        ({"duration": True}, "duration=True"),
        ({"duration": []}, r"duration=\[\]"),
        ({"groups": 3}, "groups=3: give mapping."),
        ({"conf": {"spark.x": 4}}, "conf={'spark.x': 4}: give mapping."),
        ({"sources": {"A": Path("/x")}}, "sources={'A': PosixPath"),
        ({"sources": "x"}, "sources='x': give mapping."),
        ({"plan": 5}, "plan=5: give path or None or text."),
        ({"spool": 5}, "spool=5: give path or text."),
        ({"checkpoint_every": "5 s"}, "--checkpoint-every is of --real-time; micro-batches have --trigger."),
    ],
)
def test_what_cannot_be_meant_is_refused(words, said):
    with pytest.raises(ConfigurationError, match=said):
        divided(words)


def test_a_run_that_is_to_adapt_needs_one_bound(tmp_path):
    from penstock.launch.steering import steered

    app = penstock.App("none")
    for bounds in ({}, {"p95": "3 s", "mean": "1 s"}):
        with pytest.raises(ConfigurationError, match="Give one target"):
            steered(app, RunOptions(runs=tmp_path), Companions(adapt=True, **bounds))


def test_a_page_and_a_collector_may_be_asked_for_by_true():
    _, companions = divided({"ui": True, "otlp": True})
    assert (companions.ui, companions.otlp) == (8471, "")


def test_an_application_of_a_package_gets_no_adapter():
    from penstock.app.loader import AppReference
    from penstock.launch.adapter import adapter

    with (
        pytest.raises(ConfigurationError, match="a module of a package"),
        adapter(None, AppReference("package.words", "app"), RunOptions(), Companions(adapter=True), print),
    ):
        pass


def test_what_is_no_application_is_refused():
    with pytest.raises(ConfigurationError, match="give an application"):
        penstock.run("app.py")


def test_what_can_be_meant_is_taken():
    options, beside = divided(
        {
            "until_idle": "pause",
            "duration": timedelta(seconds=5),
            "trigger": "1 s",
            "report": "report.json",
            "archives": ["env.tar.gz", Path("other.tar.gz")],
            "conf": {"spark.x": "4"},
            "sources": {"Words": "jsonl:words"},
            "ui": True,
            "otlp": True,
            "spool": Path("spool"),
            "real_time": False,
        }
    )
    assert (options.until_idle, options.duration, options.trigger) == ("pause", 5.0, 1.0)
    assert (options.report, beside.ui, beside.otlp) == (Path("report.json"), 8471, "")


def test_runs_may_lie_in_a_store():
    for place in ("s3a://bucket/runs", path_of("s3a://bucket/runs"), Path("runs")):
        assert divided({"runs": place})[0].runs == place
