"""State in shapes of several versions of the code, on Spark: gone on with, moved in between, or refused."""

from pathlib import Path

import pytest

from penstock.app.loader import load_app
from penstock.engine.running.execution import rescale
from penstock.engine.running.options import RunOptions
from penstock.errors import IncompatibleStateError, RunFailedError

APPS = Path(__file__).parent / "apps_migrating.py"


@pytest.mark.slow
def test_state_is_migrated_when_it_is_touched_and_moved_as_it_lies(run_app, words, spark, tmp_path):
    def seen(which, *texts):
        sources = words(*texts) if texts else {"Words": f"jsonl:{tmp_path / 'in'}?max_files=1"}
        result = run_app(which, file=APPS, until_idle="pause", sources=sources)
        assert result.report["counts"]["dead_lettered"] == 0
        return [(event.text, event.seen) for event in result.output("Out")][-len(texts) :]

    assert sorted(seen("first", "a", "b", "c", "d", "d")) == [("a", 1), ("b", 1), ("c", 1), ("d", 1), ("d", 2)]
    with pytest.raises(IncompatibleStateError, match=r"Element Counter: .*'seen'.*migrate\(old\)"):
        seen("without")
    with pytest.raises(RunFailedError, match=r"key 'a'.*migrate has failed: KeyError: 'gone'"):
        seen("failing", "a")
    assert seen("first", "d") == [("d", 3)]  # and "a", which was queued: nothing had changed
    assert seen("second", "a") == [("a", 3)]
    assert seen("second", "b") == [("b", 2)]
    app, reference = load_app(f"{APPS}:second")
    options = RunOptions(
        runs=tmp_path / "runs",
        sources={"Words": f"jsonl:{tmp_path / 'in'}?max_files=1"},
        partitions=3,
        quiet=True,
        master="local[2]",
    )
    spark.leave()  # what is moved has a session of its own
    rescale(app, options, application=reference)
    assert sorted(seen("third", "a", "b", "c", "d", "e")) == [("a", 4), ("b", 3), ("c", 2), ("d", 4), ("e", 1)]
    with pytest.raises(IncompatibleStateError, match=r"Element Counter: .*migrate\(old\)"):
        seen("without")
