"""Users, passwords and certificates of Kafka: settings for two client libraries, and a broker that asks for them."""

import base64
from contextlib import nullcontext

import pytest

from penstock import Event
from penstock.app.stream import Sink, Source, Stream
from penstock.connectors import SourceContext
from penstock.connectors.kafka import security
from penstock.connectors.kafka.courier import Courier, Outgoing, Transactions
from penstock.connectors.kafka.place import KafkaPlace
from penstock.connectors.kafka.topic import Topic
from penstock.connectors.registry import bind_sinks, bind_source
from penstock.connectors.uri import Uri
from penstock.errors import ConfigurationError, SinkError, SourceError


class Word(Event):
    text: str


def place(uri):
    return KafkaPlace.of(Uri.parse(uri))


@pytest.mark.parametrize(
    ("listener", "options"),
    [
        ("LOGIN", {}),
        ("LOGIN", {"sasl_mechanism": "SCRAM-SHA-512"}),
        ("LOGIN", {"sasl_mechanism": "PLAIN", "sasl_password": "env:ALICE"}),
        ("LOGIN", {"sasl_mechanism": "OAUTHBEARER"}),
        ("MUTUAL", {}),
    ],
)
def test_who_proves_who_they_are_is_let_in(secure, listener, options, monkeypatch):
    monkeypatch.setenv("ALICE", "plain-password")
    assert Topic(place(secure.uri("open", listener, **options)), create=True).bounds()


@pytest.mark.parametrize(
    ("listener", "options", "said"),
    [
        ("LOGIN", {"sasl_password": "env:WRONG"}, r"refuses us \(.*[Aa]uthentication.*check kafka.sasl.mechanism"),
        ("LOGIN", {"sasl_username": "bob"}, r"refuses us \(.*[Aa]uthentication"),
        ("LOGIN", {"ssl_ca_location": None}, r"refuses us \(.*certificate.*check kafka.security.protocol"),
        ("LOGIN", {"ssl_ca_location": "/dev/null"}, r"a setting of the URI does not fit \(.*ssl.ca.location"),
        ("EXPIRED", {}, r"refuses us \(certificate has expired\); .*the dates and names of certificates"),
        (
            "LOGIN",
            {"sasl_mechanism": "OAUTHBEARER", "sasl_oauthbearer_client_secret": "env:WRONG"},
            r"refuses us \(.*token.*check kafka.sasl.mechanism",
        ),
        ("MUTUAL", {"ssl_certificate_location": None, "ssl_key_location": None}, r"refuses us \(.*SSL alert"),
    ],
)
def test_who_does_not_is_told_why(secure, listener, options, said, monkeypatch):
    monkeypatch.setenv("WRONG", "guess")
    with pytest.raises(SourceError, match=said) as refused:
        Topic(place(secure.uri("closed", listener, **options)))
    assert "guess" not in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("allowed", "bind", "said"),
    [
        ((), "source", r"refuses us \(.*Topic authorization failed\); have its owner allow the user to describe the topic"),
        (
            ("WRITE",),
            "source",
            r"acl-WRITE-source: the user may not read this topic; have its owner allow the user to read it\.",
        ),
        (("READ",), "source", None),
        (
            ("READ",),
            "sink",
            r"Sink Out: .*the user may not write this topic; have its owner allow the user to read and write it\.",
        ),
        (
            ("WRITE",),
            "sink",
            r"Sink Out: .*the user may not read this topic; have its owner allow the user to read and write it\.",
        ),
        (("READ", "WRITE"), "sink", None),
    ],
)
def test_a_topic_that_may_not_be_used_is_refused_when_it_is_bound(secure, tmp_path, allowed, bind, said):
    topic = f"acl-{'-'.join(allowed)}-{bind}"
    secure.create(topic)
    if allowed:
        secure.allow(topic, *allowed)
    uri = secure.uri(topic, sasl_username="carol")
    with nullcontext() if said is None else pytest.raises(SinkError if bind == "sink" else SourceError, match=said):
        if bind == "source":
            bind_source(Source("Words", Word), uri, SourceContext(None))
        else:
            bind_sinks([Sink("Out", Stream("Words", Word), uri)], {"Out": uri}, tmp_path)["Out"].claim("run", ())


def test_a_topic_that_may_not_be_made_is_refused(secure):
    secure.allow("acl-unmade", "READ", "WRITE")
    with pytest.raises(
        SourceError, match=r"acl-unmade: there is no such topic, and the user may not create it \(.*create it, or have"
    ):
        Topic(place(secure.uri("acl-unmade", sasl_username="carol")), create=True)


def test_a_right_that_is_taken_in_mid_run_is_named(secure):
    """Of messages and of a transaction; that may not be begun under its name is known with the first micro-batch."""
    secure.create("acl-taken")
    secure.allow("acl-taken", "READ", "WRITE")
    topic = Topic(place(secure.uri("acl-taken", sasl_username="carol")), needs=("read", "write"))
    courier, messages = Courier(topic, "Out"), [("1", Outgoing(None, [], b"{}"))]
    courier.send("main", 0, messages)
    ends = {partition: end for partition, (_, end) in topic.bounds().items()}
    assert topic.count({}, ends) == 1  # although carol may read as no group
    with pytest.raises(SinkError, match=r"does not take a transaction \(.*\); have its owner allow .* begin with penstock/\."):
        Transactions(topic, "Out", "run", "run").prepare("main")
    secure.allow("penstock/", "WRITE", "DESCRIBE", kind="TRANSACTIONAL_ID", prefix=True)
    transactions = Transactions(topic, "Out", "run", "run")
    transactions.prepare("main")
    with pytest.raises(SinkError, match=r"have their owner allow .* groups of names that begin with penstock/\."):
        transactions.reached("main")
    secure.allow("penstock/", "READ", kind="GROUP", prefix=True)
    assert transactions.reached("main") is None
    transactions.send("main", 0, messages)
    assert transactions.reached("main") == 0
    secure.forbid("acl-taken")
    for way in (courier, transactions):
        with pytest.raises(
            SinkError, match=r"Sink Out: .*does not take .*\(.*authorization failed.*\); have its owner allow the user"
        ):
            way.send("main", 1, messages)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("kafka.sasl.password=hush", "kafka.sasl.password=env:NAME"),
        ("kafka.ssl.key.password=hush", "file:PATH"),
        ("kafka.sasl.jaas.config=hush", "kafka.sasl.username and kafka.sasl.password"),
        ("kafka.ssl.truststore.location=x.jks", "kafka.ssl.ca.location"),
        ("kafka.ssl.keystore.password=hush", "kafka.ssl.certificate.location"),
        ("kafka.security.protocol=SASL_SSL", "and is missing"),
        ("kafka.enable.ssl.certificate.verification=false", "kafka.ssl.ca.location"),
        ("kafka.sasl.mechanism=GSSAPI", "must be one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER, and is GSSAPI"),
    ],
)
def test_what_is_not_for_both_clients_or_not_for_eyes_is_refused(options, said):
    with pytest.raises(ConfigurationError, match=said) as refused:
        place(f"kafka:broker:9092/words?{options}")
    assert "hush" not in str(refused.value)


def test_settings_for_java(tmp_path, monkeypatch):
    for name in ("ca", "crt", "password"):
        (tmp_path / name).write_text(f"{name} of alice\n")
    key = key_file(tmp_path / "key", "ENCRYPTED PRIVATE KEY")
    monkeypatch.setenv("PASSWORD", 'a"b\\c')
    given = place(
        f"kafka:broker:9092/words?kafka.security.protocol=SASL_SSL&kafka.sasl.mechanisms=SCRAM-SHA-512&kafka.sasl.username=al"
        f"&kafka.sasl.password=env:PASSWORD&kafka.ssl.ca.location={tmp_path / 'ca'}&kafka.client.id=me"
        f"&kafka.ssl.certificate.location={tmp_path / 'crt'}&kafka.ssl.key.location={tmp_path / 'key'}"
        f"&kafka.ssl.key.password=file:{tmp_path / 'password'}&kafka.ssl.endpoint.identification.algorithm=none"
    )
    assert 'a"b' not in f"{given} {given.uri()} {given!r}"
    assert given.for_connector() == {
        "kafka.bootstrap.servers": "broker:9092",
        "kafka.client.id": "me",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": (
            'org.apache.kafka.common.security.scram.ScramLoginModule required username="al" password="a\\"b\\\\c";'
        ),
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": "ca of alice\n",
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": "crt of alice\n",
        "kafka.ssl.keystore.key": key.read_text(),
        "kafka.ssl.key.password": "password of alice",
        "kafka.ssl.endpoint.identification.algorithm": "",
    }


def key_file(path, kind, content=b"key"):
    path.write_text(f"-----BEGIN {kind}-----\n{base64.b64encode(content).decode()}\n-----END {kind}-----\n")
    return path


@pytest.mark.parametrize(
    ("kind", "content", "said"),
    [
        ("RSA PRIVATE KEY", b"", "reads PKCS 8 alone"),
        ("EC PRIVATE KEY", b"", "reads PKCS 8 alone"),
        ("ENCRYPTED PRIVATE KEY", b"-" + security.PBES2 + b"-", "encrypted by PBES2"),
        ("CERTIFICATE", b"", "no private key"),
    ],
)
def test_a_key_that_java_does_not_read_is_refused(tmp_path, kind, content, said):
    key = key_file(tmp_path / "key", kind, content)
    with pytest.raises(ConfigurationError, match=said):
        security.for_java({"ssl.key.location": str(key), "ssl.certificate.location": str(key)})


def test_the_password_of_a_key_that_has_none_is_left_out(tmp_path):
    key = key_file(tmp_path / "key", "PRIVATE KEY")
    settings = {"ssl.key.location": str(key), "ssl.certificate.location": str(key), "ssl.key.password": f"file:{key}"}
    assert "ssl.key.password" not in security.for_java(settings)


def test_tokens_for_java(tmp_path):
    (tmp_path / "ca").write_text("line\nline\n")
    settings = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.client.id": "alice",
        "sasl.oauthbearer.client.secret": "env:SECRET",
        "sasl.oauthbearer.token.endpoint.url": "https://who",
        "https.ca.location": str(tmp_path / "ca"),
        "sasl.oauthbearer.scope": "kafka",
    }
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SECRET", "hush")
        java = security.for_java(settings)
        assert security.opened(settings)["sasl.oauthbearer.method"] == "oidc"
    assert java.pop("sasl.jaas.config") == (
        f'{security.MODULE} required clientId="alice" clientSecret="hush" scope="kafka" ssl.truststore.type="PEM" '
        'ssl.truststore.certificates="line\\nline\\n";'
    )
    assert java == {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": "https://who",
        "sasl.login.callback.handler.class": security.HANDLER,
    }


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sasl.mechanism": "OAUTHBEARER"}, "needs kafka.sasl.oauthbearer.client.id, "),
        ({"sasl.password": "env:NOT_THERE"}, "no variable NOT_THERE"),
        ({"sasl.password": "file:/not/there"}, "/not/there cannot be read"),
        ({"ssl.ca.location": "/not/there"}, "/not/there cannot be read"),
        ({"sasl.mechanism": "PLAIN", "sasl.username": "al"}, "kafka.sasl.password is missing"),
        ({"ssl.key.location": "key"}, "kafka.ssl.certificate.location is missing"),
    ],
)
def test_what_is_missing_is_named(options, said):
    with pytest.raises(ConfigurationError, match=said):
        security.for_java(options)
