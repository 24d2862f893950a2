"""Places: an event that is dropped, doubled, or dropped while another is doubled, is seen at the very place where that
happens.
"""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import App, Event, ProcessingElement, States
from penstock.runs.batches import BatchRecord, sum_of
from penstock.runtime import bodies, stage
from penstock.runtime.arrivals import ArrivedBlocks
from penstock.runtime.events import EventBatch
from penstock.runtime.lineage import LineageColumns
from penstock.runtime.output import LETTERS, FileOutput, SinkFiles
from penstock.runtime.places import Place, Seen
from penstock.testing.driver import Attempt, TopologyDriver


def lineage(rows):
    major, minor = (np.array([row[side] for row in rows], np.int64) for side in (0, 1))
    return LineageColumns.read(major, major, minor)


origins = st.lists(st.tuples(st.integers(0, 2**62), st.integers(0, 2**62)), max_size=30)


@given(origins, st.randoms())
def test_a_fingerprint_is_the_same_in_any_order_and_adds_up(rows, draw):
    mixed = list(rows)
    draw.shuffle(mixed)
    cut = len(rows) // 2
    assert lineage(rows).fingerprint() == lineage(mixed).fingerprint()
    assert lineage(rows).fingerprint() == (lineage(mixed[:cut]).fingerprint() + lineage(mixed[cut:]).fingerprint()) % 2**64


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=2, max_size=30, unique=True), st.data())
def test_a_fingerprint_tells_any_event_from_any_other(rows, data):
    lost, doubled = data.draw(st.permutations(range(len(rows))))[:2]
    others = [row for place, row in enumerate(rows) if place != lost] + [rows[doubled]]
    left, came = Seen(), Seen()
    left.add(lineage(rows))
    came.add(lineage(others))
    assert Place.between(left, came) == Place(len(rows), 0, 0, 1)


class Word(Event):
    text: str


class Count(Event):
    text: str
    seen: int


class Counts(Event):
    seen: int = 0


app = App("placed")
words = app.source("Words", Word)
loud, counts, sums = app.stream("Loud", Word), app.stream("Counts", Count), app.stream("Sums", Count)
app.sink("Raw", words)
app.sink("Out", counts)
app.sink("Columns", sums)


@app.element(words, emits=loud)
def shout(word):
    if word.text == "bad":
        raise ValueError("no")
    yield loud(word.text.upper())


@app.element(loud, key="text", emits=counts)
class Counter(ProcessingElement):
    seen: int = 0

    def on_event(self, word):
        self.seen += 1
        yield counts(word.text, self.seen)


@app.batch(counts, emits=sums)
def doubled_counts(batch):
    return batch


@app.batch(counts, key="text", state=Counts, emits=sums)
def summed(batch, at: np.ndarray, states: States):
    np.add.at(states.seen, at, 1)
    return batch


class Files(Attempt):
    """An attempt whose sinks are files, as on Spark."""

    def __init__(self, driver, events, directory):
        super().__init__(driver, events)
        kinds = {"Columns": "parquet", "Out": "jsonl", "Raw": "jsonl"}
        self.sinks = [SinkFiles(name, kind, str(directory / name)) for name, kind in kinds.items()]
        self.sinks.append(SinkFiles("dead-letters", "jsonl", str(directory / "letters"), role="letters"))

    def _output(self):
        return FileOutput(self.sinks, "0-00000")


def record_of(directory, texts=("a", "b", "a", "c", "bad", "d"), number=0):
    attempt = Files(TopologyDriver(app, dead_letters=True), {"Words": [Word(text) for text in texts]}, directory)
    attempt.run()
    return BatchRecord.of(number, 0, attempt.tallies)


def wrong(record):
    return {
        name: (place.missing, place.extra, place.differs)
        for name, place in record.places.items()
        if place.missing or place.extra or place.differs
    }


def test_nothing_is_wrong_where_nothing_is(tmp_path):
    record = record_of(tmp_path)
    assert wrong(record) == {}
    assert {name: place.events for name, place in record.places.items()} == {
        "written to Raw": 6,
        "staged in Raw": 6,
        "handed to shout": 6,
        f"staged in {LETTERS}": 1,
        "sent to Counter": 5,
        "written to Out": 5,
        "staged in Out": 5,
        "handed to doubled_counts": 5,
        "sent to summed": 5,
        "written to Columns": 10,
        "staged in Columns": 10,
    }


def dropped(rows):
    return rows[1:]


def doubled(rows):
    return [*rows, rows[0]]


def swapped(rows):
    """One is dropped while another is doubled."""
    return [*rows[1:], rows[1]]


CHANGES = {dropped: (1, 0, 0), doubled: (0, 1, 0), swapped: (0, 0, 1)}


def changed_batch(batch, change, wiring):
    rows = change(list(range(len(batch))))
    return EventBatch(batch.stream, batch.lineage.take(rows), events=[batch.events(wiring)[row] for row in rows])


def at_keyless(monkeypatch, change, name="run_event_body"):
    run = getattr(bodies, name)

    def changed(element, batch, handed, wiring, *rest):
        rows = change(list(range(len(batch))))
        handed = handed.take(pa.array(rows)) if isinstance(handed, pa.RecordBatch) else [handed[row] for row in rows]
        return run(element, changed_batch(batch, change, wiring), handed, wiring, *rest)

    monkeypatch.setattr(stage, name, changed)


def at_sending(monkeypatch, change, element="Counter"):
    send = stage.Stage._send

    def changed(self, to, batch):
        send(self, to, changed_batch(batch, change, self.wiring) if to.name == element else batch)

    monkeypatch.setattr(stage.Stage, "_send", changed)


def at_writing(monkeypatch, change):
    write = stage.Stage._write

    def changed(self, sink, batch):
        write(self, sink, changed_batch(batch, change, self.wiring) if sink == "Raw" else batch)

    monkeypatch.setattr(stage.Stage, "_write", changed)


PLACES = {
    "handed to shout": at_keyless,
    "handed to doubled_counts": lambda patch, change: at_keyless(patch, change, "run_batch_body"),
    "sent to Counter": at_sending,
    "sent to summed": lambda patch, change: at_sending(patch, change, "summed"),
    "written to Raw": at_writing,
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_is_seen_where_it_happens(place, change, tmp_path, monkeypatch):
    PLACES[place](monkeypatch, lambda rows: change(rows) if len(rows) > 1 else rows)
    found = wrong(record_of(tmp_path, texts=["a", "b", "c", "d"] * 3))
    assert set(found) == {place}
    missing, extra, differs = found[place]
    assert (bool(missing), bool(extra), bool(differs)) == tuple(map(bool, CHANGES[change]))


@pytest.mark.parametrize(("change", "figures"), [(dropped, (1, 0, 0)), (doubled, (0, 1, 0))])
def test_rows_that_files_lack_or_have_twice_are_seen(change, figures, tmp_path, monkeypatch):
    write = FileOutput.write_lines
    monkeypatch.setattr(
        FileOutput, "write_lines", lambda self, sink, lines: write(self, sink, change(lines) if sink == "Raw" else lines)
    )
    assert wrong(record_of(tmp_path)) == {"staged in Raw": figures}


def test_a_dead_letter_that_is_not_written_is_seen(tmp_path, monkeypatch):
    write = FileOutput.write_lines
    monkeypatch.setattr(
        FileOutput, "write_lines", lambda self, sink, lines: None if sink == LETTERS else write(self, sink, lines)
    )
    assert wrong(record_of(tmp_path)) == {f"staged in {LETTERS}": (1, 0, 0)}


def test_a_block_that_the_shuffle_loses_or_doubles_is_seen(tmp_path, monkeypatch):
    add, seen = ArrivedBlocks.add, []

    def lost(self, content):
        seen.append(content)
        if len(seen) != 1:
            add(self, content)

    monkeypatch.setattr(ArrivedBlocks, "add", lost)
    found = wrong(record_of(tmp_path))
    assert set(found) == {"sent to Counter"}
    assert found["sent to Counter"][0] > 0
    monkeypatch.setattr(ArrivedBlocks, "add", lambda self, content: (add(self, content), add(self, content)))
    found = wrong(record_of(tmp_path))
    assert found["sent to Counter"] == (0, 5, 0)


def test_one_micro_batch_does_not_make_up_for_another(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        at_writing(patched, dropped)
        first = record_of(tmp_path)
    with monkeypatch.context() as patched:
        at_writing(patched, doubled)
        second = record_of(tmp_path, number=1)
    assert wrong(sum_of([first, second])) == {"written to Raw": (1, 1, 0)}


def test_what_cannot_be_encoded_is_not_missed(tmp_path):
    driver = TopologyDriver(app, dead_letters=True)
    attempt = Files(driver, {"Words": [Word("a"), Word("\ud800")]}, tmp_path)
    attempt.run()
    assert wrong(BatchRecord.of(0, 0, attempt.tallies)) == {}
