"""What a recording is, whatever gate, beginning, clock and starts it has."""

import json
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import pytest
from planner.queries import progress, written

from penstock.connectors.admission import DEFAULT_MAX_ROWS
from penstock.connectors.uri import Uri
from penstock.errors import ConfigurationError
from penstock.planner import Setting, Target, calibrate, make_plan, observe, tune, verdicts
from penstock.planner.interference import Load, shared
from penstock.planner.observation import _gate_of
from penstock.planner.tuning import choose


def seen_in(tmp_path, told):
    return observe(written(tmp_path / "progress.jsonl", told))


def test_a_recorded_gate_is_dropped_where_triggers_are_tried(tmp_path):
    calibration = calibrate(seen_in(tmp_path, progress(trigger=2.0, rate=500.0)[0]))
    [query] = calibration.queries
    gated = replace(query.observed.setting, min_rows=30_000.0, max_delay=60.0)
    other = replace(calibration, queries=(replace(query, observed=replace(query.observed, setting=gated)),))
    assert other.today.min_rows == 30_000
    plain, found = choose(calibration, Target("p95", 5.0)), choose(other, Target("p95", 5.0))
    assert found.chosen is not None
    assert found.chosen.setting.min_rows == 1
    assert found.chosen.setting.interval == plain.chosen.setting.interval
    assert found.chosen.p95 == pytest.approx(plain.chosen.p95, rel=0.1)


def shifted(told, by):
    """The progress of a topic that had rows before, of which the query begins at the end."""
    for record in told:
        for source in record["sources"]:
            for name in ("startOffset", "endOffset", "latestOffset"):
                if source[name] is not None:
                    source[name] = {t: {p: count + by for p, count in parts.items()} for t, parts in source[name].items()}
    first = json.loads(json.dumps(told[0]))
    [source] = first["sources"]
    first |= {"batchId": told[0]["batchId"] - 1, "numInputRows": 0}
    source |= {"startOffset": None, "endOffset": told[0]["sources"][0]["startOffset"], "numInputRows": 0}
    return [first, *told]


def test_what_was_in_a_topic_before_is_no_micro_batch(tmp_path):
    told = progress(first=1)[0]
    plain = seen_in(tmp_path, json.loads(json.dumps(told))).queries[0]
    later = seen_in(tmp_path, shifted(told, 5_000_000)).queries[0]
    assert later.batches == plain.batches
    assert [series.rows.tolist() for series in later.series] == [series.rows.tolist() for series in plain.series]


@pytest.mark.parametrize("by", [5.0, 3600.0])
def test_a_clock_that_was_set_back_begins_another_series(tmp_path, by):
    told = progress(seconds=240.0)[0]
    plain = seen_in(tmp_path, json.loads(json.dumps(told)))
    half = len(told) // 2
    for record in told[half:]:
        moment = datetime.fromisoformat(record["timestamp"]) - timedelta(seconds=by)
        record["timestamp"] = moment.isoformat().replace("+00:00", "Z")
    back = seen_in(tmp_path, told)
    assert len(back.queries[0].series) == 2
    assert all(np.diff(series.started).min() > 0 for series in back.queries[0].series)
    assert 0 < back.queries[0].series[-1].busy < 1
    assert list(verdicts(back))
    assert calibrate(back).predict(Setting()).p95 == pytest.approx(calibrate(plain).predict(Setting()).p95, rel=0.15)


@pytest.mark.parametrize(
    ("uris", "gate"),
    [
        (["log:a?max_rows=600"], {"max_rows": 600}),
        (["log:a?max_rows=600", "log:b?max_rows=100"], {"max_rows": 700}),
        (["log:a?max_rows=600", "log:b"], {"max_rows": 600 + DEFAULT_MAX_ROWS}),
        (["log:a?max_rows=600", "jsonl:b"], {}),
        (["log:a?min_rows=10&max_delay=4s", "log:b?min_rows=5&max_delay=3s"], {"min_rows": 15, "max_delay": "3s"}),
        (["log:a?min_rows=10", "log:b"], {}),
        (["jsonl:a?max_files=1"], {}),
        ([], {}),
    ],
)
def test_each_source_has_its_own_share_of_a_gate(uris, gate):
    found = _gate_of(list(map(Uri.parse, uris)))
    if "max_rows" not in gate:
        found.pop("max_rows", None)
    assert found == gate


def load(name, **figures):
    return Load(
        name, **{"rate": 100.0, "trigger": 0.0, "fixed": 0.3, "per_row": 1e-3, "tasks": 1.0, "ratios": (1.0,)} | figures
    )


def test_queries_back_to_back_share_a_driver():
    alone, beside = shared([load("a")], 1.0), shared([load("a"), load("b")], 1.0)
    assert np.isfinite(alone["a"]["mean"])
    assert alone["a"]["mean"] < beside["a"]["mean"] < 4 * alone["a"]["mean"]
    assert np.isinf(shared([load("a", rate=600.0), load("b", rate=600.0)], 1.0)["a"]["mean"])


def test_a_trigger_that_is_shorter_than_the_fixed_part_does_not_count_it_each_time():
    assert np.isfinite(shared([load("a", trigger=0.1)], 1.0)["a"]["mean"])
    assert load("a", trigger=1.0).forced == pytest.approx(0.3 + 0.1)
    assert load("a", trigger=0.1).forced == pytest.approx(0.1)


def test_a_recording_that_shows_no_rate_gives_no_plan(tmp_path):
    told = progress(trigger=0.0, rate=8_000.0, cap=5_000, fixed=0.3, per_row=2e-4)[0]
    for number, record in enumerate(told):
        [source] = record["sources"]
        source |= {"description": "FileStreamSource[file:/in]", "latestOffset": None}
        source |= {"startOffset": {"logOffset": number - 1}, "endOffset": {"logOffset": number}}
    seen = seen_in(tmp_path, told)
    for answer in (lambda: tune(seen, Target("p95", 10.0)).reason, lambda: refused(make_plan, seen, Target("p95", 10.0))):
        assert "The recording shows rows as they are taken, not as they arrive; it cannot judge a setting" in answer()


def refused(asked, *arguments):
    with pytest.raises(ConfigurationError) as error:
        asked(*arguments)
    return str(error.value)
