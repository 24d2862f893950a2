"""Runs as such: resuming, changing code, stopping, groups and dialects, what is recorded."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import datetime, timedelta

import msgspec
import pytest
from apps_engine import MOMENT, SINCE, Stay
from support import TOPOLOGIES, load, write_batches

from penstock.errors import ConfigurationError, EmissionError, IncompatibleStateError, RunFailedError

LINES = '{"text": " aa "}\n{"text": "b"}\n{"text": "ccc", "size": 7}\n'


def latest(result):
    return {count.text: count.seen for count in result.output("Out")}


@pytest.mark.slow
def test_a_run_resumes_where_it_stopped(run_app, words):
    first = run_app("counter", sources=words("a", "b"))
    assert latest(first) == {"a": 1, "b": 1}
    second = run_app("counter", sources=words("a", "c"))
    assert latest(second) == {"a": 2, "b": 1, "c": 1}
    assert second.report["counts"]["accepted"] == 4
    assert second.report["elements"]["Counter"]["instances"] == 3
    again = run_app("counter", sources=words())
    assert again.report["counts"]["accepted"] == 4
    fresh = run_app("counter", sources=words("a"), fresh=True)
    assert latest(fresh) == {"a": 3, "b": 1, "c": 1}


def test_a_run_does_not_resume_from_another_place(run_app, words, tmp_path):
    run_app("counter", sources=words("a"))
    (tmp_path / "other").mkdir()
    with pytest.raises(ConfigurationError, match="Source Words was read from.*--fresh"):
        run_app("counter", sources={"Words": f"jsonl:{tmp_path / 'other'}"})


@pytest.mark.slow
def test_a_run_with_state_that_was_moved_says_where_it_belongs(run_app, words, tmp_path):
    run_app("counter", sources=words("a"))
    (tmp_path / "runs").rename(tmp_path / "elsewhere")
    with pytest.raises(
        IncompatibleStateError, match=r"elsewhere/\w+ was .*/runs/\w+ when this run was started last.*move it back"
    ):
        run_app("counter", sources=words("b"), runs=tmp_path / "elsewhere")
    (tmp_path / "runs").symlink_to("elsewhere")  # now it is there, too
    assert latest(run_app("counter", sources=words(), runs=tmp_path / "elsewhere")) == {"a": 1, "b": 1}


STATEFUL = """
from penstock import App, Event, ProcessingElement
class Word(Event):
    text: str
    size: int = 0
class Count(Event):
    text: str
    seen: float
app = App("evolving")
words = app.source("Words", Word)
counts = app.stream("Counts", Count)
app.sink("Out", counts)
@app.element(words, key="text", emits=counts)
class Counter(ProcessingElement):
    seen: int = 0
    def on_event(self, word):
        self.seen += 1
    def on_batch(self):
        yield counts(self.key, self.seen)
"""


@pytest.mark.slow
def test_state_survives_a_new_field_and_refuses_a_lost_one(run_app, words, tmp_path):
    code = tmp_path / "evolving.py"
    code.write_text(STATEFUL)
    run_app("app", file=code, sources=words("a", "a"))
    code.write_text(
        STATEFUL.replace("seen: int = 0", "seen: float = 0\n    longest: int = 5").replace(
            "yield counts(self.key, self.seen)", "yield counts(self.key, self.seen + self.longest)"
        )
    )
    assert latest(run_app("app", file=code, sources=words("a"))) == {"a": 8.0}
    code.write_text(STATEFUL.replace("seen: int = 0", "count: int = 0").replace("self.seen", "self.count"))
    with pytest.raises(IncompatibleStateError, match="stored the field 'seen'.*no longer has"):
        run_app("app", file=code, sources=words("a"))
    code.write_text(STATEFUL.replace("seen: int = 0", "seen: float = 0\n    longest: int = 5"))
    assert latest(run_app("app", file=code, sources=words())) == {"a": 4.0}


def test_stopping_is_not_losing(run_app, words):
    sources = words("good", "bad", "good")
    with pytest.raises(RunFailedError, match="stop_at_bad: ValueError: will not do.*Nothing is lost"):
        run_app("stopping", sources=sources)


@pytest.fixture
def small_disk(tmp_path):
    """A directory on a file system of 64 kB."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode:
        if os.environ.get("CI"):
            pytest.fail("CI must be able to mount a tmpfs, to test a full disk")
        pytest.skip("FULL DISK NOT TESTED: mounting a tmpfs needs root")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.slow
def test_a_full_disk_stops_the_run_and_more_room_resumes_it(run_app, words, small_disk):
    sources = words(*(f"word number {number}" for number in range(3000)))
    sinks = {"Out": f"jsonl:{small_disk / 'out'}"}
    with pytest.raises(RunFailedError, match="No space left on device.*Nothing is lost"):
        run_app("counter", sources=sources, sinks=sinks)
    subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
    result = run_app("counter", sources=sources, sinks=sinks)
    assert len(result.output("Out")) == 3000
    assert result.report["counts"]["lost"] == result.report["counts"]["duplicated"] == 0


def test_query_elements_run_natively(run_app, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text(LINES + "{broken\n")
    result = run_app("native", sources={"Words": f"jsonl:{tmp_path / 'in'}"})
    assert [(word.text, word.size) for word in result.output("Out")] == [(" AA ", 0), ("CCC", 7)]
    counts = result.report["counts"]
    assert (counts["accepted"], counts["processed"], counts["dead_lettered"], counts["lost"]) == (4, 3, 1, 0)
    assert result.report["streams"] == {"Words": 3, "LongWords": 0, "Shouted": 2}


@pytest.fixture
def ada(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"firstName": "Ada", "homeTown": "London"}\n')
    return {"Persons": f"jsonl:{tmp_path / 'in'}"}


def test_a_querys_events_are_encoded_and_kept_as_those_of_other_dialects(run_app, ada, tmp_path):
    sinks = {
        "Lines": f"jsonl:{tmp_path / 'lines'}",
        "Columns": f"parquet:{tmp_path / 'columns'}",
        "Rows": f"sqlite:{tmp_path / 'rows'}",
    }
    result = run_app("renamed", sources=ada, sinks=sinks)
    lengths = [timedelta(days=2, hours=1), timedelta(seconds=-5, microseconds=-1), None]
    for [household] in map(result.output, sinks):
        assert (household.head_person.home_town, household.since, household.last_stay) == ("London", SINCE, None)
        assert (household.lasting, household.pause, household.away_for) == (lengths[0], None, lengths)
        assert household.by_town == {"London": Stay(lengths[0])}
    [line] = [line for file in (tmp_path / "lines").glob("*.jsonl") for line in file.read_bytes().splitlines()]
    assert json.loads(line) == json.loads(msgspec.json.encode(household))


def test_groups_hand_on_times_of_all_kinds(run_app, ada):
    result = run_app("handed", sources=ada)
    assert result.output("Out") == [MOMENT]
    assert result.report["counts"]["dead_lettered"] == 0


@pytest.mark.parametrize(("which", "left"), [("both_ways", 9), ("looked_up", 0)])
def test_what_a_query_does_with_its_input_changes_no_count(run_app, tmp_path, which, left):
    """Read twice, or not needed at all: each event has come in once, and the dead letter is one."""
    (tmp_path / "in").mkdir()
    for number in range(3):
        lines = "".join(json.dumps({"text": f"w{number}", "size": size}) + "\n" for size in range(3))
        (tmp_path / "in" / f"{number}.jsonl").write_text(lines + ("" if number else "{oh\n"))
    for _ in range(2):  # and once more, resumed
        result = run_app(which, sources={"Words": f"jsonl:{tmp_path / 'in'}?max_files=1"}, until_idle="pause")
        counts = result.report["counts"]
        assert (counts["accepted"], counts["processed"], counts["dead_lettered"]) == (10, 9, 1)
        assert (counts["lost"], counts["duplicated"]) == (0, 0)
        assert (len(result.output("Out")), len(result.dead_letters)) == (left, 1)


def test_sources_may_be_joined_in_another_order_than_declared(run_app, tmp_path):
    for name, lines in (
        ("words", [{"text": f"w{n}", "size": n} for n in range(4)]),
        ("counts", [{"text": f"w{n}", "seen": 10 * n} for n in range(7)]),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    places = {"Words": f"jsonl:{tmp_path / 'words'}", "Counts": f"jsonl:{tmp_path / 'counts'}"}
    for more in (0, 1):  # and once more, resumed with another word
        result = run_app("crossed", sources=places, until_idle="pause")
        assert sorted((one.text, one.size, one.seen) for one in result.output("Out")) == [
            (f"w{n}", n, 10 * n) for n in range(4 + more)
        ]
        assert result.report["streams"] == {"Words": 4 + more, "Counts": 7, "Crossed": 4 + more}
        counts = result.report["counts"]
        assert (counts["accepted"], counts["queued"], counts["lost"], counts["duplicated"]) == (11 + more, 0, 0, 0)
        (tmp_path / "words" / "b.jsonl").write_text(json.dumps({"text": "w4", "size": 4}) + "\n")


def test_dialects_mix_in_any_order(run_app, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text(LINES + '{"text": "aa"}\n')
    result = run_app("mixed", sources={"Words": f"jsonl:{tmp_path / 'in'}"})
    assert latest(result) == {"aa": 4, "b": 2, "ccc": 2}
    assert len(result.output("Beside")) == 4
    counts = result.report["counts"]
    assert (counts["accepted"], counts["lost"], counts["duplicated"]) == (4, 0, 0)
    assert result.report["latency_ms"]["max"] is not None


def test_a_query_that_lacks_a_column_is_refused(run_app, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text(LINES)
    with pytest.raises(EmissionError, match="without_a_column returned columns text, without seen"):
        run_app("crooked", sources={"Words": f"jsonl:{tmp_path / 'in'}"})


def test_elements_may_be_grouped(run_app, tmp_path):
    app, _ = load("hops")
    word = sys.modules["topologies"].Word
    sources = write_batches(app, [{"Words": [word("a"), word("bb"), word("a")]}], tmp_path)
    result = run_app("hops", file=TOPOLOGIES, sources=sources, groups={"PerLength": "second"})
    assert (result.directory / "batches-second.jsonl").stat().st_size > 0
    last = {event.key: event.seen for event in result.output("Out")}
    assert last == {"1": 3, "2": 2}


@pytest.mark.slow
def test_intervals_tick_while_nothing_arrives(run_app, tmp_path):
    out = tmp_path / "out"

    def stop_after_three_ticks():
        while sum(len(file.read_text().splitlines()) for file in out.glob("*.jsonl")) < 3:
            time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=stop_after_three_ticks, daemon=True).start()
    result = run_app(
        "ticking",
        sources={"Words": "generator:constant?rate=50&count=20"},
        sinks={"Out": f"jsonl:{out}"},
        until_idle=False,
        duration=200,
    )
    ticks = result.output("Out")
    assert len(ticks) >= 3
    assert [tick.seen for tick in ticks] == sorted(tick.seen for tick in ticks)
    assert ticks[-1].seen == 20


def test_a_run_records_itself(run_app, words, tmp_path):
    result = run_app("counter", sources=words("a", "b", "a"), report=tmp_path / "copy.json")
    report = json.loads((result.directory / "report.json").read_text())
    assert report == result.report == json.loads((tmp_path / "copy.json").read_text())
    for key in (
        "application",
        "engine",
        "master",
        "counts",
        "streams",
        "elements",
        "throughput_events_per_s",
        "latency_ms",
        "batches",
    ):
        assert key in report
    assert set(report["counts"]) >= {"accepted", "processed", "dead_lettered", "queued", "lost", "duplicated"}
    assert set(report["latency_ms"]) == {"p50", "p95", "p99", "max"}
    assert report["elements"]["Counter"]["service_time_us"]["mean"] > 0
    manifest = json.loads((result.directory / "manifest.json").read_text())
    assert manifest["topology"]["elements"][0]["name"] == "Counter"
    [start] = [json.loads(line) for line in (result.directory / "starts.jsonl").read_text().splitlines()]
    assert start["environment"]["pyspark"].startswith("4.")
    progress = (result.directory / "progress.jsonl").read_text().splitlines()
    assert json.loads(progress[0])["numInputRows"] == 3
    [batch] = (result.directory / "batches-main.jsonl").read_text().splitlines()
    assert json.loads(batch)["sources"]["Words"]["accepted"] == 3


@pytest.mark.slow
def test_a_second_driver_waits_and_then_says_who_holds_the_run(run_app, words, monkeypatch, tmp_path):
    import fcntl

    from penstock.engine.running import recording
    from penstock.errors import RunLockedError

    monkeypatch.setattr(recording, "LOCK_PATIENCE", 0.5)
    directory = tmp_path / "runs" / "counter"
    directory.mkdir(parents=True)
    with (directory / "spark.log").open("ab") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        began = time.monotonic()
        with pytest.raises(RunLockedError, match="Another process is running counter"):
            run_app("counter", sources=words("a"))
        assert time.monotonic() - began >= 0.5


def test_a_latency_lasts_until_the_micro_batch_is_committed(run_app, words):
    """Not until its work begins: two events that take 0.6 s each are not there before 1.2 s have passed."""
    report = run_app("slow", sources=words("a", "b")).report
    assert report["latency_ms"]["p50"] >= 2 * 600


@pytest.mark.slow
def test_a_trigger_says_when_micro_batches_begin(run_app):
    """At its multiples since the epoch, though one is ready long before the next."""
    source = {"Words": "generator:constant?rate=100&count=3500"}
    result = run_app("counter", sources=source, trigger=4.0)
    told = [json.loads(line) for line in (result.directory / "progress.jsonl").open()]
    begun = [datetime.fromisoformat(one["timestamp"]).timestamp() for one in told if one["numInputRows"]]
    on_time = [at % 4.0 < 0.5 for at in begun[2:]]  # the first last longer than the trigger
    assert sum(on_time) >= max(2, len(on_time) - 2)
    assert json.loads((result.directory / "starts.jsonl").read_text())["trigger"] == 4.0
