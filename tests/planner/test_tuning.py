"""Verdicts on queries of known conditions, and the options that are chosen for a target."""

import json

import pytest
from click.testing import CliRunner
from planner.queries import idle, progress, written

from penstock.cli.main import cli
from penstock.errors import ConfigurationError
from penstock.planner import Setting, Target, calibrate, observe, tune, verdicts

CONDITIONS = {
    "healthy": {"trigger": 1.0},
    "trigger too long": {"trigger": 10.0, "seconds": 400},
    "trigger too short": {"trigger": 0.2},
    "saturated": {"trigger": 0.0, "rate": 12_000, "per_row": 1e-4, "seconds": 300},
    "source throttled": {"trigger": 2.0, "rate": 1000, "cap": 1200},
    "skewed": {"trigger": 1.0, "partitions": 4, "shares": [0.85, 0.05, 0.05, 0.05]},
    "slow sink": {"trigger": 5.0, "fixed": 3.0, "rate": 300, "seconds": 300},
    "state growing": {"trigger": 1.0, "growth": 400.0, "seconds": 300},
    "garbage collection": {"trigger": 0.0, "pauses": 0.06, "seconds": 300},
    "rate rising": {"trigger": 1.0, "rate": lambda at: 500 + 10 * at, "seconds": 200},
}


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("kind", CONDITIONS)
def test_the_condition_is_recognised(tmp_path, kind, seed):
    told, _ = progress(seed=seed, **CONDITIONS[kind])
    found = verdicts(observe(written(tmp_path / "a", told)))
    assert found[0].kind == kind, list(map(str, found))


def test_two_steady_capped_queries_are_told_apart(tmp_path):
    """One has a maximum that binds and no time left, the other a maximum and plenty."""
    busy, _ = progress(trigger=0.0, rate=3000, cap=1000, fixed=0.3, seconds=200)
    assert verdicts(observe(written(tmp_path / "a", busy)))[0].kind == "saturated"
    fine, _ = progress(trigger=1.0, rate=500, cap=1000)
    assert verdicts(observe(written(tmp_path / "b", fine)))[0].kind == "healthy"


def test_an_idle_query_is_idle(tmp_path):
    told, _ = progress(seconds=12)
    told += [idle(20.0 + 10 * number, len(told)) for number in range(90)]
    answer = tune(observe(written(tmp_path / "a", told)), Target("p95", 1.0))
    assert answer.verdicts[0].kind == "idle"
    assert answer.feasible is None


def test_a_recording_cut_off_in_a_line_is_judged_by_the_rest(tmp_path):
    told, _ = progress()
    path = written(tmp_path / "a", told)
    path.write_text(path.read_text()[:-300])
    assert verdicts(observe(path))[0].kind == "healthy"


def test_a_recording_without_a_row_is_idle(tmp_path):
    told, _ = progress(seconds=20)
    for one in told:
        one["numInputRows"] = 0
        for source in one["sources"]:
            source |= {"numInputRows": 0, "endOffset": source["startOffset"]}
    assert observe(written(tmp_path / "a", told)).queries[0].batches == 0


def test_a_short_recording_decides_nothing(tmp_path):
    told, _ = progress(seconds=5)
    answer = tune(observe(written(tmp_path / "a", told)), Target("p95", 1.0))
    assert answer.feasible is None
    assert answer.chosen is None
    assert not answer.verdicts[0].confident
    assert json.dumps(answer.to_json())


@pytest.fixture(scope="module")
def observation(tmp_path_factory):
    path = tmp_path_factory.mktemp("recorded")
    first, _ = progress(trigger=5, rate=1500, seed=2, seconds=300)
    second, _ = progress(trigger=1, rate=1000, seed=1)
    return observe(written(path / "a", first), written(path / "b", second))


def test_the_longest_trigger_that_meets_the_target_is_chosen(observation):
    answer = tune(observation, Target("p95", 5.0))
    assert answer.feasible
    assert answer.sure
    assert answer.chosen.p95 <= 5.0
    longer = calibrate(observation).predict(Setting(trigger=1.3 * answer.chosen.setting.interval))
    assert longer.band("p95")[1] > 5.0
    assert answer.chosen.files_per_day < 0.5 * answer.today.files_per_day
    assert answer.options == {"trigger(processingTime=...)": f"{answer.chosen.setting.interval:g} seconds"}
    assert answer.max_rate > answer.today.rate


def test_a_target_that_no_trigger_meets_says_what_would(observation):
    answer = tune(observation, Target("p95", 0.3))
    assert answer.feasible is False
    assert answer.chosen is None
    assert "a micro-batch costs" in answer.reason
    crowded = tune(observation, Target("p95", 2.0), Setting(rate=14_000))
    assert crowded.feasible is None  # by the cost per row that one recording tells, it may keep up
    assert "14,000 rows arrive per second and the query keeps up with" in crowded.reason
    assert "which is more" in crowded.reason


def test_what_if_the_rate_doubles(observation):
    now, then = (tune(observation, Target("p95", 1.6), Setting(rate=rate)) for rate in ("1x", "4x"))
    assert then.today.p95 > now.today.p95
    assert then.today.rate == pytest.approx(4 * now.today.rate)


def test_a_target_must_be_one(observation):
    with pytest.raises(ConfigurationError, match="give one of mean, p50, p95, p99"):
        tune(observation, Target("p42", 1.0))


# --- the command line ---------------------------------------------------------------------------------------------


@pytest.fixture
def recorded(tmp_path):
    return recording(tmp_path, progress(trigger=2.0)[0])


def said(*arguments):
    return CliRunner().invoke(cli, arguments, catch_exceptions=False, standalone_mode=False)


def test_predict_prints_what_others_rely_on(recorded):
    found = json.loads(said("predict", recorded, "--trigger", "4s", "--rate", "2x", "--json").stdout)
    assert {"mean", "p50", "p95", "p99", "bands", "utilisation", "method"} <= set(found)
    assert found["bands"]["p95"][0] < found["p95"] < found["bands"]["p95"][1]
    assert "keeps up with" in said("predict", recorded).stdout


def test_tune_prints_what_others_rely_on(recorded, tmp_path):
    found = json.loads(said("tune", recorded, "--p95", "5s", "--json").stdout)
    assert {"today", "chosen", "feasible", "limits", "options"} <= set(found)
    assert found["today"]["setting"]["trigger"] == 2.0
    assert found["chosen"]["p95"] <= 5.0
    assert "can be met" in said("tune", recorded, "--p95", "5s", "--html", str(tmp_path / "page.html")).stdout
    page = (tmp_path / "page.html").read_text()
    assert "<svg" in page
    assert "http://" not in page.replace("http://www.w3.org", "").replace("http://purl.org", "").replace(
        "http://creativecommons.org", ""
    )


def test_tune_says_where_micro_batches_pay_for_their_logs(tmp_path):
    told, _ = progress(trigger=2.0)
    assert (
        "A micro-batch spends 100 ms, 20% of one of query (measured) on the two logs"
        in said("tune", recording(tmp_path, told), "--p95", "5s").stdout
    )
    for one in told:
        one["durationMs"] |= {"walCommit": 7, "commitOffsets": 8}
    found = json.loads(said("tune", recording(tmp_path, told), "--p95", "5s", "--json").stdout)
    assert found["besides"] == ""


def recording(directory, told):
    return str(written(directory / "progress.jsonl", told))


def test_observe_says_what_was_seen(recorded):
    found = json.loads(said("observe", recorded, "--json").stdout)
    assert found["queries"][0]["setting"]["trigger"] == 2.0
    assert found["arrivals"]["rate"] == pytest.approx(1000, rel=0.05)
    assert "inferred from the starts" in said("observe", recorded).stdout


def test_answers_show_themselves_in_a_notebook(observation):
    answer = tune(observation, Target("p95", 5.0))
    assert "srcdoc" in answer._repr_html_()
    assert "Predicted; bands of 90%." in answer.chosen._repr_html_()
