"""The plan of a last micro-batch that was not committed is removed, whenever a driver is killed on the way."""

import json

import pytest

from penstock.engine.running.ending import FOREVER_MS, first_end, unplan
from penstock.storage import durable


class KilledError(Exception):
    pass


def entry(watermark):
    return f'v1\n{json.dumps({"batchWatermarkMs": watermark})}\n{{"logOffset":0}}'


@pytest.mark.parametrize("removed", range(5))
def test_what_a_killed_driver_has_left_of_it_goes_at_the_next_start(tmp_path, monkeypatch, removed):
    state = tmp_path / "state" / "0" / "0"
    for directory in (tmp_path / "offsets", state):
        directory.mkdir(parents=True)
    (tmp_path / "offsets" / "0").write_text(entry(0))
    (tmp_path / "offsets" / "1").write_text(entry(FOREVER_MS))
    (tmp_path / "offsets" / ".1.crc").write_text("")
    for name in ("1.zip", "2.zip", "2.changelog"):
        (state / name).write_text("")
    left, remove = [removed], durable.remove

    def remove_until_killed(path):
        if not left[0]:
            raise KilledError
        left[0] -= 1
        remove(path)

    monkeypatch.setattr(durable, "remove", remove_until_killed)
    try:
        unplan(tmp_path, 1)
    except KilledError:
        monkeypatch.undo()
        assert first_end(tmp_path) == 1  # so that the next start unplans it again
        unplan(tmp_path, 1)
    assert first_end(tmp_path) is None
    assert [path.name for path in state.iterdir()] == ["1.zip"]
    assert [path.name for path in (tmp_path / "offsets").iterdir()] == ["0"]
