"""What elements print and log is kept with the run, and who said it; calls are awaited on Spark as in the driver."""

import io
import json
import logging
import os
import re
import sys

import msgspec
import pytest

from penstock.engine import RunOptions, run
from penstock.engine.running.element_log import KEPT, ElementLog
from penstock.errors import ConfigurationError
from penstock.runtime.log import KEPT as KEPT_OF_A_TASK
from penstock.runtime.log import AtWork, Line, Lines, listen, working
from penstock.runtime.tally import Tally

LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} (\w+) +main/(\d+)\.\d (.*)")


@pytest.mark.spark
@pytest.mark.parametrize("level", ["info", "debug"])
def test_what_elements_say_is_kept_with_element_key_and_micro_batch(spark, tmp_path, level):
    from apps_calls import app

    (tmp_path / "in").mkdir()
    for batch in range(2):
        lines = (json.dumps({"number": 10 * batch + place, "key": "ab"[place % 2]}) for place in range(6))
        (tmp_path / "in" / f"{batch}.jsonl").write_text("\n".join(lines))
        os.utime(tmp_path / "in" / f"{batch}.jsonl", (1e9 + batch, 1e9 + batch))  # the order in which they are read
    options = RunOptions(
        runs=tmp_path,
        sources={"Calls": f"jsonl:{tmp_path / 'in'}?max_files=1"},
        until_idle=True,
        quiet=True,
        log_level=level,
        spark=spark.get(),
    )
    result = run(app, options)
    counts = result.report["counts"]
    assert (counts["processed"], counts["dead_letters"], counts["lost"]) == (10, 2, 0)
    answers = sorted((answer.number, answer.key, answer.nth) for answer in result.output("Output"))
    assert answers == [
        (0, "a", 1),
        (1, "b", 1),
        (2, "a", 2),
        (5, "b", 2),
        (10, "a", 3),
        (11, "b", 3),
        (12, "a", 4),
        (13, "b", 4),
        (14, "a", 5),
        (15, "b", 5),
    ]

    said = [LINE.fullmatch(line).groups() for line in (tmp_path / "calls" / "elements.log").read_text().splitlines()]
    for batch in ("0", "1"):
        numbers = [10 * int(batch) + place for place in range(6)]
        texts = sorted(text for level, number, text in said if number == batch and level == "PRINT")
        in_a_row = [f"Answering['{key}']: in a row {nth}" for key, nth in (("a", 2), ("b", 2)) if batch == "0"]
        in_a_row += [f"Answering['{key}']: in a row {nth}" for key, nth in (("a", 5), ("b", 5)) if batch == "1"]
        assert texts == sorted([f"ask: asking {number}" for number in numbers] + in_a_row)
        logged = sorted(text for level, number, text in said if number == batch and level == "INFO")
        heard = [number for number in numbers if number != 3]
        assert logged == sorted(f"Answering['{'ab'[number % 2]}']: shop: call {number}" for number in heard)
    assert any(each[0] == "DEBUG" for each in said) == (level == "debug")


def test_a_level_that_is_none_is_refused():
    with pytest.raises(ConfigurationError, match="log_level='loud': choose debug, info, warning, error"):
        RunOptions(log_level="loud")


def test_a_task_keeps_so_much_and_counts_the_rest():
    lines = Lines()
    with working(AtWork(lines, "Chatty")) as work:
        work.write("short\nbegun")
        work.write(" and ended\n" + "x" * KEPT_OF_A_TASK)
        work.write("\nno room\nhere, either")
    assert [line.text for line in lines.lines[:2]] == ["short", "begun and ended"]
    assert sum(len(line.text) + 1 for line in lines.lines) <= KEPT_OF_A_TASK + 1
    assert lines.left_out == 2
    keys = Lines()
    with working(AtWork(keys, "Chatty", lambda identity: "k" * 100_000)) as work:
        work.identity = b"1"
        work.write("\n" * 10_000)
    assert len(msgspec.msgpack.encode(keys)) < 4 * KEPT_OF_A_TASK


class FullDisk(io.StringIO):
    def write(self, text):
        raise OSError(28, "No space left on device")

    def flush(self):
        raise OSError(28, "No space left on device")


def test_a_stream_that_cannot_take_it_is_no_events_fault(monkeypatch):
    lines, root = Lines(), logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", logging.WARNING)
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    monkeypatch.setattr(sys, "stdout", FullDisk())
    listen("info")
    with working(AtWork(lines, "Calm")):
        print("kept", flush=True)
    assert [line.text for line in lines.lines] == ["kept"]


def test_what_is_printed_is_never_an_events_fault():
    class Shy:
        def __repr__(self):
            raise RuntimeError("no")

    lines = Lines()
    with working(AtWork(lines, "Odd", lambda identity: Shy())) as work:
        work.identity = b"1"
        work.write("half a \ud83d pair\n\0\n")
    assert [(line.key, line.text) for line in lines.lines] == [
        ("a key that cannot be shown", "half a \\ud83d pair"),
        ("a key that cannot be shown", "\0"),
    ]
    lines.lines.clear()
    with working(AtWork(lines, "Odd", bytes.decode)) as work:
        work.identity = b"a"
        work.write("of a")
        work.identity = b"b"
        work.write("of b\n")
        work.muted = True
        work.write("again\nand without an end")
        work.muted = False
    assert [(line.key, line.text) for line in lines.lines] == [("'a'", "of a"), ("'b'", "of b")]
    assert Tally.read(msgspec.msgpack.encode(Tally(stage=0, partition=0, log=lines))).log == lines


def test_listening_again_hears_nothing_twice(monkeypatch, capsys):
    lines, root = Lines(), logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", logging.WARNING)
    for stream in ("stdout", "stderr"):
        monkeypatch.setattr(sys, stream, getattr(sys, stream))
    for level in ("info", "debug", "info"):
        listen(level)
        sys.stdout = io.StringIO()  # as an application may do in the midst of it
    listen("info")
    with working(AtWork(lines, "Calm")):
        print("once")
        logging.getLogger("shop").info("heard")
        logging.getLogger("shop").debug("too fine")
    print("not at work")
    assert [(line.level, line.text) for line in lines.lines] == [("PRINT", "once"), ("INFO", "shop: heard")]


def test_the_log_is_bounded_whatever_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.engine.running.element_log.LARGEST", 10_000)
    log = ElementLog(tmp_path)
    for batch in range(100):
        tally = Tally(stage=0, partition=1)
        for place in range(20):
            tally.log.add(Line(1e9 + batch + place / 100, "PRINT", "Chatty", "'a'", f"line {place} of {batch}"))
        tally.log.left_out = 7
        log.write("main", batch, [tally])
    log.close()
    files = sorted(path.name for path in tmp_path.iterdir())
    assert (tmp_path / "elements.log").stat().st_mode & 0o077 == 0
    assert files == ["elements.log", *(f"elements.log.{number}" for number in range(1, KEPT + 1))]
    assert all(path.stat().st_size <= 10_000 for path in tmp_path.iterdir())
    last = (tmp_path / "elements.log").read_text().splitlines()
    assert last[-2].endswith("PRINT   main/99.1 Chatty['a']: line 19 of 99")
    assert last[-1].endswith("main/99.1 : 7 more lines of this micro-batch are in Spark's log alone")


def test_a_log_that_cannot_be_written_hinders_nothing(tmp_path):
    tally = Tally(stage=0, partition=0)
    tally.log.add(Line(0.0, "PRINT", "Chatty", None, "line"))
    ElementLog(tmp_path / "missing").write("main", 0, [tally])
