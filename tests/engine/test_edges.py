"""The edges of "nothing lost": names, moments, things replaced, moved, rolled back, killed in between."""

import bz2
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import structs

from penstock.app.description import Description
from penstock.app.loader import load_app
from penstock.connectors.files.sink import DirectorySink
from penstock.connectors.log import EventLog
from penstock.engine import RunOptions
from penstock.engine.running.binding import Binding
from penstock.engine.running.ledger import Ledger
from penstock.engine.running.recording import Recording
from penstock.errors import ConfigurationError, IncompatibleStateError, RunFailedError, SinkError, SourceError
from penstock.runs.layout import Layout
from penstock.runs.manifest import Manifest
from penstock.runtime.output import SinkFiles

pytestmark = pytest.mark.slow

APPS = Path(__file__).parent / "apps_engine.py"


def write(path, *texts):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"text": text, "size": len(text)}) + "\n" for text in texts))


def counts(result):
    return {name: result.report["counts"][name] for name in ("accepted", "processed", "dead_lettered", "lost", "duplicated")}


def fine(accepted, dead=0):
    return {"accepted": accepted, "processed": accepted - dead, "dead_lettered": dead, "lost": 0, "duplicated": 0}


# --- names and contents of files ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a*.jsonl", "[ab].jsonl", "q?.jsonl", "{x}.jsonl"])
def test_a_file_that_spark_would_take_for_others_is_never_counted(run_app, tmp_path, name):
    write(tmp_path / "in" / "a1.jsonl", "a")
    options = {"sources": {"Words": f"jsonl:{tmp_path / 'in'}"}, "name": "names"}
    assert counts(run_app("passing", **options)) == fine(1)
    write(tmp_path / "in" / name, "b")
    with pytest.raises(SourceError, match="by which Spark would read other files or none; rename it"):
        run_app("passing", **options)
    (tmp_path / "in" / name).rename(tmp_path / "in" / "plain.jsonl")
    assert counts(run_app("passing", **options)) == fine(2)


def test_a_file_with_such_a_name_that_comes_later_stops_the_run(run_app, tmp_path):
    write(tmp_path / "in" / "a1.jsonl", "a")

    def add():
        while not list((tmp_path / "runs").glob("late/output/Out/0*.jsonl")):
            time.sleep(0.05)
        write(tmp_path / "in" / "a*.jsonl", "b")

    adder = threading.Thread(target=add)
    adder.start()
    with pytest.raises(RunFailedError, match="by which Spark would read other files.*--fresh"):
        run_app("passing", sources={"Words": f"jsonl:{tmp_path / 'in'}"}, name="late", until_idle=False, duration=60.0)
    adder.join()


@pytest.mark.parametrize("folder", ["in[1]", "i*n", "wh?t", "{a,b}"])
def test_a_directory_that_looks_like_a_pattern_is_refused(run_app, tmp_path, folder):
    write(tmp_path / folder / "a.jsonl", "a")
    with pytest.raises(SourceError, match="by which Spark would read other files.*make a link"):
        run_app("passing", sources={"Words": f"jsonl:{tmp_path / folder}"})


def test_a_single_file_is_a_source(run_app, tmp_path):
    write(tmp_path / "in" / "one.jsonl", "a", "b")
    write(tmp_path / "in" / "one2.jsonl", "not this")
    result = run_app("passing", sources={"Words": f"jsonl:{tmp_path / 'in' / 'one.jsonl'}"})
    assert counts(result) == fine(2)


def test_packed_files_are_counted_as_they_are_read(run_app, tmp_path):
    write(tmp_path / "plain.jsonl", *map(str, range(100)))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl.bz2").write_bytes(bz2.compress((tmp_path / "plain.jsonl").read_bytes()))
    assert counts(run_app("passing", sources={"Words": f"jsonl:{tmp_path / 'in'}"})) == fine(100)


@pytest.mark.parametrize(
    ("name", "sentence"), [("a:b.jsonl", "has the character : in its name.*rename it"), ("a.jsonl.zst", "compressed as .zst")]
)
def test_files_that_cannot_be_read_are_refused_at_the_start(run_app, tmp_path, name, sentence):
    write(tmp_path / "in" / name, "a")
    with pytest.raises(SourceError, match=sentence):
        run_app("passing", sources={"Words": f"jsonl:{tmp_path / 'in'}"})


def test_odd_lines_are_counted_as_they_are_read(run_app, tmp_path):
    (tmp_path / "in").mkdir()
    content = b'{"text":"a","size":1}\n\xc2\xa0\n \n\xff\xfe\n\x1c\n{"text":"b","size":1}\r\n\r\n{"text":"c","size":1}'
    (tmp_path / "in" / "odd.jsonl").write_bytes(content)
    assert counts(run_app("passing", sources={"Words": f"jsonl:{tmp_path / 'in'}"})) == fine(6, dead=3)


def test_bytes_that_are_no_text_are_dead_letters(run_app, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_bytes(b"good\nb\xffd\n" + b"x" * 200_000 + b"\n")
    result = run_app("lines", sources={"Lines": f"text:{tmp_path / 'in'}"})
    assert counts(result) == fine(3, dead=1)
    assert result.dead_letters[0]["raw"] == "b\\xffd"


def test_long_fields_of_csv_are_counted(run_app, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text(f"text,size\ngood,1\n{'x' * 200_000},3\n")
    assert counts(run_app("passing", sources={"Words": f"csv:{tmp_path / 'in'}"})) == fine(2)


def test_files_that_are_archived_once_they_are_read_stay_counted(run_app, tmp_path):
    write(tmp_path / "in" / "a.jsonl", "a", "b")
    options = {"sources": {"Words": f"jsonl:{tmp_path / 'in'}"}, "name": "archived"}
    assert counts(run_app("passing", **options)) == fine(2)
    (tmp_path / "archive").mkdir()
    (tmp_path / "in" / "a.jsonl").rename(tmp_path / "archive" / "a.jsonl")
    write(tmp_path / "in" / "b.jsonl", "c")
    assert counts(run_app("passing", **options)) == fine(3)
    for notes in (tmp_path / "runs" / "archived" / "checkpoint").rglob("rows-of-files-0.jsonl"):
        notes.unlink()
    result = run_app("passing", **options)
    assert counts(result) == fine(3)
    assert result.report["counts"]["uncounted_sources"] == ["Words"]


# --- things replaced, moved and rolled back -----------------------------------------------------------------


def test_a_log_that_was_replaced_by_another_is_refused(run_app, tmp_path):
    spool = tmp_path / "spool"
    options = {"sources": {"Words": f"log:{spool}"}}
    EventLog(spool).append("Words", [b'{"text":"a","size":1}'] * 5)
    run_app("passing", **options)
    shutil.rmtree(spool)
    EventLog(spool).append("Words", [b'{"text":"b","size":1}'] * 15)
    with pytest.raises(ConfigurationError, match="Source Words is another log than the one.*--fresh"):
        run_app("passing", **options)
    assert counts(run_app("passing", fresh=True, **options)) == fine(15)


def test_a_replayed_file_that_was_replaced_is_refused(tmp_path):
    recording = Recording(tmp_path / "run")
    plain = Manifest(
        application="replaying",
        mode="micro-batches",
        topology=Description("replaying", [], [], []),
        state={},
        sources={"S": "replay:f"},
        identities={"S": "one"},
        parameters={},
        groups={},
        hops={},
        reads={},
        partitions=2,
        layout=Layout(),
    )
    recording.prepare(plain, fresh=False, inspect=lambda *_: None)
    with pytest.raises(ConfigurationError, match="Source S is another replay"):
        recording.prepare(structs.replace(plain, identities={"S": "two"}), fresh=False, inspect=lambda *_: None)
    recording.release()


@pytest.fixture
def finished(run_app, tmp_path):
    """A run of three micro-batches that can be resumed; its directory and options."""
    for number in range(3):
        write(tmp_path / "in" / f"{number}.jsonl", f"a{number}", f"b{number}")
        os.utime(tmp_path / "in" / f"{number}.jsonl", (1_700_000_000 + number,) * 2)
    options = {"sources": {"Words": f"jsonl:{tmp_path / 'in'}?max_files=1"}, "name": "edge"}
    assert counts(run_app("passing", **options)) == fine(6)
    return tmp_path / "runs" / "edge", options


def roll_back(checkpoint, *logs):
    for log in logs:
        last = max(int(path.name) for path in (checkpoint / log).glob("[0-9]*"))
        (checkpoint / log / str(last)).unlink()
        (checkpoint / log / f".{last}.crc").unlink(missing_ok=True)


def test_a_checkpoint_that_was_rolled_back_is_refused(run_app, finished, tmp_path):
    directory, options = finished
    roll_back(directory / "checkpoint" / "main", "commits", "offsets")
    write(tmp_path / "in" / "3.jsonl", "new")
    with pytest.raises(
        IncompatibleStateError, match="Spark's checkpoint of main is behind.*planned batch 1.*committed batch 2"
    ):
        run_app("passing", **options)


def test_a_missing_note_of_completion_is_harmless(run_app, finished, tmp_path):
    directory, options = finished
    roll_back(directory / "checkpoint" / "main", "commits")
    write(tmp_path / "in" / "3.jsonl", "new")
    assert counts(run_app("passing", **options)) == fine(7)


def test_a_ledger_that_was_rolled_back_is_refused(run_app, finished):
    directory, options = finished
    ledger = directory / "batches-main.jsonl"
    ledger.write_text("".join(ledger.read_text().splitlines(keepends=True)[:1]))
    with pytest.raises(IncompatibleStateError, match="The ledger of main is behind: it ends with batch 0"):
        run_app("passing", **options)


def test_a_checkpoint_of_another_hour_is_refused(run_app, finished):
    directory, options = finished
    offsets = directory / "checkpoint" / "main" / "offsets" / "2"
    offsets.write_text(offsets.read_text().replace('"logOffset":2', '"logOffset":1'))
    (offsets.parent / ".2.crc").unlink(missing_ok=True)
    with pytest.raises(IncompatibleStateError, match="was rolled back: its batch 2 reads other events"):
        run_app("passing", **options)


def test_a_run_that_was_killed_before_its_first_batch_was_planned_begins_again(run_app, tmp_path):
    write(tmp_path / "in" / "a.jsonl", "a", "b")
    options = {"sources": {"Words": f"jsonl:{tmp_path / 'in'}"}, "name": "first"}
    run_app("counter", **options)
    directory = tmp_path / "runs" / "first"
    for log in ("offsets", "commits", "sources"):
        shutil.rmtree(directory / "checkpoint" / "main" / log)
    (directory / "batches-main.jsonl").write_text("")
    for path in (*(directory / "output").rglob("0*.jsonl"), *(directory / "output").rglob(".penstock-reached*")):
        path.unlink()
    assert counts(run_app("counter", **options)) == fine(2)


def test_a_run_that_is_moved_while_it_is_on_says_so(run_app, tmp_path):
    write(tmp_path / "in" / "a.jsonl", *map(str, range(5)))
    options = {"sources": {"Words": f"jsonl:{tmp_path / 'in'}?max_files=1"}, "name": "moving", "until_idle": False}
    here, there = tmp_path / "runs" / "moving", tmp_path / "elsewhere"

    def move():
        while not list((here / "output").glob("*/0*.jsonl")):
            time.sleep(0.05)
        here.rename(there)
        write(tmp_path / "in" / "b.jsonl", *map(str, range(5, 10)))

    mover = threading.Thread(target=move)
    mover.start()
    with pytest.raises((RunFailedError, SinkError, OSError)):
        run_app("passing", duration=60.0, **options)
    mover.join()
    shutil.rmtree(here, ignore_errors=True)
    there.rename(here)
    result = run_app("passing", **{**options, "until_idle": True})
    assert counts(result) == fine(10)
    assert sorted(int(word.text) for word in result.output("Out")) == list(range(10))


def test_a_discarding_that_was_cut_short_is_gone_on_with(run_app, finished, tmp_path, monkeypatch):
    """Whatever the removal had reached when it was killed, and whichever sinks had been told."""
    directory, options = finished
    write(tmp_path / "in" / "3.jsonl", "new")
    original, limit = Path.unlink, [0]

    def unlink(self, missing_ok=False):
        if str(self).startswith(str(directory)):
            if limit[0] == 0:
                raise KeyboardInterrupt("killed here")
            limit[0] -= 1
        original(self, missing_ok=missing_ok)

    def prepared(fresh):
        """What a start does before Spark."""
        app, reference = load_app(f"{APPS}:passing")
        given = RunOptions(runs=tmp_path / "runs", fresh=fresh, **options)
        binding = Binding(app, given, reference)
        try:
            binding.claim()
        finally:
            binding.recording.release()

    for kills in range(6):
        limit[0] = kills
        for number in range(8):
            (directory / f"left-{number}.jsonl").touch()
        monkeypatch.setattr(Path, "unlink", unlink)
        with pytest.raises(KeyboardInterrupt):
            prepared(fresh=True)
        monkeypatch.undo()
        prepared(fresh=False)
        write(directory / "output" / "Out" / "0-main-left.jsonl", "left")
    assert counts(run_app("passing", fresh=True, **options)) == fine(7)


def test_one_directory_is_claimed_by_one_run(tmp_path):
    for trial in range(60):
        directory = tmp_path / str(trial)
        sinks = [DirectorySink(SinkFiles("Out", "jsonl", str(directory))) for _ in range(2)]
        barrier = threading.Barrier(2)

        def claim(number, sinks=sinks, barrier=barrier):
            barrier.wait()
            try:
                sinks[number].claim(f"run-{number}", ())
            except SinkError:
                return 0
            return 1

        with ThreadPoolExecutor(2) as pool:
            assert sum(pool.map(claim, range(2))) == 1


@pytest.mark.parametrize("scheme", ["parquet", "sqlite", "jsonl"])
def test_a_sink_that_was_changed_with_a_batch_to_deliver_is_refused(run_app, tmp_path, monkeypatch, scheme):
    write(tmp_path / "in" / "a.jsonl", "a", "b")
    options = {"sources": {"Words": f"jsonl:{tmp_path / 'in'}"}, "name": "changed"}

    def killed(self, record, *, again=False):
        raise RuntimeError("killed here")

    monkeypatch.setattr(Ledger, "deliver", killed)
    with pytest.raises(RunFailedError, match="killed here"):
        run_app("passing", **options)
    monkeypatch.undo()
    with pytest.raises(SinkError, match="Sink Out was of another kind, or in another place.*start once with the old one"):
        run_app("passing", sinks={"Out": f"{scheme}:{tmp_path / 'elsewhere'}"}, **options)
    assert len(run_app("passing", **options).output("Out")) == 2
    assert counts(run_app("passing", sinks={"Out": f"{scheme}:{tmp_path / 'elsewhere'}"}, **options)) == fine(2)


def test_a_clock_that_was_wrong_for_a_while_stops_no_hop(run_app, tmp_path):
    write(tmp_path / "in" / "a.jsonl", "a", "b")
    options = {"sources": {"Words": f"jsonl:{tmp_path / 'in'}"}, "groups": {"Counter": "second"}, "name": "clock"}
    app = Path(__file__).parent / "apps_words.py"
    assert counts(run_app("app", file=app, **options)) == fine(2)
    for path in (tmp_path / "runs" / "clock" / "hops").rglob("*.parquet"):
        os.utime(path, (time.time() + 90 * 86400,) * 2)
    write(tmp_path / "in" / "b.jsonl", "a", "c")
    assert counts(run_app("app", file=app, **options)) == fine(4)


DYING = """
import os
from penstock import App, Event
class Word(Event):
    text: str
app = App("dying")
words, out = app.source("Words", Word), app.stream("Out", Word)
app.sink("Out", out)
@app.element(words, emits=out)
def die(word):
    os._exit(3)
"""


def test_a_worker_that_dies_is_a_sentence(run_app, tmp_path):
    (tmp_path / "dying.py").write_text(DYING)
    write(tmp_path / "in" / "a.jsonl", "a")
    with pytest.raises(RunFailedError, match="a Python worker died .*Nothing is lost"):
        run_app("app", file=tmp_path / "dying.py", sources={"Words": f"jsonl:{tmp_path / 'in'}"})


# --- what ends a run ------------------------------------------------------------------------------------


def test_a_stopped_run_reports_what_is_queued_as_queued(tmp_path):
    write(tmp_path / "in" / "a.jsonl", *map(str, range(3000)))
    for number in range(20):
        shutil.copy(tmp_path / "in" / "a.jsonl", tmp_path / "in" / f"b{number}.jsonl")
    command = [
        sys.executable,
        "-m",
        "penstock",
        "run",
        f"{APPS}:passing",
        "--master",
        "local[2]",
        "--duration",
        "9 s",
        "--json",
        "--source",
        f"Words=jsonl:{tmp_path / 'in'}?max_files=1",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120)
    report = json.loads(done.stdout)["counts"]
    assert (report["lost"], report["duplicated"]) == (0, 0)
    assert report["accepted"] == 63_000 == report["processed"] + report["queued"]


def bids(path, number, *events):
    rows = [{"item": item, "price": price, "at": datetime.fromtimestamp(second, UTC)} for item, price, second in events]
    path.mkdir(exist_ok=True)
    schema = pa.schema([("item", pa.string()), ("price", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])
    pq.write_table(pa.Table.from_pylist(rows, schema), path / f"{number}.parquet")
    os.utime(path / f"{number}.parquet", (1_700_000_000 + number,) * 2)


def test_a_run_that_is_idle_has_run_the_batches_that_close_windows(run_app, tmp_path):
    """Two aggregates joined: their rows come in batches without data, one after the other."""
    for number in range(4):
        bids(tmp_path / "in", number, *((f"i{n % 3}", n, 1_000 + 10 * number + n) for n in range(6)))
    result = run_app("joined", sources={"Bids": f"parquet:{tmp_path / 'in'}?max_files=1"})
    found = sorted((row.item, row.bids, row.low) for row in result.output("Out"))
    assert found == sorted((f"i{n}", 2, n) for n in range(3) for _ in range(4))


def test_what_spark_drops_as_late_is_counted(run_app, tmp_path):
    bids(tmp_path / "in", 0, ("a", 1, 1_000), ("a", 1, 1_100))
    bids(tmp_path / "in", 1, ("a", 1, 1_200))
    bids(tmp_path / "in", 2, ("late", 1, 1_001), ("late too", 1, 1_002), ("a", 1, 1_300))
    result = run_app("closing", sources={"Bids": f"parquet:{tmp_path / 'in'}?max_files=1"})
    assert result.report["counts"]["late"] == 2
    assert {row.item for row in result.output("Out")} == {"a"}
