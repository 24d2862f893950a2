"""Options of `penstock.run` of another type are refused, by name."""

from datetime import timedelta
from pathlib import Path

import pytest

from penstock.errors import ConfigurationError
from penstock.launch.words import divided
from penstock.storage.place import path_of


@pytest.mark.parametrize(
    ("words", "says"),
    [
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
def test_an_option_of_another_type_is_refused(words, says):
    with pytest.raises(ConfigurationError, match=says):
        divided(words)


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
