"""What an audit compares: values that a place keeps otherwise, those that no key may have, and letters of whom they are."""

import math
from datetime import datetime, timedelta, timezone

import msgspec
import numpy as np
import pytest

from penstock import App, Event
from penstock.app.stream import Sink
from penstock.audit.auditor import Auditor
from penstock.audit.replay import Replay
from penstock.audit.sample import RowSample
from penstock.connectors.declaration import SourceContext
from penstock.connectors.registry import bind_sinks, bind_source
from penstock.connectors.sink import BoundSink
from penstock.connectors.source import Reread
from penstock.errors import IncompatibleStateError
from penstock.kinds.fields import nan_as_null
from penstock.runs.batches import BatchRecord, records_in
from penstock.runs.layout import Layout
from penstock.runs.letters import Letter
from penstock.runtime.codec import Codec


class Word(Event):
    k: str


class Row(Event):
    k: str
    x: float | None = None
    i: int = 0
    at: datetime | None = None


ROWS = {
    "plain": Row("plain"),
    "NaN": Row("NaN", x=math.nan),
    "large": Row("large", i=2**70),
    "late": Row("late", at=datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-5)))),
}
app = App("audited")
words, rows = app.source("Words", Word), app.stream("Rows", Row)
app.sink("Out", rows)


@app.element(words, emits=rows)
def row(word):
    yield rows(*msgspec.structs.astuple(ROWS.get(word.k, Row("\ud800"))))


def auditor_of(topology, letters, monkeypatch):
    monkeypatch.setattr("penstock.audit.auditor.letters_of", lambda run: letters)
    auditor = Auditor.__new__(Auditor)
    vars(auditor).update(
        _run=None, _groups=[], _since=None, _sample=RowSample(), _origins=[], _topology=topology, _sinks={}, _sources={}
    )
    return auditor


def expected(tmp_path, *keys):
    (tmp_path / "in").mkdir(exist_ok=True)
    (tmp_path / "in" / "a.jsonl").write_text("")
    source = bind_source(app.topology().sources[0], f"jsonl:{tmp_path}/in", SourceContext())
    replay = Replay(app, {"Words": source}, Layout(), lambda sink, event: nan_as_null(event))
    lines, zeros = [b'{"k": "%s"}' % key.encode() for key in keys], np.zeros(len(keys), np.int64)
    replay.again(0, {"Words": [Reread(lines, zeros, zeros, zeros)]}, None, None, told=False)
    return replay.rows["Out"]


@pytest.mark.parametrize("key", ROWS)
def test_what_json_lines_keep_is_what_is_expected(key, tmp_path, monkeypatch):
    codec = Codec(Row)
    held = [codec.decode_json(codec.encode_json(ROWS[key]))]
    audit = auditor_of(app.topology(), [], monkeypatch)._compared("jsonl:out", expected(tmp_path, key), held, 0)
    assert (audit.missing, audit.doubled, audit.strange) == (0, 0, 0)
    audit = auditor_of(app.topology(), [], monkeypatch)._compared("jsonl:out", expected(tmp_path, key), [], 0)
    assert (audit.missing, audit.strange) == (1, 0)


def test_a_text_that_no_place_keeps_is_known_by_its_letter(tmp_path, monkeypatch):
    letter = Letter("Out", "Rows", "UnicodeEncodeError", event="Row(k='\\\\ud800', x=None, i=0, at=None)".replace("\\\\", "\\"))
    auditor = auditor_of(app.topology(), [letter], monkeypatch)
    left = auditor._without_refused(app.topology().sinks[0], expected(tmp_path, "plain", "bad"))
    assert [each.event.k for each in left] == ["plain"]


def test_a_letter_of_an_element_is_none_of_the_sink_with_its_name(tmp_path, monkeypatch):
    namesakes = App("namesakes")
    taken, given = namesakes.source("Words", Word), namesakes.stream("Rows", Row)

    @namesakes.element(taken, emits=given)
    def Out(word):
        yield given(word.k)

    namesakes.sink("Out", given)
    topology = namesakes.topology()
    event = msgspec.to_builtins(ROWS["plain"])
    for stream, left in (("Words", 1), ("Rows", 0)):
        auditor = auditor_of(topology, [Letter("Out", stream, "boom", event=event)], monkeypatch)
        assert len(auditor._without_refused(topology.sinks[0], expected(tmp_path, "plain"))) == left


def test_where_nan_is_null(tmp_path):
    kinds = {"jsonl": True, "parquet": False, "sqlite": True, "delta": False}
    for kind, is_null in kinds.items():
        sink: BoundSink = bind_sinks([Sink("Out", rows, f"{kind}:{tmp_path}/{kind}", ())], {}, tmp_path)["Out"]
        assert sink.nan_is_null == is_null


@pytest.mark.parametrize("damaged", [0, 1, 2])
def test_a_damaged_line_of_a_ledger_is_named(damaged, tmp_path):
    lines = [msgspec.json.encode(BatchRecord(batch=number, committed_us=number)) for number in range(3)]
    (tmp_path / "ledger").write_bytes(b"".join(line + b"\n" for line in lines) + b'{"batch": 3')  # a torn line is none
    assert [record.batch for record in records_in(tmp_path / "ledger")] == [0, 1, 2]
    lines[damaged] = b"\0" * 40
    (tmp_path / "ledger").write_bytes(b"".join(line + b"\n" for line in lines))
    with pytest.raises(IncompatibleStateError, match=f"Line {damaged + 1} of .*ledger is damaged"):
        list(records_in(tmp_path / "ledger"))
