"""What a run leaves is read back as it was written; what another version has left is refused in a sentence."""

import dataclasses
import errno
import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from penstock import App, Event
from penstock.app.description import Description
from penstock.app.loader import AppReference
from penstock.engine import RunOptions
from penstock.engine.running.binding import Binding
from penstock.engine.running.recording import Recording
from penstock.errors import ConfigurationError, IncompatibleStateError, SourceError
from penstock.runs.files import JOURNALS, MANIFEST, STARTS
from penstock.runs.layout import Layout
from penstock.runs.lines import records_of
from penstock.runs.manifest import FORMAT, Driver, Manifest, Reads, SinkPlace, head_of, is_run, manifest_of, stored_manifest
from penstock.runs.moves import Division, MoveRecord, moves_of, note_move
from penstock.runs.overview import overview, runs_in
from penstock.runs.report import ElementReport, EventCounts, Report, report_of_run
from penstock.runs.starts import Environment, Loaded, Start, last_start, note_start


def manifest(**changes):
    whole = Manifest(
        run="1234",
        application="words",
        mode="micro-batches",
        topology=Description("words", [], [], []),
        state={"Counter": {"kept": "pages"}},
        sources={"Words": "jsonl:in"},
        identities={"Words": None},
        parameters={"top": "3"},
        groups={"Counter": "main"},
        hops={"main": 1},
        reads={"main": Reads(["Words"], [])},
        partitions=2,
        layout=Layout(partitions=2),
        place="/runs/words",
        discarded=["12"],
        orders={"main": ["Words"]},
        places={"Out": SinkPlace("table", {"main": 3})},
        beginnings={"Words": {"offset": 3}},
        driver=Driver("abc", "host", 12, 1.5),
    )
    return msgspec.structs.replace(whole, **changes)


def start(**changes):
    environment, application = (Environment("0.1.0", "4.3.0", "3.11.7", "Linux", 2), Loaded("app.py", "app", {"top": "3"}))
    given = {"time": 1.5, "master": "local[2]", "trigger": 2.0, "resumed": False, **changes}
    return Start(environment=environment, application=application, **given)


def test_what_is_written_is_read_back(tmp_path):
    manifest().write(tmp_path)
    assert manifest_of(tmp_path) == stored_manifest(tmp_path) == manifest()
    assert is_run(tmp_path)
    for number in range(3):
        note_start(tmp_path, start(time=float(number), until_idle="pause", conf={"a": "b"}))
    assert [one.time for one in records_of(tmp_path / STARTS, Start)] == [0.0, 1.0, 2.0]
    assert last_start(tmp_path) == start(time=2.0, until_idle="pause", conf={"a": "b"})
    move = MoveRecord(
        time=1.0,
        before=Division({"Counter": "main"}, 2),
        after=Division({"Counter": "other"}, 3),
        instances=5,
        checksum=7,
        expected_s=1.0,
        took_s=2.0,
    )
    note_move(tmp_path, move)
    assert list(moves_of(tmp_path)) == [move]
    report = Report(
        application="words",
        engine="spark",
        master="local",
        counts=EventCounts(3, 2, 1, 0, [], 0, 0, 0, 0, 1, 0),
        units={},
        streams={"Words": 3},
        elements={"Counter": ElementReport(2, 1, 0, 0, 2, {"mean": 1.0, "p50": None})},
        throughput_events_per_s=None,
        latency_ms={"p50": None},
        batches=1,
        ended=True,
    )
    report.write(tmp_path / "report.json")
    assert report_of_run(tmp_path) == report
    written = json.loads((tmp_path / "report.json").read_text())
    assert written["throughput_events_per_s"] is None  # known to be unknown, and so not left out
    assert "delivery" not in written
    assert overview(tmp_path).trigger_s == 2.0


def test_of_a_run_in_real_time_only_what_is_known_is_written(tmp_path):
    report = Report(
        application="words",
        engine="spark",
        master="local",
        counts=EventCounts(3, 2, 1, 0),
        units={},
        delivery="at least once",
        dead_letter_topics=["words-dead-letters"],
    )
    report.write(tmp_path / "report.json")
    written = json.loads((tmp_path / "report.json").read_text())
    assert sorted(written) == ["application", "counts", "dead_letter_topics", "delivery", "engine", "master", "units"]
    assert sorted(written["counts"]) == ["accepted", "dead_lettered", "processed", "queued"]


def test_nothing_is_there_before_the_first_start(tmp_path):
    assert stored_manifest(tmp_path) is head_of(tmp_path) is None
    assert report_of_run(tmp_path) is last_start(tmp_path) is None
    with pytest.raises(SourceError, match="it has no manifest.json"):
        manifest_of(tmp_path)
    with pytest.raises(SourceError, match="There is no run in"):
        runs_in(tmp_path)


@pytest.mark.parametrize(
    ("content", "whose"),
    [
        (
            {"format": FORMAT + 1, "run": "1234"},
            f"is a run in format {FORMAT + 1}, and this version reads formats 1 and {FORMAT}",
        ),
        ({"run": "1234", "application": "words"}, "is a run of before Penstock's first release"),
    ],
)
def test_another_versions_run_is_neither_resumed_nor_shown(tmp_path, content, whose):
    (tmp_path / MANIFEST).write_text(json.dumps(content))
    with pytest.raises(SourceError, match=f"{whose}.*look at it with that version"):
        manifest_of(tmp_path)
    with pytest.raises(SourceError, match=rf"^{tmp_path} {whose}[^()]*$"):
        overview(tmp_path)
    with pytest.raises(ConfigurationError, match=f"{whose}.*start afresh with --fresh"):
        stored_manifest(tmp_path)
    assert head_of(tmp_path).run == "1234"  # by which --fresh knows what to remove


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": 1, "run": 5}', '{"format": 1, "run": "1234"}'])
def test_a_damaged_manifest_is_named(tmp_path, content):
    (tmp_path / MANIFEST).write_text(content)
    with pytest.raises(SourceError, match=r"manifest.json is damaged .*: put it back as it was"):
        manifest_of(tmp_path)
    with pytest.raises(ConfigurationError, match=r"manifest.json is damaged .* so nothing in its directory is touched"):
        stored_manifest(tmp_path)


def test_a_torn_line_is_left_out(tmp_path):
    note_start(tmp_path, start())
    with (tmp_path / "starts.jsonl").open("ab") as file:
        file.write(b'{"time": 2.0, "mas')
    assert [one.time for one in records_of(tmp_path / STARTS, Start)] == [1.5]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"archives": [Path("env.tar.gz")]}, {"archives": ["env.tar.gz"]}),
        ({"duration": np.float64(2), "partitions": np.int64(3)}, {"duration": 2.0, "partitions": 3}),
        ({"until_idle": 1, "fresh": 1, "retain": 1000.0}, {"until_idle": True, "fresh": True, "retain": 1000}),
    ],
)
def test_options_in_types_of_the_callers_own_are_kept_as_what_they_amount_to(tmp_path, given, kept):
    note_start(tmp_path, start(**given))
    assert last_start(tmp_path) == start(**kept)


@pytest.mark.parametrize("fresh", [False, True])
def test_a_manifest_of_something_else_is_never_touched(tmp_path, fresh):
    (tmp_path / MANIFEST).write_text('{"name": "a web application", "icons": []}')
    (tmp_path / "report.json").write_text("theirs")
    recording = Recording(tmp_path)
    with pytest.raises(ConfigurationError, match="is not the directory of a run: its manifest.json is of something else"):
        recording.prepare(manifest(), fresh=fresh, inspect=lambda *_: None)
    recording.release()
    assert (tmp_path / "report.json").read_text() == "theirs"
    assert json.loads((tmp_path / MANIFEST).read_text())["name"] == "a web application"


def test_what_could_not_be_written_to_the_manifest_is_written_by_the_next_who_needs_it(tmp_path, monkeypatch):
    """As groups commit one after the other while the disk is full, each the state of today's code."""
    recording = Recording(tmp_path)
    recording.prepare(manifest(), fresh=False, inspect=lambda *_: None)

    def fail(*given):
        raise OSError(errno.ENOSPC, "No space left on device")

    for change in (lambda: recording.keep(ended=True), lambda: recording.fix_order("other", ["Numbers"])):
        with monkeypatch.context() as full:
            full.setattr(Manifest, "write", fail)
            with pytest.raises(OSError, match="No space left"):
                change()
            assert not recording.ended
            assert "other" not in recording.manifest.orders
    recording.fix_order("other", ["Numbers"])
    assert stored_manifest(tmp_path).orders == {"other": ["Numbers"], "main": ["Words"]}
    recording.release()


def two_streams(first, second):
    """A group that reads two streams of another, declared in an order."""
    app = App("ordered")
    numbers = app.source("Numbers", Number, sample=Number)
    streams = {name: app.stream(name, Number) for name in (first, second)}
    both = app.stream("Both", Number)
    app.sink("Out", both)
    app.element(numbers, emits=list(streams.values()), name="One")(lambda number: None)
    app.element(list(streams.values()), emits=both, name="Two")(lambda number: None)
    return app


class Number(Event):
    number: int


def test_a_group_reads_its_streams_in_the_order_in_which_spark_knows_them(tmp_path):
    for declared in (("As", "Bs"), ("Bs", "As")):
        options = RunOptions(
            runs=tmp_path, groups={"Two": "after"}, sources={"Numbers": "generator:constant?rate=1"}, partitions=2, quiet=True
        )
        binding = Binding(two_streams(*declared), options, AppReference("none", "app"))
        binding.claim()
        after = binding.open(next(group for group in binding.groups if group.name == "after"))
        assert [bound.source.name for bound in after.sources] == list(after.order) == ["As", "Bs"]
        assert after.places == (0, 1)
        binding.recording.fix_order("after", [bound.source.name for bound in after.sources])
        after.ledger.close()
        with pytest.raises(IncompatibleStateError, match="has read As, Bs in this order"):
            binding.recording.fix_order("after", ["Bs", "As"])
        binding.recording.release()


def test_a_run_of_format_1_is_read_and_goes_on_in_this_one(tmp_path):
    manifest(format=1).write(tmp_path)
    assert manifest_of(tmp_path) == manifest(format=1)
    assert stored_manifest(tmp_path) == manifest(format=FORMAT), "older versions, which know no partitioner, refuse it then"


def test_a_start_keeps_every_option():
    """But where a run looks for its groups' sinks and sources, which are kept without secrets."""
    known = {field.name for field in msgspec.structs.fields(Start)}
    assert {field.name for field in dataclasses.fields(RunOptions)} <= known
    assert JOURNALS


def test_a_run_keeps_its_partitioner_until_it_gets_other_partitions():
    older = msgspec.json.decode(b'{"partitions": 2}', type=Layout)
    assert Layout.beginning({}, 2).partitioner == "blocks"
    kept = [older, older.asked({}, None), older.asked({}, 2), older.asked({"Counter": "other"}, None)]
    assert [layout.partitioner for layout in kept] == ["remainder"] * 4
    assert older.asked({}, 3).partitioner == "blocks"
