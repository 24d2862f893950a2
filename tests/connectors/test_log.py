"""The embedded log: durable, all or nothing, once for each id."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import Event
from penstock.adapter import EventLog
from penstock.adapter.body import BodyReader
from penstock.app.stream import Sink, Source, Stream
from penstock.connectors.declaration import SourceContext
from penstock.connectors.log import CONFLICT, Parcel, Request
from penstock.connectors.log import log as log_module
from penstock.connectors.log.arrays import JsonArray
from penstock.connectors.registry import bind_sinks, bind_source
from penstock.errors import SinkError, SourceError
from penstock.testing.contracts import stage


def payloads(log, stream="S"):
    return [record.payload for record in log.read(stream, log.start(stream), log.end(stream))]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.binary(max_size=20), max_size=10), max_size=8))
def test_what_is_appended_is_read_in_order(tmp_path_factory, batches):
    log = EventLog(tmp_path_factory.mktemp("log"))
    for batch in batches:
        assert log.append("S", batch) == len(batch)
    every = [payload for batch in batches for payload in batch]
    assert payloads(log) == every
    assert log.end("S") == len(every)
    assert [record.offset for record in log.read("S", 0, len(every))] == list(range(len(every)))


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.booleans(), st.lists(st.integers(), max_size=9)), max_size=9), st.data())
def test_arrays_are_read_as_their_elements(tmp_path_factory, batches, data):
    stream = EventLog(tmp_path_factory.mktemp("log")).stream("S")
    entries = []
    for together, numbers in batches:
        each = [str(number).encode() for number in numbers]
        entries.append(Parcel(JsonArray(b" [" + b" , ".join(each) + b"]", len(each)) if together else each))
    with mock.patch.object(log_module, "BLOCK_EVENTS", data.draw(st.sampled_from([1, 5, 2_000]))):
        assert stream.append(entries) == [len(numbers) for _, numbers in batches]
    every = [number for _, numbers in batches for number in numbers]
    start = data.draw(st.integers(0, len(every)))
    assert [int(record.payload) for record in stream.read(start, len(every))] == every[start:]


def test_of_an_array_only_what_is_new_is_appended(tmp_path):
    log = EventLog(tmp_path)
    log.append("S", [b"2"], ids=["two"])
    assert log.stream("S").append([Parcel(JsonArray(b"[1, 2, 3]", 3), ids=["one", "two", "three"])]) == [2]
    assert payloads(log) == [b"2", b"1", b"3"]


def test_an_array_that_nests_as_deep_as_can_be_is_read_from_anywhere(tmp_path):
    class Free(Event):
        number: int

    def nested(depth):
        return b'[{"number": 1, "more": ' + b"[" * depth + b"]" * depth + b'}, {"number": 2}]'

    def read(frames):
        return read(frames - 1) if frames else stream.read(0, 9)

    reader, depth = BodyReader(Free, 10_000), 0
    while isinstance(reader.read(nested(depth + 1)).payloads, JsonArray):
        depth += 1
    assert not reader.read(nested(depth + 1)).rejected
    stream = EventLog(tmp_path).stream("S")
    stream.append([Parcel(reader.read(nested(depth)).payloads)])
    assert b"".join(record.payload for record in read(500)).count(b"[") == depth


def test_streams_are_apart(tmp_path):
    log = EventLog(tmp_path)
    log.append("A", [b"1"])
    log.append("B", [b"2", b"3"])
    assert (payloads(log, "A"), payloads(log, "B"), log.end("C")) == ([b"1"], [b"2", b"3"], 0)


def test_an_event_with_a_known_id_is_not_appended_again(tmp_path):
    log = EventLog(tmp_path)
    assert log.append("S", [b"a", b"b"], ids=["1", "2"]) == 2
    assert log.append("S", [b"b", b"c", b"c"], ids=["2", "3", "3"]) == 1
    assert payloads(log) == [b"a", b"b", b"c"]


def test_an_append_that_fails_leaves_nothing(tmp_path):
    log = EventLog(tmp_path)
    with pytest.raises(ValueError, match="zip"):
        log.append("S", [b"a", b"b"], ids=["1"])
    assert log.end("S") == 0
    assert log.append("S", [b"a"], ids=["1"]) == 1


def test_trimmed_events_are_gone_and_said_to_be(tmp_path):
    log = EventLog(tmp_path)
    log.append("S", [b"a", b"b", b"c"])
    log.trim("S", 2)
    assert payloads(log) == [b"c"]
    with pytest.raises(SourceError, match="trimmed"):
        log.read("S", 0, 3)


def test_nothing_is_trimmed_that_a_reader_has_yet_to_pass(tmp_path):
    log = EventLog(tmp_path)
    log.append("S", [b"a", b"b", b"c"], ids=["1", "2", "3"])
    stream = log.stream("S")
    stream.note_reader("slow", 1)
    stream.note_reader("fast", 3)
    later = time.time() + 10
    stream.expire(later, 0)
    assert payloads(log) == [b"b", b"c"]
    assert log.append("S", [b"a"], ids=["1"]) == 0  # its id outlives it
    stream.note_reader("slow", 3)
    stream.expire(later, later)
    assert payloads(log) == []
    assert (log.end("S"), log.append("S", [b"a"], ids=["1"])) == (3, 1)


def test_events_that_are_young_are_kept(tmp_path):
    log = EventLog(tmp_path)
    log.append("S", [b"a"])
    log.stream("S").expire(time.time() - 60, 0)
    assert payloads(log) == [b"a"]


def test_two_steps_append_as_one_does(tmp_path):
    stream = EventLog(tmp_path).stream("S")
    named = Request("", "k", 1, range(1))
    finish = stream.begin([Parcel([b"a"], request=named), Parcel([b"b", b"c"])])
    assert EventLog(tmp_path).end("S") == 0  # nobody sees it before it is on disk
    assert finish() == [1, 2]
    assert stream.begin([Parcel([b"a"], request=named), Parcel([b"d"], request=named)])() == [0, CONFLICT]
    other = EventLog(tmp_path).stream("S")
    other_finish = other.begin([Parcel([b"e"])])
    waits = stream.begin([Parcel([b"f"])])  # another connection is writing: all of it is left for the second step
    other_finish()
    assert waits() == [1]
    assert [record.payload for record in stream.read(0, 9)] == [b"a", b"b", b"c", b"e", b"f"]


def test_large_events_lie_in_blocks_of_their_own(tmp_path):
    log = EventLog(tmp_path)
    events = [bytes([number]) * size for number, size in enumerate((10, 2_000_000, 10, 600_000, 600_000, 3))]
    assert log.append("S", events) == 6
    assert payloads(log) == events
    assert [record.payload for record in log.read("S", 2, 4)] == events[2:4]


def test_a_log_of_another_layout_is_refused(tmp_path):
    log = EventLog(tmp_path)
    log.append("S", [b"a"])
    log.close()
    connection = sqlite3.connect(tmp_path / "S.log.sqlite")
    connection.execute("PRAGMA user_version = 1")
    connection.close()
    with pytest.raises(SinkError, match="has layout 1"):
        EventLog(tmp_path).end("S")


def test_several_readers_follow_while_one_writes(tmp_path):
    writer = EventLog(tmp_path)
    readers = [EventLog(tmp_path, create=False) for _ in range(3)]
    for number in range(20):
        writer.append("S", [str(number).encode()])
        assert all(reader.end("S") == number + 1 for reader in readers)


def test_a_log_that_is_not_there_or_cannot_be_written(tmp_path):
    with pytest.raises(SourceError, match="no event log"):
        EventLog(tmp_path / "none", create=False)
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkError, match="cannot be opened"):
        EventLog(tmp_path / "file" / "log")


WRITER = """
import sys
from penstock.adapter import EventLog
from penstock.connectors.log import Parcel, Request
log = EventLog(sys.argv[1])
number = log.end("S")
while True:
    log.append("S", [f"{number + n}".encode() for n in range(7)])
    number += 7
    print(number, flush=True)
"""


def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path):
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        first = process.stdout.readline()  # a busy machine takes seconds to come so far
        time.sleep(0.5)
        os.kill(process.pid, signal.SIGKILL)
        acknowledged = [first, *(line for line in process.communicate()[0].splitlines() if line.strip())]
        log = EventLog(tmp_path)
        held = payloads(log)
        assert held == [str(number).encode() for number in range(len(held))]
        assert len(held) >= int(acknowledged[-1])
        assert len(held) % 7 == 0
        log.close()


def test_results_of_a_run_that_does_not_own_the_stream_are_not_appended(tmp_path):
    stream = EventLog(tmp_path).stream("Results")
    assert stream.own("one", ())
    assert stream.deliver("one", Parcel([b"1"]), "main", 1)
    assert not stream.deliver("another", Parcel([b"2"]), "main", 1)
    assert stream.deliver("one", Parcel([b"1"]), "main", 1)  # repeated: it was appended before
    assert stream.bounds() == (0, 1)


def test_the_last_event_of_a_key_is_found_with_its_offset(tmp_path):
    stream = EventLog(tmp_path).stream("Results")
    stream.append([Parcel([b"0"]), Parcel([b"1", b"2", b"3"], result_keys=["a", "b", "a"])])
    stream.append([Parcel([b"1", b"4"], ids=["one", "four"]), Parcel([b"5"], result_keys=["b"])])
    found = {key: stream.latest(key) for key in ("a", "b", "c")}
    assert {key: record and (record.offset, record.payload) for key, record in found.items()} == {
        "a": (3, b"3"),
        "b": (6, b"5"),
        "c": None,
    }


def test_a_new_log_is_its_owners_alone_and_one_that_is_there_keeps_its_mode(tmp_path):
    EventLog(tmp_path / "new").append("S", [b"1"])
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    (tmp_path / "old").mkdir(mode=0o755)
    EventLog(tmp_path / "old").append("S", [b"1"])
    assert (tmp_path / "old").stat().st_mode & 0o777 == 0o755


def test_a_stream_of_any_name_is_a_file_of_the_log(tmp_path):
    log = EventLog(tmp_path)
    for name in ("a/b", "..", "S%2F", "ü?"):
        log.append(name, [name.encode()])
    assert {name: payloads(log, name) for name in ("a/b", "..", "S%2F", "ü?")} == {
        name: [name.encode()] for name in ("a/b", "..", "S%2F", "ü?")
    }
    assert {path.parent for path in tmp_path.rglob("*")} == {tmp_path}
    assert sorted(log.streams()) == sorted(("a/b", "..", "S%2F", "ü?"))


class Sum(Event):
    name: str
    total: int


def test_a_source_makes_no_log_of_a_directory_that_is_not_there(tmp_path):
    with pytest.raises(SourceError):
        bind_source(Source("S", Sum), f"log:{tmp_path / 'gone'}", SourceContext()).beginning(0)
    assert not (tmp_path / "gone").exists()


def test_results_are_found_by_their_key_once_they_are_delivered(tmp_path):
    sink = bind_sinks([Sink("Out", Stream("Sums", Sum), f"log:{tmp_path / 'log'}", ("name",))], {}, tmp_path)["Out"]
    sink.claim("r1", ())
    for batch, sums in enumerate(([Sum("a", 1), Sum("b", 2), Sum("a", 3)], [Sum("b", 4)])):
        sink.deliver("main", batch, stage(sink, sums))
    stream = EventLog(tmp_path / "log").stream("Sums")
    assert {key: stream.latest(key).payload for key in ("a", "b")} == {
        "a": b'{"name":"a","total":3}',
        "b": b'{"name":"b","total":4}',
    }


@pytest.mark.parametrize("how", ["removed", "replaced", "directory"])
def test_a_log_that_is_gone_takes_nothing_more(tmp_path, how):
    """Its file is open, so that SQLite would go on writing where nobody reads."""
    log = EventLog(tmp_path / "spool")
    log.append("S", [b"1"])
    [file] = (
        (tmp_path / "spool").glob("*.sqlite")
        if list((tmp_path / "spool").glob("*.sqlite"))
        else [path for path in (tmp_path / "spool").iterdir() if not path.name.endswith(("-wal", "-shm")) and path.is_file()]
    )
    kept = file.rename(tmp_path / "kept")
    if how == "replaced":
        EventLog(tmp_path / "spool").append("S", [b"another's"])
    if how == "directory":
        for other in (tmp_path / "spool").iterdir():
            other.unlink()
        (tmp_path / "spool").rmdir()
    for _ in range(2):
        with pytest.raises(SinkError, match="was removed from .*, or replaced while it was in use"):
            log.append("S", [b"2"])
    if how == "removed":
        kept.rename(file)
        assert log.append("S", [b"2"])
        assert payloads(log) == [b"1", b"2"]


def test_events_are_kept_for_as_long_as_one_likes(tmp_path):
    log = EventLog(tmp_path)
    log.append("S", [b"1"])
    log.stream("S").expire(-1e15, -1e15)
    assert payloads(log) == [b"1"]
