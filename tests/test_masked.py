"""Secrets stand in no sentence and in no file."""

import json

import pytest

from penstock.cli.main import main
from penstock.engine import RunOptions
from penstock.engine.binding import _plain
from penstock.errors import ConfigurationError, SinkError, SourceError
from penstock.masked import masked, shown

HUSH = "hu@sh:/x"


@pytest.mark.parametrize(
    "text",
    [
        f"postgres://me:{HUSH}@host/db", f"postgresql://me:{HUSH}@host/db?nope=1", f"postgresql:me:{HUSH}@host",
        "kafka:h:9092/t?kafka.sasl.password=hush", "kafka:h/t?registry.basic.auth.user.info=me:hush", "s3a://KEY:hush@bucket/path",
        "delta:x?storage.AWS_SECRET_ACCESS_KEY=hush", "spark.hadoop.fs.s3a.secret.key=hush", "--api_key=hush", "a?token=hush&b=c",
        f"Source X: could not reach http://me:{HUSH}@registry:8081 (refused)",
    ],
)  # fmt: skip
def test_no_secret_is_shown(text):
    for what in (masked(text), str(ConfigurationError(text)), str(SinkError(text)), repr(SourceError(text))):
        assert "hush" not in what
        assert "sh:/x" not in what
        assert "***" in what


@pytest.mark.parametrize(
    "text",
    [
        "jsonl:in?max_files=3", "kafka:h:9092,g:9092/t?header.x-id=a", "postgresql://me@host/db?table=t", "/a/b:c.jsonl",
        "Element a: b, c@d", "kafka.sasl.password=env:SECRET", "generator:poisson?rate=10", "at 12:30, me@host.org",
    ],
)  # fmt: skip
def test_what_is_no_secret_is_shown_as_it_is(text):
    assert masked(text) == text


def test_starts_keep_settings_without_their_secrets():
    conf = {"spark.hadoop.fs.s3a.secret.key": "hush", "spark.executor.memory": "1g", "spark.ssl.keyPassword": "hush"}
    kept = _plain(RunOptions(conf=conf, sources={"Words": "postgres://me:hush@host/db"}))
    assert "hush" not in json.dumps(kept, default=str)
    assert shown(conf)["spark.executor.memory"] == "1g"


APP = """
from penstock import App, Event
class Word(Event):
    text: str
app = App("secretive")
app.parameter("api_key", "none", help="of a service")
app.sink("Out", app.source("Words", Word))
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["--sink", "Out=postgres://me:hush@host/db"], ["--sink", "Out=mysql://me:hush@host/db"], ["--sink", "Out=postgresql://me:hush@host/db?nope=1"],
        ["--sink", "postgres://me:hush@host/db"], ["--source", "Words=kafka:h:1/t?kafka.sasl.password=hush&nope=1"],
        ["--conf", "spark.secret.key:hush=1", "--sink", "Out=nope:x"], ["--otlp", "ftp://me:hush@host"],
    ],
)  # fmt: skip
def test_a_slip_on_the_command_line_shows_none(tmp_path, monkeypatch, capsys, arguments):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").write_text(APP)
    with pytest.raises(SystemExit) as refused:
        main(["run", "app.py", "--source", "Words=jsonl:.", *arguments])
    assert refused.value.code == 2
    said = "".join(capsys.readouterr())
    assert said.startswith("penstock: ")
    assert "hush" not in said


@pytest.mark.spark
def test_a_runs_directory_holds_no_secret(tmp_path, spark):
    from penstock.app.loader import load_app
    from penstock.engine import run

    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.jsonl").write_text('{"text": "a"}\n')
    app, reference = load_app(str(tmp_path / "app.py"), {"api_key": "hush"})
    options = RunOptions(
        runs=tmp_path / "runs", sources={"Words": f"jsonl:{tmp_path / 'in'}"}, until_idle=True, quiet=True, spark=spark.get()
    )  # fmt: skip
    result = run(app, options, application=reference)
    files = [path for path in result.directory.rglob("*") if path.is_file()]
    assert len(files) > 5
    assert [path for path in files if b"hush" in path.read_bytes()] == []
