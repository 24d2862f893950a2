"""Large files of lines are divided between the tasks: each line once, in order, whatever is in it."""

import gzip
import json
import os
import time
from types import SimpleNamespace

import pyarrow as pa
import pytest

from penstock import Event
from penstock.app.stream import Source
from penstock.connectors.declaration import SourceContext
from penstock.connectors.files import source
from penstock.connectors.files.reader import SPAN, FileReader
from penstock.connectors.registry import bind_source
from penstock.engine.query.parts import PARTS, divider
from penstock.errors import SourceError

APP = """
from penstock import App, Event, ProcessingElement
class Word(Event):
    text: str
    number: int
class Seen(Event):
    text: str
    events: int
    last: int
app = App("ordered")
words, seen = app.source("Words", Word), app.stream("Seen", Seen)
app.sink("Out", seen)
@app.element(words, key="text", emits=seen)
class Last(ProcessingElement):
    events: int = 0
    last: int = -1
    def on_event(self, word):
        if word.number <= self.last:
            raise ValueError(f"{word.number} after {self.last}")
        self.events, self.last = self.events + 1, word.number
    def on_batch(self):
        yield seen(self.key, self.events, self.last)
"""
KEYS, EVENTS = 7, 120_000


class Row(Event):
    k: str


def line(number, more=""):
    return json.dumps({"text": f"word {number % KEYS}", "number": number, "more": "x" * 50 + more}).encode()


def content(first):
    """Lines with all ends, blank ones and bad ones, and one that is longer than a span."""
    ends = [b"\n", b"\r\n", b"\r", b"\n\n", b"\n \n"]
    lines = [line(number) + ends[number % 5 if number % 1000 == 0 else 0] for number in range(first, first + EVENTS)]
    lines[100] = line(first + 100, "y" * (SPAN + 1000)) + b"\n"
    lines[50_000] += b'{"text": "\xff\xfe"}\n{"text": 7}\n'
    return b"".join(lines).rstrip(b"\r\n ")


@pytest.mark.slow
def test_a_large_file_is_read_once_and_in_order(run_app, tmp_path, monkeypatch):
    code = tmp_path / "ordered.py"
    code.write_text(APP)
    (tmp_path / "in").mkdir()
    files = {
        "a.jsonl": content(0),
        "b.jsonl.gz": gzip.compress(content(EVENTS), 1),
        "c.jsonl": content(2 * EVENTS),
        "d.jsonl": b"",
    }
    for place, (name, bytes_in) in enumerate(files.items()):
        (tmp_path / "in" / name).write_bytes(bytes_in)
        os.utime(tmp_path / "in" / name, (time.time() - 100 + place,) * 2)
    assert len(files["a.jsonl"]) > 2 * SPAN
    monkeypatch.setattr(source, "LARGE", SPAN // 2)
    result = run_app("app", file=code, sources={"Words": f"jsonl:{tmp_path / 'in'}"})
    told = [json.loads(each) for each in (result.directory / "progress.jsonl").read_text().splitlines()]
    letters, counts = result.dead_letters, result.report["counts"]
    assert [(letter["element"], letter["stream"]) for letter in letters] == [(None, "Words")] * 6
    assert (counts["accepted"], counts["lost"], counts["duplicated"]) == (3 * EVENTS + 6, 0, 0)
    assert {(seen.text, seen.events, seen.last) for seen in result.output("Out")} == {
        (f"word {key}", len(range(key, 3 * EVENTS, KEYS)), range(key, 3 * EVENTS, KEYS)[-1]) for key in range(KEYS)
    }
    assert sum(one["numInputRows"] for one in told) >= 3 * EVENTS + 6


@pytest.mark.parametrize(
    ("uri", "bytes_in", "wanted"),
    [
        ("jsonl:{}", 100, True),
        ("text:{}", 100, True),
        ("jsonl:{}", 99, False),
        ("jsonl:{}?encoding=latin-1", 100, False),
        ("csv:{}", 100, False),
    ],
)
def test_only_large_files_of_lines_in_utf_8_are_divided(tmp_path, monkeypatch, uri, bytes_in, wanted):
    monkeypatch.setattr(source, "LARGE", 100)
    (tmp_path / "a").write_bytes(b"k\n" + b"x" * (bytes_in - 2))
    bound = bind_source(Source("Rows", Row), uri.format(tmp_path), SourceContext())
    reading = bound.reading(SimpleNamespace(parallelism=2), 5)
    assert reading.divided == wanted
    assert (reading.format == "text") == (bound.files is None) == (uri == "jsonl:{}" and not wanted)


def test_spans_cover_a_file_and_compressed_ones_are_whole():
    reader = FileReader("Words", "Word", "jsonl", None, None)
    spans = reader.spans("file:/in/a.jsonl", 3 * SPAN + 5)
    assert [begin for begin, _ in spans] == [0, SPAN, 2 * SPAN, 3 * SPAN]
    assert [end for _, end in spans] == [SPAN, 2 * SPAN, 3 * SPAN, 4 * SPAN]
    assert reader.spans("file:/in/a.jsonl.gz", 3 * SPAN) == [(0, 3 * SPAN)]
    assert len(reader.spans("file:/in/a.jsonl", 1 << 40)) == 1000
    assert reader.spans("file:/in/a.jsonl", 0) == reader.spans("file:/in/a.gz", 0) == []


def test_rows_are_numbered_by_files_and_spans_and_not_by_who_reads_them():
    columns = {"path": ["a", "b.gz", "c"], "born": [1, 2, 3], "major": [4, 5, 6], "length": [SPAN + 1, SPAN + 1, 1]}
    divide = divider(FileReader("Words", "Word", "jsonl", None, None))
    [parts] = divide([pa.RecordBatch.from_pydict(columns)])
    assert parts.schema == PARTS
    assert parts["path"].to_pylist() == ["a", "a", "b.gz", "c"]
    assert parts["first"].to_pylist() == [number << 29 for number in range(4)]


def test_more_files_than_can_be_numbered_are_refused():
    columns = {"path": ["a"] * 2049, "born": [1] * 2049, "major": [4] * 2049, "length": [1] * 2049}
    divide = divider(FileReader("Words", "Word", "jsonl", None, None))
    with pytest.raises(SourceError, match="too many files for one micro-batch: take fewer at a time, as .max_files="):
        list(divide([pa.RecordBatch.from_pydict(columns)]))
