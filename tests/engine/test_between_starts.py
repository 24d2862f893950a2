"""What may happen to a run between two starts: to its directory, to its sinks. Each is a row of docs/how-to/failures.md."""

import shutil

import pytest
from apps_engine import KINDS

from penstock.errors import ConfigurationError, IncompatibleStateError, SinkError


def texts(result, sink="Out"):
    return sorted(event.text for event in result.output(sink))


def everything(directory):
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize(
    "holds", ["README.md", "data/words.jsonl", "checkpoint/main/offsets/0", ".hidden", "batches-main.jsonl"]
)
def test_a_directory_that_is_no_runs_is_refused_and_nothing_in_it_touched(run_app, words, tmp_path, holds, fresh):
    file = tmp_path / "runs" / "passing" / holds
    file.parent.mkdir(parents=True)
    file.write_text("mine")
    before = everything(tmp_path / "runs")
    with pytest.raises(ConfigurationError, match=r"runs/passing holds .* and no manifest\.json.*--name"):
        run_app("passing", sources=words("a"), fresh=fresh)
    assert everything(tmp_path / "runs") == before


@pytest.mark.slow
@pytest.mark.parametrize("fresh", [False, True])
def test_a_run_whose_manifest_alone_is_missing_or_damaged_loses_nothing(run_app, words, tmp_path, fresh):
    sources = words("a")
    result = run_app("counter", sources=sources)
    manifest = result.directory / "manifest.json"
    kept = manifest.read_text()
    for content, said in ((None, r"put its manifest\.json back"), ("{", r"manifest\.json is damaged")):
        manifest.unlink() if content is None else manifest.write_text(content)
        before = everything(tmp_path / "runs")
        with pytest.raises(ConfigurationError, match=said):
            run_app("counter", sources=sources, fresh=fresh)
        assert everything(tmp_path / "runs") == before
    manifest.write_text(kept)
    assert texts(run_app("counter", sources=words("b"))) == ["a", "b"]


def test_a_start_that_was_killed_before_its_manifest_is_begun_again(run_app, words, tmp_path):
    (tmp_path / "runs" / "passing").mkdir(parents=True)
    (tmp_path / "runs" / "passing" / "spark.log").write_text("started\n")
    (tmp_path / "runs" / "passing" / ".manifest.json.0123.draft").write_text("{")
    assert texts(run_app("passing", sources=words("a"))) == ["a"]


@pytest.mark.slow
def test_fresh_removes_what_the_run_has_written_and_nothing_else(run_app, words):
    result = run_app("counter", sources=words("a", "bad"))
    run = result.directory
    mine = [
        "notes.txt",
        "output/README.md",
        "output/Out/README.md",
        "output/Out/mine.jsonl",
        "dead-letters/why.md",
        "checkpoint/main/notes",
        "other/data.jsonl",
    ]
    for name in mine:
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).write_text("{}")
    (run / "output" / "Out" / "mine.jsonl").unlink()  # a reader of the directory would take it for output
    result = run_app("counter", sources=words("b"), fresh=True)
    assert texts(result) == ["a", "b", "bad"]
    assert all((run / name).read_text() == "{}" for name in mine if name != "output/Out/mine.jsonl")


@pytest.fixture
def sinks(tmp_path):
    (tmp_path / "out" / "lake").mkdir(parents=True)
    out = tmp_path / "out"
    catalog = f"catalog.uri=sqlite:///{out / 'lake.sqlite'}&catalog.warehouse=file://{out / 'lake'}"
    return {
        "Lines": f"jsonl:{out / 'Lines'}",
        "Columns": f"parquet:{out / 'Columns'}",
        "Rows": f"sqlite:{out / 'Rows'}",
        "Upserted": f"sqlite:{out / 'Upserted'}",
        "Log": f"log:{out / 'Log'}",
        "Delta": f"delta:{out / 'Delta'}",
        "Iceberg": f"iceberg:lake/results.words?{catalog}",
    }


def places(sink, tmp_path):
    """Where a sink's output lies."""
    out = tmp_path / "out"
    if sink == "Iceberg":
        return [out / "lake", out / "lake.sqlite"]
    if sink == "Kept":
        return [tmp_path / "runs" / "spread" / "output" / "Kept"]
    return [out / sink] if sink not in ("Rows", "Upserted") else [out / sink, out / f"{sink}-wal", out / f"{sink}-shm"]


def put(files, to):
    for source, target in zip(files, to, strict=True):
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)
        if source.is_dir():
            shutil.copytree(source, target)
        elif source.exists():
            shutil.copy(source, target)


@pytest.mark.slow
def test_a_sink_that_was_removed_or_rolled_back_is_missed(run_app, words, sinks, tmp_path):
    """Every kind of sink, one at a time; put back as it was, the run goes on, and so it does to another place."""
    run_app("spread", sources=words("a"), sinks=sinks)
    older, newer = tmp_path / "older", tmp_path / "newer"
    for kind in KINDS:
        put(
            places(kind, tmp_path),
            [
                older / kind / str(n)
                for n, _ in enumerate(places(kind, tmp_path))
                if (older / kind).mkdir(parents=True, exist_ok=True) is None
            ],
        )
    sources = words("b")
    run_app("spread", sources=sources, sinks=sinks)
    for kind in KINDS:
        here = places(kind, tmp_path)
        (newer / kind).mkdir(parents=True)
        kept, back, none = ([side / kind / str(n) for n, _ in enumerate(here)] for side in (newer, older, tmp_path / "none"))
        put(here, kept)
        for instead, holds in ((back, "those up to 0"), (none, "none")):
            put(instead, here)
            if kind == "Iceberg" and instead is none:
                (tmp_path / "out" / "lake").mkdir()
            with pytest.raises(
                IncompatibleStateError, match=f"Sink {kind} is behind.*holds {holds}: it was removed, replaced or rolled back"
            ):
                run_app("spread", sources=sources, sinks=sinks)
        put(kept, here)
    result = run_app("spread", sources=words("c"), sinks={**sinks, "Rows": f"sqlite:{tmp_path / 'out' / 'elsewhere'}"})
    assert {kind: texts(result, kind) for kind in KINDS} == {
        kind: ["c"] if kind == "Rows" else ["a", "b", "c"] for kind in KINDS
    }
    assert (result.report["counts"]["lost"], result.report["counts"]["duplicated"]) == (0, 0)


@pytest.mark.slow
def test_fresh_is_refused_before_anything_is_removed(run_app, words, sinks, tmp_path):
    import sqlite3

    sources = words("a")
    run_app("spread", sources=sources, sinks=sinks)
    with sqlite3.connect(tmp_path / "out" / "Rows") as connection:
        connection.execute("INSERT INTO Rows VALUES ('theirs', 1)")
    before = everything(tmp_path / "runs") | everything(tmp_path / "out" / "Lines")
    with pytest.raises(SinkError, match=r"Sink Rows: .*another program has added.*fresh=keep"):
        run_app("spread", sources=sources, sinks=sinks, fresh=True)
    after = everything(tmp_path / "runs") | everything(tmp_path / "out" / "Lines")
    assert {path: content for path, content in after.items() if path.name != "spark.log"} == {
        path: content for path, content in before.items() if path.name != "spark.log"
    }
    kept = {**sinks, "Rows": f"{sinks['Rows']}?fresh=keep"}
    result = run_app("spread", sources=sources, sinks=kept, fresh=True)
    assert texts(result, "Lines") == ["a"]
    assert texts(result, "Rows") == ["a", "a", "theirs"]


def remove(path):
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
        (path.parent / f".{path.name}.crc").unlink(missing_ok=True)


PARTS = {
    "metadata": "metadata",
    "offsets": "has planned batch none, and the ledger has committed batch 3",
    "offsets/2": "offsets/2",
    "offsets/3": "has planned batch 2, and the ledger has committed batch 3",
    "commits": "commits/2",
    "sources": "sources/0/",
    "sources/0/1": "sources/0/1",
    "state": "lacks state ",
    "state/0/1": "state/0/1",
    "state/0/0/4.changelog": "state/0/0/4.changelog",
}


@pytest.mark.slow
def test_a_part_of_the_checkpoint_that_is_gone_is_named(run_app, words, tmp_path):
    """One at a time; put back, the run goes on."""
    for text in "abcd":
        sources = words(text)
    run = run_app("counter", sources=sources, partitions=2).directory
    checkpoint = run / "checkpoint" / "main"
    shutil.copytree(checkpoint, tmp_path / "whole")
    for part, said in PARTS.items():
        remove(checkpoint / part)
        with pytest.raises(IncompatibleStateError, match=said) as refused:
            run_app("counter", sources=sources)
        assert "put all of the run's directory back as it was" in str(refused.value)
        shutil.rmtree(checkpoint)
        shutil.copytree(tmp_path / "whole", checkpoint)
    (checkpoint / "offsets" / "3").write_text("v1\n")
    with pytest.raises(IncompatibleStateError, match="offsets/3, which is cut short"):
        run_app("counter", sources=sources)
    shutil.rmtree(checkpoint)
    shutil.copytree(tmp_path / "whole", checkpoint)
    (run / "batches-main.jsonl").rename(tmp_path / "ledger")
    with pytest.raises(IncompatibleStateError, match="The ledger of main is behind"):
        run_app("counter", sources=sources)
    (tmp_path / "ledger").rename(run / "batches-main.jsonl")
    assert texts(run_app("counter", sources=words("e"))) == ["a", "b", "c", "d", "e"]
