"""Secrets stand in no sentence and in no file."""

import msgspec
import pytest

from penstock.app.loader import AppReference
from penstock.cli.main import main
from penstock.connectors import Uri
from penstock.connectors.kafka.schema_registry import Registry
from penstock.engine import RunOptions
from penstock.engine.running.binding import start_of
from penstock.errors import ConfigurationError, RunFailedError, SinkError, SourceError
from penstock.masked import discreet, is_secret, masked, shown
from penstock.runs.starts import Environment, Start

HUSH = "hu@sh:/x"


@pytest.mark.parametrize(
    "uri",
    [
        f"postgres://me:{HUSH}@host/db",
        f"postgresql://me:{HUSH}@host/db?nope=1",
        "postgresql:me:hush@host",
        "postgresql://me:hu'sh x@host/db",
        "postgresql://me:hush@/db?host=/var/run",
        "kafka:h:9092/t?kafka.sasl.password=hu;sh,hush",
        "kafka:h/t?registry.basic.auth.user.info=me:hush",
        "s3a://KEY:hush@bucket/path",
        "delta:x?storage.AWS_SECRET_ACCESS_KEY=hush",
        "a?token=hush&b=c",
        "a?pass=hush",
        "a?sig=hush&x=1",
        "a?authorization=hush",
        "postgresql://me:hush?x@host/db/t?table=x",
        "postgresql://me:hu?sh?hush@host/db",
        "kafka:b:9092/t?registry=http://r:8081&registry.proxy=http://me:hush@proxy:3128",
    ],
)
def test_no_address_shows_a_secret(uri):
    for what in (masked(uri), str(Uri.parse(uri)), repr(Uri.parse(uri))):
        assert not any(part in what for part in ("hu@sh", "sh:/x", "hush", "hu'sh", "hu;sh"))
        assert "***" in what


@pytest.mark.parametrize(
    "sentence",
    [
        f"Source X: could not reach http://me:{HUSH}@registry:8081 (refused)",
        "'kafka:h/t?kafka.sasl.password=hush&a=b' takes no option a",
        "--conf spark.hadoop.fs.s3a.secret.key=hush is not understood",
        "postgresql://me:hush?x@host/db does not answer",
        "java ended: -Djavax.net.ssl.trustStorePassword=hush -Dx=y",
    ],
)
def test_no_sentence_shows_a_secret(sentence):
    for what in (str(ConfigurationError(sentence)), str(SinkError(sentence)), repr(SourceError(sentence))):
        assert not any(part in what for part in ("hu@sh", "sh:/x", "hush"))
        assert "***" in what


@pytest.mark.parametrize(
    "text",
    [
        "jsonl:in?max_files=3",
        "kafka:h:9092,g:9092/t?header.x-id=a",
        "postgresql://me@host/db?table=t",
        "postgresql://host:5432/db?table=a@b",
        "/a/b:c.jsonl",
        "file:/data/2026:01@eu/x.csv",
        "sqlite:/data/a:b@c.db",
        "kafka:host:9092/topic@v1",
        "generator:poisson?rate=10",
        "kafka:h/t?kafka.sasl.password=env:SECRET",
    ],
)
def test_what_is_no_secret_is_shown_as_it_is(text):
    assert masked(text) == discreet(text) == text


def test_words_of_a_users_own_stay():
    said = "Element E: ValueError: unknown token=colour, at 12:30@zurich, near a:b@c, {'password': 'x'}, me@host.org"
    assert str(RunFailedError(said)) == said


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("api_key", True),
        ("token", True),
        ("db_password", True),
        ("access.key", True),
        ("max_tokens", False),
        ("tokens", False),
        ("tokenizer", False),
        ("private_only", False),
        ("keys", False),
        ("secretary", False),
        ("keystore_dir", False),
    ],
)
def test_parameters_are_secrets_by_their_names(name, secret):
    assert is_secret(name) == secret


def test_starts_keep_settings_without_their_secrets():
    conf = {"spark.hadoop.fs.s3a.secret.key": "hush", "spark.executor.memory": "1g", "spark.ssl.keyPassword": "hush"}
    uri = "postgres://me:hush@host/db"
    options = RunOptions(conf=conf, sources={"Words": uri}, sinks={"Out": uri}, hops="kafka:h:1?kafka.sasl.password=hush")
    where = AppReference("words", "app", (("token", "hush"), ("top", "3")), "/apps")
    environment = Environment("0.1.0", "4.3.0", "3.11.7", "Linux", 2)
    kept = start_of(options, where, 1.0, 0.0, environment, resumed=False, changed=False)
    assert b"hush" not in msgspec.json.encode(kept)
    assert kept.conf["spark.executor.memory"] == "1g"
    assert msgspec.json.decode(msgspec.json.encode(kept), type=Start) == kept


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
        ["--sink", "Out=postgres://me:hush@host/db"],
        ["--sink", "Out=mysql://me:hush@host/db"],
        ["--sink", "Out=postgresql://me:hush@host/db?nope=1"],
        ["--sink", "postgres://me:hush@host/db"],
        ["--source", "Words=kafka:h:1/t?kafka.sasl.password=hush&nope=1"],
        ["--conf", "spark.secret.key:hush=1", "--sink", "Out=nope:x"],
        ["--otlp", "ftp://me:hush@host"],
    ],
)
def test_a_slip_on_the_command_line_shows_none(tmp_path, monkeypatch, capsys, arguments):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").write_text(APP)
    with pytest.raises(SystemExit) as refused:
        main(["run", "app.py", "--source", "Words=jsonl:.", *arguments])
    assert refused.value.code == 2
    said = "".join(capsys.readouterr())
    assert said.startswith("penstock: ")
    assert "hush" not in said


@pytest.mark.parametrize(
    "name",
    [
        "spark.hadoop.fs.azure.sas.box.acct.blob.core.windows.net",
        "spark.hadoop.fs.s3a.encryption.key",
        "spark.hadoop.fs.s3a.server-side-encryption.key",
        "spark.driver.extraJavaOptions",
        "spark.hadoop.fs.azure.account.key.acct.dfs.core.windows.net",
    ],
)
def test_no_setting_of_spark_shows_a_secret(name):
    value = "-Djavax.net.ssl.trustStorePassword=hush -Da=b" if "Options" in name else "hush"
    assert "hush" not in shown({name: value})[name]
    assert shown({"spark.sql.shuffle.partitions": "4", "spark.passive": "x"}) == {
        "spark.sql.shuffle.partitions": "4",
        "spark.passive": "x",
    }


def test_a_proxys_password_is_refused_where_others_could_read_it():
    uri = Uri.parse("kafka:b:9092/t?registry=http://r:8081&registry.proxy=http://me:hush@proxy:3128")
    with pytest.raises(ConfigurationError, match="registry.proxy holds a secret") as error:
        Registry.of(uri)
    assert "hush" not in str(error.value)
