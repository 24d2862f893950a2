"""Options that would have no effect, or would fail in the middle of a run, are refused before it, in a sentence."""

import resource

import pytest
from test_iceberg import properties

from penstock import Event
from penstock.app.stream import Sink, Source, Stream
from penstock.connectors.declaration import SourceContext
from penstock.connectors.files import format_of
from penstock.connectors.registry import bind_sinks, bind_source
from penstock.errors import ConfigurationError, SinkError
from penstock.storage import durable
from penstock.testing.contracts import Sample, stage


class Row(Event):
    k: str


STREAM = Stream("Samples", Sample)


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("generator:poisson?rate=5&rate=7", "gives rate twice; give it once"),
        ("generator:poisson?rate=5&scv=3", "scv is for bursty, not poisson; leave it out"),
        ("generator:constant?rate=5&speed=3", "speed is for recorded, not constant"),
        ("generator:poisson?rate=5&times=x", "times is for recorded"),
        ("generator:recorded?times=x&rate=5", "rate is for constant and poisson and bursty, not recorded"),
        ("generator:recorded?times=x&seed=5", "seed is for"),
        ("jsonl:{}?encoding=hex", "encoding=hex must be an encoding"),
        ("csv:{}?encoding=rot13", "encoding=rot13 must be an encoding"),
        ("jsonl:{}?encoding=idna", "encoding=idna must be an encoding"),
        ("jsonl:{}?encoding=undefined", "encoding=undefined must be an encoding"),
        ("jsonl:{}?encoding=", "encoding= is empty; give an encoding"),
        ("jsonl:~nobody-of-this-name/x", "no home directory"),
    ],
)
def test_an_option_of_a_source_without_effect_is_refused(tmp_path, uri, said):
    with pytest.raises(ConfigurationError, match=said):
        bind_source(Source("Rows", Row), uri.format(tmp_path), SourceContext())


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-16-le", "utf-8-sig", "cp1252", "utf-7", "shift_jis", "cp037"])
def test_encodings_of_texts_are_taken(tmp_path, encoding):
    (tmp_path / "a.csv").write_bytes("k\nParis\n".encode(encoding))
    source = bind_source(Source("Rows", Row), f"csv:{tmp_path}?encoding={encoding}", SourceContext())
    assert [row for part in source.files.parts(str(tmp_path / "a.csv")) for row in part] == [{"k": "Paris"}]


@pytest.mark.parametrize(
    ("uri", "said"), [("sqlite:{}/d.db?table=", "table= is empty"), ("sqlite:~nobody-of-this-name/d", "no home")]
)
def test_an_option_of_a_sink_without_effect_is_refused(tmp_path, uri, said):
    with pytest.raises(ConfigurationError, match=said):
        bind_sinks([Sink("Out", STREAM, uri.format(tmp_path))], {}, tmp_path)


def test_snapshots_may_be_kept_for_ever(tmp_path):
    given = "&".join(f"catalog.{name}={text}" for name, text in properties(tmp_path).items())
    uri = f"iceberg:lake/results.samples?{given}&keep=1000000d"
    sink = bind_sinks([Sink("Out", STREAM, uri)], {}, tmp_path / "output")["Out"]
    sink.claim("run-1", ())
    for batch in (98, 99):
        sink.deliver("main", batch, stage(sink, [Sample("a", batch)]))
    assert sorted(row.number for row in sink.read()) == [98, 99]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"owner": 1}', "null"])
def test_a_damaged_note_of_the_owner_is_named(tmp_path, content):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".penstock").write_text(content)
    sink = bind_sinks([Sink("Out", STREAM, f"jsonl:{tmp_path}/out")], {}, tmp_path)["Out"]
    for start in (sink.inspect, sink.claim):
        with pytest.raises(SinkError, match=r"\.penstock is damaged, which names the run"):
            start("run-1", ())


@pytest.mark.parametrize(
    ("name", "kind"), [("a.csv.gz", "csv"), ("A.CSV", "csv"), ("b.txt.bz2", "text"), ("c.jsonl.gz", "jsonl"), ("d", "jsonl")]
)
def test_the_format_of_a_path_is_that_of_what_is_compressed(tmp_path, name, kind):
    assert format_of(str(tmp_path / name)) == kind
    (tmp_path / name).write_text("")
    assert format_of(str(tmp_path)) == kind


def test_a_write_that_fails_leaves_no_draft(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        for write in (durable.write, durable.create):
            with pytest.raises(OSError, match="File too large"):
                write(tmp_path / "file", b"x" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []
