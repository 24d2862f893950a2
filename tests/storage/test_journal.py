"""Journals: what is appended stays, and of two drivers only the later one is relied on. On a disk; in stores, see
test_stores.
"""

import errno
import fcntl
import pathlib
import resource
import signal
import threading
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import RunLockedError
from penstock.storage import alone, journal


def summed(lines):
    return b"%d" % sum(int(line) for line in lines)


def opened(path, keep=10**6):
    return journal.opened(path, keep, summed)


def test_lines_come_back_in_order(places):
    first = opened(places / "journal")
    for number in range(3):
        first.append(b"%d" % number)
    assert list(first.lines()) == [b"0", b"1", b"2"]
    first.close()
    second = opened(places / "journal")
    second.append(b"3")
    assert list(journal.lines_of(places / "journal")) == [b"0", b"1", b"2", b"3"]


def test_who_opens_it_fences_off_the_one_before(places):
    first = opened(places / "journal")
    first.append(b"1")
    second = opened(places / "journal")
    with pytest.raises(RunLockedError, match="Another driver has taken over"):
        first.append(b"2")
    second.append(b"3")
    with pytest.raises(RunLockedError):
        first.append(b"4")
    assert list(journal.lines_of(places / "journal")) == [b"1", b"3"]


def test_of_many_who_open_it_at_once_the_lines_of_one_count(places):
    begun = opened(places / "journal")
    begun.append(b"0")
    kept, barrier = [], threading.Barrier(8)

    def drive(number):
        barrier.wait()
        try:
            own = opened(places / "journal")
            for each in range(20):
                line = b"%d" % (number * 100 + each)
                own.append(line)
                kept.append(line)
        except RunLockedError:
            pass

    drivers = [threading.Thread(target=drive, args=(number,)) for number in range(1, 9)]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join()
    found = list(journal.lines_of(places / "journal"))
    assert found[0] == b"0"
    assert len(set(found)) == len(found)
    assert set(kept) <= set(found)  # a line on which its driver did not rely may be there, too: the next one finds it


def test_it_is_shortened_and_its_sum_stays(places):
    own = opened(places / "journal", keep=4)
    for number in range(200):
        own.append(b"%d" % number)
    lines = list(journal.lines_of(places / "journal"))
    assert sum(map(int, lines)) == sum(range(200))
    again = opened(places / "journal", keep=4)
    again.append(b"200")
    lines = list(again.lines())
    assert sum(map(int, lines)) == sum(range(201))
    assert lines[-4:] == [b"197", b"198", b"199", b"200"]
    assert len(lines) <= 100


def test_a_reader_sees_each_line_once_while_it_is_written(places):
    path, stop = places / "journal", threading.Event()
    own = opened(path)
    own.append(b"0")

    def write():
        for number in range(1, 200):
            own.append(b"%d" % number)
        stop.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not stop.is_set():
        lines = list(map(int, journal.lines_of(path)))
        assert lines == list(range(len(lines)))
    writer.join()


def test_a_driver_that_wakes_late_is_fenced_off_however_often_files_were_put_together(places):
    first = opened(places / "journal", keep=4)
    first.append(b"1")
    second = opened(places / "journal", keep=4)
    for number in range(150):
        second.append(b"%d" % number)
    with pytest.raises(RunLockedError):
        first.append(b"2")
    journal.clear(places / "journal")  # as --fresh does
    assert list(journal.lines_of(places / "journal")) == []
    third = opened(places / "journal", keep=4)
    for late in (first, second):
        with pytest.raises(RunLockedError):
            late.append(b"3")
    third.append(b"4")
    assert list(journal.lines_of(places / "journal")) == [b"4"]


def test_lines_may_be_added_by_anybody(places):
    journal.add(places / "notes", b"1")
    journal.add(places / "notes", b"2\n3")
    assert list(journal.lines_of(places / "notes")) == [b"1", b"2", b"3"]
    journal.remove(places / "notes")
    assert list(journal.lines_of(places / "notes")) == []
    journal.begin(places / "notes", b"4")
    assert list(journal.lines_of(places / "notes")) == [b"4"]
    assert list(opened(places / "notes").lines()) == [b"4"]


def test_a_torn_line_is_no_line(tmp_path):
    path = tmp_path / "journal"
    own = opened(path)
    own.append(b"1")
    with path.open("ab") as file:
        file.write(b"2")
    assert list(journal.lines_of(path)) == [b"1"]
    journal.add(path, b"3")
    assert list(journal.lines_of(path)) == [b"1", b"2", b"3"]


def test_one_that_was_moved_away_is_not_written_to(tmp_path):
    path = tmp_path / "journal"
    own = opened(path)
    own.append(b"1")
    path.rename(tmp_path / "elsewhere")
    with pytest.raises(RunLockedError, match="was moved"):
        own.append(b"2")
    assert list(journal.lines_of(tmp_path / "elsewhere")) == [b"1"]


STEPS = ("rename", "unlink")


@settings(max_examples=200, deadline=None)
@given(deaths=st.lists(st.sampled_from([None, *STEPS]), max_size=8), data=st.data())
def test_a_driver_may_die_at_any_step_of_taking_over(tmp_path_factory, deaths, data):
    """Whatever was relied on is there, once, whoever died while opening or shortening."""
    path, relied = tmp_path_factory.mktemp("journal") / "journal", []
    for start, death in enumerate(deaths):
        with pytest.MonkeyPatch.context() as patched:
            if death:
                real, after = getattr(pathlib.Path, death), data.draw(st.booleans())

                def dies(*given, real=real, after=after, **named):
                    if after:
                        real(*given, **named)
                    raise KeyboardInterrupt

                patched.setattr(pathlib.Path, death, dies)
            try:
                own = opened(path, keep=3)
            except KeyboardInterrupt:
                continue
            for number in range(data.draw(st.integers(0, 9))):
                line = b"%d" % (start * 1000 + number)
                try:
                    own.append(line)
                except KeyboardInterrupt:  # in shortening, when the line was relied on already
                    relied.append(line)
                    break
                relied.append(line)
    assert sum(map(int, journal.lines_of(path))) == sum(map(int, relied))


def test_a_driver_that_was_paused_while_it_opened_a_journal_is_waited_for_in_vain(tmp_path, monkeypatch):
    monkeypatch.setattr(alone, "PATIENCE_S", 0.1)
    with (tmp_path / ".journal.lock").open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(RunLockedError, match="may be paused"):
            opened(tmp_path / "journal")
    opened(tmp_path / "journal").append(b"1")


def test_a_run_is_not_discarded_while_a_paused_driver_opens_its_journal(tmp_path, monkeypatch):
    """Once woken, it would put a file of its own in the place of the journal that was begun anew."""
    monkeypatch.setattr(alone, "PATIENCE_S", 0.1)
    opened(tmp_path / "journal").append(b"1")
    with (tmp_path / ".journal.lock").open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(RunLockedError, match="may be paused"):
            journal.clear(tmp_path / "journal")
        assert list(journal.lines_of(tmp_path / "journal")) == [b"1"]
    journal.clear(tmp_path / "journal")
    assert list(tmp_path.iterdir()) == []


def test_who_waits_for_a_lock_that_is_removed_gets_the_new_one(tmp_path):
    path, holds, go_on = tmp_path / "journal", threading.Event(), threading.Event()

    def wait():
        with alone.alone(path):
            holds.set()
            go_on.wait(10)

    waiting = threading.Thread(target=wait)
    with alone.alone(path):
        waiting.start()
        assert not holds.wait(0.1)
        alone.lock_of(path).unlink()
    assert holds.wait(10)
    with alone.lock_of(path).open("ab") as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    go_on.set()
    waiting.join()


def test_on_a_disk_a_line_is_synced_where_it_must_be_and_nowhere_else(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(journal.os, "fsync", synced.append)
    for must in (True, False):
        path = tmp_path / f"{must}"
        own = journal.opened(path, 10, summed, synced=must)
        synced.clear()
        own.append(b"1")
        assert bool(synced) == must
        own.close()


def test_a_journal_is_shortened_once_it_has_half_more_than_it_keeps(tmp_path):
    own = opened(tmp_path / "journal", keep=4)
    counts = []
    for number in range(12):
        own.append(b"%d" % number)
        counts.append(len(list(own.lines())))
    assert counts == [1, 2, 3, 4, 5, 6, 7, 5, 6, 7, 5, 6]
    assert sum(int(line) for line in own.lines()) == sum(range(12))


@pytest.mark.parametrize("step", ["fsync", "rename"])
def test_a_journal_that_cannot_be_shortened_goes_on(tmp_path, monkeypatch, step):
    """As on a disk that is full for a moment."""
    own = opened(tmp_path / "journal", keep=3)
    failing = []

    def fail(*_):
        failing.append(1)
        raise OSError(errno.ENOSPC, "No space left on device")

    for number in range(40):
        with monkeypatch.context() as patch:
            if 10 <= number < 20 and step == "rename":
                patch.setattr(pathlib.Path, "rename", fail)
            if 10 <= number < 20 and step == "fsync":
                patch.setattr(journal.durable, "sync", fail)
            own.append(b"%d" % number)
    assert failing
    assert sum(map(int, journal.lines_of(tmp_path / "journal"))) == sum(range(40))
    assert len(list(journal.lines_of(tmp_path / "journal"))) < 15
    assert [path.name for path in tmp_path.iterdir() if "draft" in path.name] == []


@contextmanager
def space_for(size):
    """Let files grow to a size, as if the disk were full then."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_nothing_is_left_of_a_line_that_did_not_fit(tmp_path):
    written = opened(tmp_path / "journal")
    written.append(b"first")
    with space_for(10), pytest.raises(OSError, match="File too large"):
        written.append(b"a line that is too long")
    assert (tmp_path / "journal").read_bytes() == b"first\n"
    written.append(b"second")
    written.close()
    assert list(journal.lines_of(tmp_path / "journal")) == [b"first", b"second"]
