"""A Kafka broker whose clients must prove who they are, with real certificates."""

import shutil
import subprocess
from pathlib import Path

from adapters import required
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from penstock.bench.servers.broker import KafkaBroker
from penstock.engine.java import java_home

PASSWORD = 'pass"word\\ 1'
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="plain-password";'


def certificate(directory: Path, name: str, *given: str) -> tuple[Path, Path, Path]:
    """A certificate that signs itself: in a file by itself, its key, and both in one."""
    required(shutil.which("openssl"), "openssl, to make a certificate")
    store, own = directory / f"{name}.p12", ["-storepass", "secret"]
    subprocess.run(
        [java_home() / "bin" / "keytool", "-genkeypair", "-alias", name, "-keyalg", "RSA", "-dname", f"CN={name}", "-ext",
         "SAN=ip:127.0.0.1,dns:localhost", "-storetype", "PKCS12", "-keystore", store, *own, *given],
        check=True, capture_output=True,
    )  # fmt: skip
    files = directory / f"{name}.crt", directory / f"{name}.key", directory / f"{name}.pem"
    for file, wanted in zip(files, (["-nokeys"], ["-nocerts", "-nodes"], ["-nodes"]), strict=True):
        command = ["openssl", "pkcs12", "-in", store, "-passin", "pass:secret", *wanted, "-out", file]
        subprocess.run(command, check=True, capture_output=True)
    return files


class SecureBroker:
    """The broker, with certificates and users: ``alice`` by SCRAM and PLAIN, or by the certificate ``client``."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self.ca, _, server = certificate(directory, "server")
        self.expired_ca, _, expired = certificate(directory, "expired", "-startdate", "-10d", "-validity", "5")
        self.client, self.key, _ = certificate(directory, "client")
        self.password = directory / "password"
        self.password.write_text(PASSWORD + "\n")
        login = {
            "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN",
            "scram-sha-256.sasl.jaas.config": SCRAM, "scram-sha-512.sasl.jaas.config": SCRAM, "plain.sasl.jaas.config": PLAIN,
        }  # fmt: skip
        tls = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(server)}
        mutual = {
            "ssl.client.auth": "required",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.client),
        }
        listeners = {
            "LOGIN": ("SASL_SSL", {**login, **tls}),
            "EXPIRED": ("SASL_SSL", {**login, **tls, "ssl.keystore.location": str(expired)}),
            "MUTUAL": ("SSL", {**tls, **mutual}),
        }
        self.broker = KafkaBroker(directory / "kafka", listeners=listeners)

    def __enter__(self) -> "SecureBroker":
        self.broker.__enter__()
        admin = AdminClient({"bootstrap.servers": self.broker.brokers})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            alice = UserScramCredentialUpsertion("alice", ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
            admin.alter_user_scram_credentials([alice])["alice"].result()
        return self

    def __exit__(self, *_: object) -> None:
        self.broker.kill()

    def uri(self, topic: str, listener: str = "LOGIN", **options: object) -> str:
        """A URI of a topic; options are Kafka's, with underscores for points."""
        given = {
            "security.protocol": "SSL" if listener == "MUTUAL" else "SASL_SSL",
            "ssl.ca.location": self.expired_ca if listener == "EXPIRED" else self.ca,
        }
        if listener == "MUTUAL":
            given |= {"ssl.certificate.location": self.client, "ssl.key.location": self.key}
        else:
            given |= {
                "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "alice", "sasl.password": f"file:{self.password}"
            }  # fmt: skip
        given |= {name.replace("_", "."): value for name, value in options.items()}
        query = "&".join(f"kafka.{name}={value}" for name, value in given.items() if value is not None)
        return f"kafka:{self.broker.at(listener)}/{topic}?{query}"
