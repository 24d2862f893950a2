"""The forms in which people have progress: each is read as the same, or refused with a sentence that names the cause."""

import gzip
import html
import io
import json
import math
import pprint
import sys
import tracemalloc
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planner.queries import idle, progress, tell, written

from penstock.errors import ConfigurationError, SourceError
from penstock.planner import Target, calibrate, observe, tune, verdicts
from penstock.planner.forms import Objects
from penstock.planner.reading import MOST, find
from penstock.planner.series import Series

TOLD, LATENCIES = progress(seed=3)
LOG4J = "26/11/27 10:00:01 INFO MicroBatchExecution: Streaming query made progress: "


def pretty(told):
    return [json.dumps(one, indent=2) for one in told]


def in_a_log(line):
    """As structured logging has a line: the text within an object."""
    return json.dumps({"ts": "2026-11-27T10:00:01Z", "level": "INFO", "msg": line, "logger": "MicroBatchExecution"})


def platform(one):
    """As a pipeline's event log has it."""
    return json.dumps({"id": "e", "event_type": "stream_progress", "details": {"stream_progress": {"progress": one}}})


def packed(text, how):
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, how) as stream:
        stream.write(text.encode())
    return sink.getvalue().to_pybytes()


LINES = "\n".join(map(json.dumps, TOLD))
SPARK_2 = [{name: value for name, value in one.items() if name not in ("batchId", "batchDuration")} for one in TOLD]
FORMS = {
    "listener's lines": LINES,
    "array called .jsonl": json.dumps(TOLD),
    "pretty array": json.dumps(TOLD, indent=1),
    "prettyJson, one after another": "\n".join(pretty(TOLD)),
    "prettyJson, with what was printed between": "\nmade progress\n".join(pretty(TOLD)),
    "driver's log, over many lines": "\n".join(
        f"26/11/27 INFO X: begin\n{LOG4J}{text}\n26/11/27 INFO X: end" for text in pretty(TOLD)
    ),
    "driver's log, on one line": "\n".join(LOG4J + json.dumps(one) for one in TOLD),
    "structured driver's log": "\n".join(in_a_log(LOG4J + text) for text in pretty(TOLD)),
    "log of a container": "\n".join(
        json.dumps({"log": f"{line}\n", "stream": "stderr"})
        for text in pretty(TOLD[:80])
        for line in (LOG4J + text).splitlines()
    ),
    "repr of lastProgress": "\n".join(map(repr, TOLD)),
    "repr of recentProgress": repr(TOLD),
    "pprint of lastProgress": "\n".join(map(pprint.pformat, TOLD)),
    "pipeline's event log": "\n".join(map(platform, TOLD)),
    "details as a text": "\n".join(json.dumps({"details": json.dumps({"stream_progress": {"progress": one}})}) for one in TOLD),
    "Spark 2, without numbers": "\n".join(map(json.dumps, SPARK_2)),
    "driver's log with brackets first": "\n".join(f"[2026-11-27] [INFO] {LOG4J}{text}" for text in pretty(TOLD)),
    "driver's log, with others' lines within": "\n".join(
        (LOG4J + text).replace('  "durationMs"', '26/11/27 WARN Y: is behind {it} by "3\n  "durationMs"')
        for text in pretty(TOLD)
    ),
    "an array, a line each": "[\n" + ",\n".join(map(json.dumps, TOLD)) + "\n]",
    "an array of texts": json.dumps(list(map(json.dumps, TOLD)), indent=1),
    "two on a line": "\n".join(json.dumps(a) + json.dumps(b) for a, b in zip(TOLD[::2], TOLD[1::2], strict=True)),
    "a pod's log": "\n".join(
        f"2026-11-27T10:00:01.123456789Z stdout F {line}" for text in pretty(TOLD) for line in (LOG4J + text).splitlines()
    ),
    "a pod's log, in parts": "\n".join(
        f"2026-11-27T10:00:01.123Z stdout P {line[:300]}\n2026-11-27T10:00:01.123Z stdout F {line[300:]}"
        for line in (LOG4J + json.dumps(one) for one in TOLD)
    ),
    "a container's log, in parts": "\n".join(
        json.dumps({"log": part})
        for line in (LOG4J + json.dumps(one) + "\n" for one in TOLD)
        for part in ("begin\n", line[:300], line[300:600], line[600:])
    ),
    "Docker Compose": "\n".join(f"spark-1  | {line}" for text in pretty(TOLD) for line in (LOG4J + text).splitlines()),
    "journald": "\n".join(
        f"Nov 27 10:00:01 host spark[71]: {line}" for text in pretty(TOLD) for line in (LOG4J + text).splitlines()
    ),
    "coloured": "\n".join(f"\x1b[32mINFO\x1b[0m {LOG4J}{json.dumps(one)}" for one in TOLD),
    "a column of CSV": "\n".join('3,"' + json.dumps(one).replace('"', '""') + '"' for one in TOLD),
    "a string in a string": "\n".join('data="' + json.dumps(one).replace('"', '\\"') + '"' for one in TOLD),
    "HTML": "\n".join(html.escape(json.dumps(one)) for one in TOLD),
    "a notebook": json.dumps({"outputs": [{"text": [f"{one!r}\n" for one in TOLD]}]}, indent=1),
    "a service's export, in one object": json.dumps(
        {"events": [{"message": line} for text in pretty(TOLD) for line in (LOG4J + text).splitlines()]}, indent=1
    ),
    "a service's export of events": json.dumps({"events": [json.loads(platform(one)) for one in TOLD]}, indent=1),
    "behind an opened brace": "see { below\nand [\n" + LINES,
    "with UTF-8's mark": "\ufeff" + LINES,
    "Windows' lines": LINES.replace("\n", "\r\n"),
}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_read_as_the_same(tmp_path, form):
    (tmp_path / "recording.jsonl").write_text(FORMS[form], newline="")
    seen = observe(tmp_path / "recording.jsonl")
    told = TOLD[:80] if form == "log of a container" else TOLD
    wanted = sum(one["numInputRows"] for one in told)
    assert sum(series.rows.sum() for series in seen.queries[0].cold) == wanted
    assert seen.queries[0].setting.trigger == 1.0
    assert not [note for note in seen.notes if note.kind == "torn"]


@pytest.mark.parametrize("how", ["gzip", "zstd", "bz2", "lz4"])
@pytest.mark.parametrize("parts", [1, 2])
def test_packed_files_are_unpacked_whatever_they_are_called(tmp_path, how, parts):
    cut = len(TOLD) // parts
    texts = ["\n".join(map(json.dumps, TOLD[at : at + cut])) + "\n" for at in range(0, len(TOLD), cut)]
    (tmp_path / "recording").write_bytes(b"".join(packed(text, how) for text in texts))
    assert len(find(tmp_path / "recording").records) == len(TOLD)


def test_standard_input_and_directories_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(LINES.encode())))
    assert len(observe("-").queries[0].records) == len(TOLD)
    with pytest.raises(SourceError, match="has been read already"):
        observe("-")
    (tmp_path / "driver.log.1.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, TOLD[:40])).encode()))
    (tmp_path / "events_of_another_kind").write_text("nothing of ours")
    (tmp_path / "driver.log").write_text("\n".join(LOG4J + json.dumps(one) for one in TOLD[40:]))
    assert len(observe(tmp_path).queries[0].records) == len(TOLD)


STREAMS = [{"batchId": 1, "batchTime": "x", "status": "COMPLETED", "inputSize": 3, "processingTime": 5, "totalDelay": 6}]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"LZ4Block\x25", "set spark.eventLog.compression.codec to zstd"),
        (b"\x82SNAPPY\x00", "Spark's snappy"),
        (b"\x1f\x8b\x08broken", "begins as gzip does, and cannot be unpacked"),
        (b"\x00\x01\x02", "is no text"),
        (json.dumps(STREAMS).encode(), "1 batches of DStreams"),
        (b"", "holds no progress"),
        (LINES[:300].encode(), "holds 1 lines, none of which is progress"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_cause(tmp_path, content, said):
    (tmp_path / "recording").write_bytes(content)
    with pytest.raises(SourceError, match=said):
        observe(tmp_path / "recording")


SPELT = {
    "JSON": json.dumps,
    "pretty JSON": lambda one: json.dumps(one, indent=2),
    "repr": repr,
    "pprint": pprint.pformat,
    "a log's line": lambda one: LOG4J + json.dumps(one),
    "a log's lines": lambda one: LOG4J + json.dumps(one, indent=2),
    "a structured log": lambda one: in_a_log(LOG4J + json.dumps(one)),
}


@pytest.mark.parametrize("spelt", SPELT)
@given(cut=st.floats(0.05, 0.95), first=st.integers(0, 3))
def test_an_object_that_is_cut_off_takes_no_other_with_it(spelt, cut, first):
    texts = list(map(SPELT[spelt], TOLD[:6]))
    texts[first] = texts[first][: int(cut * len(texts[first]))]
    objects = Objects()
    numbers = [one["batchId"] for one in objects.of("\n".join(texts).splitlines()) if "batchId" in one]
    assert numbers == [number for number in range(6) if number != first]
    assert objects.torn <= 1


def test_files_of_a_directory_are_read_in_the_order_of_their_age(tmp_path):
    """A progress that one rotated log ends with goes on in the next; what is no text, hidden or in a folder stops nothing."""
    lines = "\n".join(LOG4J + one for one in pretty(TOLD)).splitlines(keepends=True)
    parts = ["".join(part) for part in (lines[:1010], lines[1010:2500], lines[2500:])]
    for name, part in zip(("driver.log", "driver.log.1", "driver.log.2"), reversed(parts), strict=True):
        (tmp_path / name).write_text(part)
    (tmp_path / "driver.jar").write_bytes(b"PK\x03\x04 and more")
    (tmp_path / "._SUCCESS.crc").write_bytes(b"\0\0")
    seen = observe(tmp_path)
    assert len(seen.queries[0].records) == len(TOLD)
    assert [note.text for note in seen.notes if "zip archive" in note.text]
    (tmp_path / "older").mkdir()
    for name in ("driver.log", "driver.log.1", "driver.log.2"):
        (tmp_path / name).rename(tmp_path / "older" / name)
    assert len(observe(tmp_path).queries[0].records) == len(TOLD)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_texts_of_windows_are_read(tmp_path, encoding):
    mark = b"" if encoding == "utf-16" else b"\xfe\xff"
    (tmp_path / "recording").write_bytes(mark + LINES.encode(encoding))
    assert len(find(tmp_path / "recording").records) == len(TOLD)


ODD = {
    "rows counted in all": lambda one: {**one, "sources": [{"description": "files"}]},
    "rows not known by source": lambda one: {**one, "sources": [{"description": "files", "numInputRows": -1}]},
    "numbers as texts": lambda one: {**one, "numInputRows": f"{one['numInputRows']}.0", "batchId": str(one["batchId"])},
    "milliseconds since 1970": lambda one: {
        **one,
        "timestamp": int(datetime.fromisoformat(one["timestamp"].replace("Z", "+00:00")).timestamp() * 1e3),
    },
    "a name that is none": lambda one: {**one, "name": {"a": 1}},
    "one duration": lambda one: {**one, "durationMs": {"triggerExecution": one["durationMs"]["triggerExecution"]}},
    "metrics that are none": lambda one: {**one, "sources": [{**one["sources"][0], "metrics": {"numFilesOutstanding": "x"}}]},
}


@pytest.mark.parametrize("how", ODD)
def test_progress_with_oddities_is_read(tmp_path, how):
    seen = observe(written(tmp_path / "recording", list(map(ODD[how], TOLD))))
    assert sum(series.rows.sum() for series in seen.queries[0].cold) == sum(one["numInputRows"] for one in TOLD)
    assert seen.queries[0].setting.trigger == 1.0


def test_progress_without_times_is_refused_for_that(tmp_path):
    told = [{name: value for name, value in one.items() if name != "timestamp"} for one in TOLD]
    with pytest.raises(SourceError, match=f"holds {len(TOLD)} progress records, of none of which the timestamp"):
        observe(written(tmp_path / "recording", told))


def test_queries_of_one_name_at_one_time_are_two(tmp_path):
    others = [{**one, "id": "another", "runId": "other"} for one in TOLD]
    path = written(tmp_path / "recording", [one for pair in zip(TOLD, others, strict=True) for one in pair])
    with pytest.raises(ConfigurationError, match=r"2 queries \(query-.*, query-another\)"):
        observe(path)
    assert len(observe(path, query="query-another").queries[0].records) == len(TOLD)


@pytest.mark.parametrize("kept", [0.7, 0.4])
def test_missing_progress_hides_no_saturation(tmp_path, kept):
    told, _ = progress(seed=1, trigger=0.0, rate=12_000, per_row=1e-4, seconds=600)
    random = np.random.default_rng(1)
    path = written(tmp_path / "recording", [one for one in told if random.random() < kept])
    assert verdicts(observe(path))[0].kind == "saturated"
    assert not tune(observe(path), Target("p95", 10.0)).feasible


def test_missing_progress_makes_no_trigger_longer(tmp_path):
    told, _ = progress(seed=1, trigger=2.0, seconds=900)
    seen = observe(written(tmp_path / "recording", [one for one in told if one["batchId"] % 3]))
    assert seen.queries[0].setting.trigger == 2.0
    assert seen.queries[0].series[0].busy == pytest.approx(0.25, abs=0.03)


@given(st.lists(st.text(max_size=60), max_size=20))
def test_any_lines_are_read_or_left_out(lines):
    list(Objects().of(lines))


@pytest.mark.parametrize(
    "broken",
    [
        {"timestamp": "1970-01-01T00:00:00.000Z"},
        {"durationMs": {**TOLD[50]["durationMs"], "triggerExecution": math.nan}},
        {"durationMs": {**TOLD[50]["durationMs"], "addBatch": math.inf}},
        {"durationMs": {**TOLD[50]["durationMs"], "triggerExecution": -5}},
    ],
)
def test_one_progress_that_cannot_be_spoils_no_other(tmp_path, broken):
    (tmp_path / "recording").write_text("\n".join(map(json.dumps, [*TOLD[:50], {**TOLD[50], **broken}, *TOLD[51:]])))
    seen = observe(tmp_path / "recording")
    assert any("impossible times or durations" in note.text for note in seen.notes)
    assert seen.queries[0].latency()["p95"] == pytest.approx(np.quantile(LATENCIES, 0.95), rel=0.1)


def test_sampled_progress_is_not_taken_for_all_of_it(tmp_path):
    (tmp_path / "half").write_text("\n".join(map(json.dumps, TOLD[::2])))
    seen = observe(tmp_path / "half")
    verdicts(seen)
    assert seen.queries[0].latency() == {}
    with pytest.raises(ConfigurationError, match="progress was sampled"):
        calibrate(seen)
    some = sorted(np.random.default_rng(1).choice(len(TOLD), 80, replace=False))
    (tmp_path / "some").write_text("\n".join(json.dumps(TOLD[at]) for at in some))
    assert observe(tmp_path / "some").queries[0].latency()["p95"] == pytest.approx(np.quantile(LATENCIES, 0.95), rel=0.15)


def test_offsets_count_rows_where_spark_counts_none(tmp_path):
    silent = [{**one, "numInputRows": 0, "sources": [{**one["sources"][0], "numInputRows": 0}]} for one in TOLD]
    (tmp_path / "recording").write_text("\n".join(map(json.dumps, silent)))
    seen = observe(tmp_path / "recording")
    assert calibrate(seen).arrivals.rate == pytest.approx(1000, rel=0.05)
    assert verdicts(seen)[0].kind != "idle"


def test_two_queries_without_names_are_two(tmp_path):
    apart = [{**one, "name": None, "id": f"{number % 2}-id"} for number, one in enumerate(TOLD)]
    (tmp_path / "recording").write_text("\n".join(map(json.dumps, apart)))
    with pytest.raises(ConfigurationError, match="has 2 queries"):
        observe(tmp_path / "recording")
    assert len(observe(tmp_path / "recording", query="1-id").queries[0].records) == len(TOLD) // 2


def table_of(told, outstanding):
    """As a table's source tells it: offsets count versions, and what waits is counted in files."""
    return [
        {
            **one,
            "sources": [
                {
                    "description": "DeltaSource[x]",
                    "startOffset": {"v": 1},
                    "endOffset": {"v": 2},
                    "numInputRows": one["numInputRows"],
                    **({} if outstanding is None else {"metrics": {"numFilesOutstanding": str(outstanding(number))}}),
                }
            ],
        }
        for number, one in enumerate(told)
    ]


@pytest.mark.parametrize(
    ("outstanding", "kind"),
    [(lambda number: 10 + number, "saturated"), (lambda number: 300 - number, "working off"), (None, "saturated")],
)
def test_a_query_at_its_cap_is_never_told_that_a_target_can_be_met(tmp_path, outstanding, kind):
    told, _ = progress(seed=1, rate=1500, trigger=2.0, fixed=1.6, per_row=6e-4, cap=1000, seconds=400)
    (tmp_path / "recording").write_text("\n".join(map(json.dumps, table_of(told, outstanding))))
    answer = tune(observe(tmp_path / "recording"), Target("p95", 10.0))
    assert answer.verdicts[0].kind == kind
    assert not answer.feasible
    assert "can be met." not in answer.headline
    assert answer.options == {}


def test_a_cap_that_rows_wait_behind_is_part_of_the_setting(tmp_path):
    told, _ = progress(seed=1, rate=700, trigger=2.0, fixed=1.49, per_row=5e-4, cap=1000, seconds=800)
    (tmp_path / "recording").write_text("\n".join(map(json.dumps, told)))
    answer = tune(observe(tmp_path / "recording"), Target("p95", 10.0))
    assert (answer.verdicts[0].kind, answer.feasible) == ("saturated", False)
    assert "keeps up with 5" in answer.reason  # 1000 rows each 2 s


def test_what_was_not_timed_is_called_derived(tmp_path):
    (tmp_path / "recording").write_text(LINES)
    assert observe(tmp_path / "recording").queries[0].latency_kind == "derived"


def test_memory_is_bounded_however_long_the_recording_is(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.planner.reading.MOST", 500)
    began = datetime(2026, 1, 1, tzinfo=UTC)

    def peak(count):
        with (tmp_path / "long").open("w") as file:
            for number in range(count):
                stamp = (began + timedelta(seconds=5 * number)).isoformat(timespec="milliseconds")
                file.write(json.dumps({**TOLD[60], "batchId": number, "timestamp": stamp}) + "\n")
        tracemalloc.start()
        found = find(tmp_path / "long")
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert found.earlier == count - 500
        return most

    assert peak(4_000) < 1.2 * peak(1_000)
    assert find(tmp_path / "long").records[0].number == 500
    assert MOST >= 86_400  # a day of micro-batches a second


@pytest.mark.parametrize("late", [0.0, 0.05, 0.4])
@pytest.mark.parametrize("phase", [0.0, 0.3712])
@pytest.mark.parametrize("trigger", [0.7, 2.5, 7.0, 100.0, 240.0, 86_400.0])
def test_any_trigger_is_told_from_starts_that_are_late_on_any_grid(tmp_path, trigger, phase, late):
    random, began = np.random.default_rng(5), 1_790_000_000 // trigger * trigger
    told = []
    for number in range(40):
        at = began + (phase + number) * trigger + random.random() * min(late, trigger / 10)
        stamp = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        told.append({**TOLD[20], "batchId": number, "timestamp": stamp, "durationMs": {"addBatch": 80, "triggerExecution": 90}})
    (tmp_path / "recording").write_text("\n".join(map(json.dumps, told)))
    assert observe(tmp_path / "recording").queries[0].setting.trigger == trigger


def test_triggers_that_found_nothing_tell_when_rows_came(tmp_path):
    """A file a minute, at a trigger of a second: Spark says each ten seconds or so that there was nothing."""
    told, number = [], 0
    for second in range(1, 1800):
        if second % 60 == 30:
            told.append(
                tell(
                    second, number, 500, 1.6, [np.array([500 * number]), *[np.array([500 * number + 500])] * 2], "q", "r", None
                )
            )
            number += 1
        elif second % 60 not in (31,) and second % 11 == 0:
            told.append(idle(second, number, "q", "r"))
    (tmp_path / "recording").write_text("\n".join(map(json.dumps, told)))
    seen = observe(tmp_path / "recording").queries[0]
    assert seen.setting.trigger == 1.0
    assert seen.latency()["p95"] < 14  # they came since the last look, 11 s before at most, and not within the last minute


def test_a_rate_that_falls_is_no_warm_up(tmp_path):
    told, _ = progress(seed=2, rate=lambda second: 2000.0 if second < 60 else 500.0, per_row=4e-4)
    (tmp_path / "recording").write_text("\n".join(map(json.dumps, told)))
    assert observe(tmp_path / "recording").queries[0].batches > 0.95 * len(told)


def test_jobs_that_end_are_not_told_to_be_recorded_for_longer(tmp_path):
    told = []
    for start in range(12):
        part, _ = progress(seed=start, seconds=3.0, run=f"run {start}", first=3 * start)
        for one in part:
            at = datetime.fromisoformat(one["timestamp"]).timestamp() + 600 * start
            told.append({**one, "timestamp": datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")})
    (tmp_path / "recording").write_text("\n".join(map(json.dumps, told)))
    answer = tune(observe(tmp_path / "recording"), Target("p95", 10.0))
    assert "600 s between its starts" in answer.reason
    assert "for longer" not in answer.reason


def test_a_maximum_that_was_not_reached_is_assumed_not_to_be_there(tmp_path):
    (tmp_path / "recording").write_text(LINES)
    prediction = calibrate(observe(tmp_path / "recording")).predict()
    assert any("No maximum of rows per trigger is assumed" in text for text in prediction.assumptions)


def made_series(rows, *, lasting, every, outstanding=np.nan):
    """Micro-batches that begin each so many seconds."""
    rows = np.asarray(rows, dtype=float)
    started, zeros = np.arange(len(rows)) * every, np.zeros_like(rows)
    return Series(
        numbers=np.arange(len(rows), dtype=float),
        started=started,
        admitted=started,
        visible=started + lasting,
        ended=started + lasting,
        rows=rows,
        waiting=zeros,
        keys=zeros,
        whole=np.ones(len(rows), dtype=bool),
        outstanding=zeros + outstanding,
        gated=np.ones(len(rows), dtype=bool),
        empty=zeros + np.nan,
        again=zeros + np.nan,
        since=zeros + np.nan,
    )


@pytest.mark.parametrize(
    ("series", "ceiling"),
    [
        (made_series([1000] * 20, lasting=2.0, every=2.0), 1000),
        (made_series([1000] * 20, lasting=0.1, every=2.0), None),  # a steady source, with time to spare
        (made_series([1000] * 20, lasting=0.1, every=2.0, outstanding=5), 1000),
        (made_series([1000] * 20, lasting=2.0, every=2.0, outstanding=0), None),  # nothing waits
        (made_series([1000, *range(500, 519)], lasting=2.0, every=2.0, outstanding=5), None),  # the largest of many
    ],
)
def test_a_maximum_is_what_most_micro_batches_take_while_more_waits(series, ceiling):
    assert series.ceiling == ceiling


def test_a_query_whose_files_heap_up_is_not_told_that_it_may_meet_a_target(tmp_path):
    told, _ = progress(seed=1, rate=700, trigger=2.0, fixed=1.49, per_row=5e-4, cap=1000, seconds=800)
    (tmp_path / "recording").write_text("\n".join(map(json.dumps, table_of(told, lambda number: 10 + number))))
    answer = tune(observe(tmp_path / "recording"), Target("p95", 10.0))
    assert answer.verdicts[0].kind == "saturated"
    assert (bool(answer.feasible), answer.options) == (False, {})


def test_only_a_look_since_the_micro_batch_before_tells_when_rows_came(tmp_path):
    told = [
        tell(second, number, 5, 1.0, [np.array([5 * number]), *[np.array([5 * number + 5])] * 2], "q", "r", None)
        for number, second in enumerate((10, 20, 30))
    ]
    looks = [idle(second, 0, "q", "r") for second in (5, 25)]  # none between the first and the second
    (tmp_path / "recording").write_text("\n".join(map(json.dumps, [looks[0], *told[:2], looks[1], told[2]])))
    (series,) = observe(tmp_path / "recording").queries[0].cold
    assert np.isnan(series.since).tolist() == [False, True, False]


def test_micro_batches_of_real_time_mode_are_doubted(tmp_path):
    told, _ = progress(trigger=0, rate=lambda at: 500 + 400 * np.sin(at / 20), fixed=5.02, per_row=0, noise=0.002, seconds=400)
    answer = tune(observe(written(tmp_path / "real-time.jsonl", told)), Target("p95", 1.0))
    assert answer.feasible is None
    assert "real-time mode" in answer.reason
    assert "not known" in answer.headline
    usual, _ = progress(trigger=0, rate=500, fixed=5.02, per_row=1e-4, noise=0.05, seconds=400)
    assert tune(observe(written(tmp_path / "usual.jsonl", usual)), Target("p95", 30.0)).feasible
