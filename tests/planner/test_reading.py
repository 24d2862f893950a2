"""Whatever form progress comes in, the same is read from it; what is broken is counted, and what is no progress refused."""

import json
from pathlib import Path

import numpy as np
import pytest
from planner.queries import idle, progress, written

from penstock.errors import ConfigurationError, SourceError
from penstock.planner import Setting, calibrate, observe, verdicts

RECORDINGS = Path(__file__).parents[2] / "examples" / "recordings"

TOLD, LATENCIES = progress(seed=3)


def wrapped(one):
    """As an event log holds it: offsets are texts there."""
    inner = json.loads(json.dumps(one))
    for source in inner["sources"]:
        for name in ("startOffset", "endOffset", "latestOffset"):
            source[name] = json.dumps(source[name])
    return {"Event": "org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent", "progress": inner}


def lines(path, told):
    return written(path / "progress.jsonl", told)


def event_log(path, told):
    other = {"Event": "SparkListenerApplicationStart", "App Name": "x"}
    return written(path / "app-1", [other, *map(wrapped, told)])


def rolling(path, told):
    directory = path / "eventlog_v2_app"
    directory.mkdir()
    written(directory / "events_1_app", list(map(wrapped, told[:50])))
    written(directory / "events_2_app", list(map(wrapped, told[50:])))
    return directory


def array(path, told):
    (path / "recent.json").write_text(json.dumps(told, indent=1))
    return path / "recent.json"


def twice_encoded(path, told):
    return written(path / "texts.jsonl", [json.dumps(one) for one in told])


@pytest.mark.parametrize("form", [lines, event_log, rolling, array, twice_encoded])
def test_every_form_reads_the_same(tmp_path, form):
    seen = observe(form(tmp_path, TOLD)).queries[0]
    assert seen.setting.trigger == 1.0
    assert seen.trigger_inferred
    assert sum(series.rows.sum() for series in seen.cold) == len(LATENCIES)


def test_measured_latency_is_the_rows_own(tmp_path):
    """Of each row, though only admissions are told: arrivals are spread evenly between them."""
    measured = observe(lines(tmp_path, TOLD)).queries[0].latency()
    assert measured["mean"] == pytest.approx(LATENCIES.mean(), rel=0.01)
    assert measured["p95"] == pytest.approx(np.quantile(LATENCIES, 0.95), rel=0.01)


def test_a_line_cut_off_is_left_out_and_said(tmp_path):
    path = lines(tmp_path, TOLD)
    path.write_text(path.read_text()[:-400])
    seen = observe(path)
    assert seen.queries[0].batches == len(TOLD) - 2  # the torn one, and the first, which is warm-up
    assert any(note.kind == "torn" for note in seen.notes)


def test_missing_progress_is_seen_and_takes_no_window_of_arrivals(tmp_path):
    seen = observe(lines(tmp_path, TOLD[:40] + TOLD[43:]))
    assert any(note.kind == "missing" and "3 micro-batches" in note.text for note in seen.notes)
    assert calibrate(seen).arrivals.rate == pytest.approx(1000, rel=0.02)


def test_several_starts_have_a_warm_up_each(tmp_path):
    again, _ = progress(seed=4, run="again", first=len(TOLD), warm_up=4.0)
    seen = observe(lines(tmp_path, TOLD + again))
    assert len(seen.queries[0].series) == 2
    assert {note.kind for note in seen.notes} == {"restart", "warm-up"}


def test_of_several_queries_one_is_chosen(tmp_path):
    other, _ = progress(seed=5, name="other", rate=300)
    path = lines(tmp_path, [one for pair in zip(TOLD, other, strict=False) for one in pair])
    with pytest.raises(ConfigurationError, match=r"2 queries \(query, other\): choose one with --query"):
        observe(path)
    assert calibrate(observe(path, query="other")).arrivals.rate == pytest.approx(300, rel=0.05)
    with pytest.raises(ConfigurationError, match="choose among query, other"):
        observe(path, query="third")


def test_an_older_spark_says_less(tmp_path):
    """Spark 3.4 has no batchDuration of its own, and sources may lack latestOffset and rows."""
    old = json.loads(json.dumps(TOLD))
    for one in old:
        del one["batchDuration"], one["sink"], one["sources"][0]["latestOffset"]
        one["name"] = None
    seen = observe(lines(tmp_path, old))
    assert calibrate(seen).predict(Setting(trigger=2)).mean == pytest.approx(1.45, rel=0.1)


@pytest.mark.parametrize("offset", ['{"logOffset":7}', 12, {"sourceVersion": 1, "reservoirVersion": 3, "index": -1}, None, "x"])
def test_offsets_that_do_not_count_rows_leave_the_rows_to_spark(tmp_path, offset):
    """Files, the rate source, Delta: `numInputRows` is what there is."""
    told = json.loads(json.dumps(TOLD))
    for one in told:
        one["sources"][0] |= {"startOffset": offset, "endOffset": offset, "latestOffset": None}
    seen = observe(lines(tmp_path, told))
    assert calibrate(seen).arrivals.rate == pytest.approx(1000, rel=0.02)


def test_progress_without_rows_is_no_batch(tmp_path):
    told = [*TOLD[:60], *(idle(61.0 + 10 * number, 60) for number in range(3)), *TOLD[60:]]
    assert observe(lines(tmp_path, told)).queries[0].batches == len(TOLD) - 1


@pytest.mark.parametrize("content", ["", "hello\n", '{"a": 1}\n', "[]", "[1, 2]", '{"batchId": 1}\n', "\x00\x01", "[{"])
def test_what_is_no_progress_is_refused(tmp_path, content):
    path = tmp_path / "file"
    path.write_text(content)
    with pytest.raises(SourceError, match=r"give a run's directory, progress as JSON .* or a Spark event log|is no text"):
        observe(path)


def test_what_is_compressed_or_missing_is_refused(tmp_path):
    (tmp_path / "app.zst").write_bytes(b"\x28\xb5\x2f\xfd\xff\xfe")
    with pytest.raises(SourceError, match="begins as zstd does, and cannot be unpacked"):
        observe(tmp_path / "app.zst")
    with pytest.raises(SourceError, match="No such file"):
        observe(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match="a directory without a file"):
        observe(tmp_path / "empty")
    with pytest.raises(ConfigurationError, match="at least one recording"):
        observe()


@pytest.mark.parametrize(("trigger", "expected"), [(0.0, 0.0), (0.5, 0.5), (1.0, 1.0), (2.5, 2.5), (10.0, 10.0), (60.0, 60.0)])
def test_the_trigger_is_told_from_the_starts(tmp_path, trigger, expected):
    told, _ = progress(trigger=trigger, seconds=max(60, 15 * trigger), rate=100)
    assert observe(lines(tmp_path, told)).queries[0].setting.trigger == expected


def test_an_event_that_says_idle_is_no_batch_and_is_counted(tmp_path):
    """Since Spark 3.5 a query that has nothing to do reports that, and no progress."""
    told, _ = progress(seconds=12)
    quiet = [
        {"idle": {"id": told[0]["id"], "runId": told[0]["runId"], "timestamp": idle(12.0 + 10 * number, 0)["timestamp"]}}
        for number in range(1, 9)
    ]
    logged = {"Event": "org.apache.spark.sql.streaming.StreamingQueryListener$QueryIdleEvent", **quiet[-1]["idle"]}
    seen = observe(lines(tmp_path, [*told, *quiet, logged]))
    assert len(seen.queries[0].records) == len(told) + 9
    assert verdicts(seen)[0].kind == "idle"


def test_a_recording_counts_once(monkeypatch):
    monkeypatch.chdir(RECORDINGS)
    for again in (RECORDINGS / "digests-1.jsonl", "./digests-1.jsonl", f"../{RECORDINGS.name}/digests-1.jsonl"):
        with pytest.raises(ConfigurationError, match="is given twice: its micro-batches would count twice"):
            observe("digests-1.jsonl", again)
    assert observe("digests-1.jsonl", "digests-2.jsonl").queries[0].batches
