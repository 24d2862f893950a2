"""What a directory tells of the batches that it holds."""

from penstock.connectors.files.sink import DirectorySink
from penstock.runtime.output import SinkFiles, StagedFile
from penstock.testing.contracts import Sample, stage


def test_groups_whose_names_begin_alike_are_told_apart(tmp_path):
    sink = DirectorySink(SinkFiles("Out", "jsonl", str(tmp_path / "out")))
    sink.claim("run", ())
    for group, batch, final in [
        ("main", 3, "0-00000.jsonl"),
        ("main-1", 7, "1-00000.jsonl"),
        ("main-q", 9, "native-00000.jsonl"),
    ]:
        staged = tmp_path / f"{group}.jsonl"
        staged.write_text("{}\n")
        sink.deliver(group, batch, [StagedFile("Out", str(staged), final, 1, 3)])
    assert [sink.reached(group) for group in ("main", "main-1", "main-q", "mai")] == [3, 7, 9, -1]


def test_a_type_that_has_gained_a_field_reads_what_is_there(tmp_path):
    class Grown(Sample):
        size: int = 5

    sink = DirectorySink(SinkFiles("Out", "parquet", str(tmp_path / "out")), Sample)
    sink.claim("run", ())
    sink.deliver("main", 0, stage(sink, [Sample("a", 1)]))
    assert DirectorySink(sink.files, Grown).read() == [Grown("a", 1, size=5)]
