"""Files between groups stay until every group that reads them has, and so do the notes of how many were delivered."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import Event
from penstock.app.stream import Source
from penstock.connectors.checkpoint import Position
from penstock.connectors.files.hop import HopSource
from penstock.connectors.files.sink import NOTES_KEPT, REACHED, DirectorySink, remove_batches
from penstock.runtime.output import SinkFiles


class Word(Event):
    text: str


FILES = 4


@pytest.fixture
def hop(tmp_path):
    """Four files that a group has left."""
    left = tmp_path / "hops" / "Words" / "main"
    left.mkdir(parents=True)
    for number in range(FILES):
        pq.write_table(pa.table({"text": [f"word {number}"]}), left / f"{number:08d}.parquet")
    return HopSource(Source("Words", Word), left.parent)


def reader(place, reached):
    """A group that has read one file a micro-batch, as Spark's checkpoint says it; with None it has read nothing yet."""
    log, offsets = place / "sources" / "0", place / "offsets"
    log.mkdir(parents=True)
    offsets.mkdir()
    files = sorted(place.parent.glob("hops/Words/main/*.parquet"))
    for number, file in enumerate(files[: 0 if reached is None else reached + 1]):
        entry = {"path": file.as_uri(), "timestamp": 0, "batchId": number}
        (log / str(number)).write_text(f"v1\n{json.dumps(entry)}")
        (offsets / str(number)).write_text(f"v1\n{{}}\n{json.dumps({'logOffset': number})}")
    return Position(place, 0, reached)


@pytest.mark.parametrize(
    ("reached", "left"), [([3], 0), ([1], 2), ([3, 3], 0), ([3, 1], 2), ([0, 3, 2], 3), ([3, None], 4), ([None], 4)]
)
def test_a_file_stays_until_all_groups_have_read_it(tmp_path, hop, reached, left):
    positions = [reader(tmp_path / f"group-{number}", batch) for number, batch in enumerate(reached)]
    hop.note_progress("a run", positions)
    names = [file.stem for file in sorted(tmp_path.glob("hops/Words/main/*.parquet"))]
    assert names == [f"{number:08d}" for number in range(FILES - left, FILES)]


def delivered(sink, batch):
    """Deliver a batch of a group, and let a reader remove its files at once."""
    sink.deliver("main", batch, [])
    return sink.reached("main")


def test_a_driver_that_wakes_takes_back_no_note_of_a_newer_batch(tmp_path):
    files = SinkFiles("Words", "parquet", str(tmp_path / "hop"), role="hop")
    paused, follower = DirectorySink(files), DirectorySink(files)
    for sink in (paused, follower):
        sink.claim("a run", ())
    assert [delivered(paused, 0), delivered(follower, 1), delivered(follower, 2)] == [0, 1, 2]
    assert delivered(paused, 1) == 2
    assert DirectorySink(files).reached("main") == -1, "notes are of a run"
    again = DirectorySink(files)
    again.claim("a run", ())
    assert again.reached("main") == 2
    assert again.reached("main-1") == -1


def test_notes_of_deliveries_do_not_pile_up(tmp_path):
    files = SinkFiles("Words", "parquet", str(tmp_path / "hop"), role="hop")
    for start in range(3):
        sink = DirectorySink(files)
        sink.claim("a run", ())
        for batch in range(100):
            assert delivered(sink, 100 * start + batch) == 100 * start + batch
    assert len(list((tmp_path / "hop").glob(f"{REACHED}*"))) <= NOTES_KEPT + 2
    remove_batches(tmp_path / "hop")
    assert not list((tmp_path / "hop").glob(f"{REACHED}*"))
