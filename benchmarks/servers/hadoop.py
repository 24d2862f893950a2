"""Hadoop's servers, from the one artifact that has them all."""

import os
from collections.abc import Mapping
from pathlib import Path
from xml.sax.saxutils import escape

import pyspark

from penstock.connectors.declaration import Jars, Release
from penstock.engine.session.java import java_home
from penstock.engine.session.maven import fetch
from penstock.engine.session.stores import hadoop_version

LOGGER = ("org.slf4j", "slf4j-simple", "1.7.36")
"""By which a server's log has the reason where it does not come up."""
CIPHERS = ("org.bouncycastle", "bcpkix-jdk18on", "1.82")
"""Which YARN's ResourceManager wants."""


def daemon(settings: Path, main: str, *arguments: str, told: str = "") -> list[object]:
    """The command that starts a server.

    Args:
        settings: the directory with its configuration.
        main: its class.
        told: a logger that says more than warnings.

    Raises:
        JarNotFoundError: Maven Central cannot be reached.
    """
    jars = fetch(
        Jars("org.apache.hadoop", "hadoop-client-minicluster", (Release(hadoop_version()),), besides=(LOGGER, CIPHERS))
    )
    spark = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent) / "jars"
    logging = [f"{jar}" for pattern in ("log4j-*", "slf4j-api-*") for jar in spark.glob(f"{pattern}.jar")]
    more = [f"-Dorg.slf4j.simpleLogger.log.{told}=info"] if told else []
    path = os.pathsep.join([str(settings), f"{jars}/*", *logging])
    options = ["-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    return [java_home() / "bin" / "java", *options, *more, "-cp", path, main, *arguments]


def configuration(settings: Mapping[str, str]) -> str:
    """Settings as Hadoop reads them."""
    entries = (
        f"<property><name>{escape(name)}</name><value>{escape(value)}</value></property>\n" for name, value in settings.items()
    )
    return f"<configuration>\n{''.join(entries)}</configuration>\n"
