"""Files between groups stay until every group that reads them has read them for good."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import Event
from penstock.app.stream import Source
from penstock.connectors.checkpoint import Position
from penstock.connectors.files.hop import HopSource


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
