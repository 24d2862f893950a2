"""What several commands take: a run by its name or by its directory, and secrets that are named."""

import pytest

from penstock.app.parameter import Parameter
from penstock.cli.arguments import RECORDING, RUN
from penstock.errors import ConfigurationError
from penstock.secret import conf_of


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("mine", "runs/mine"),
        ("runs/mine", "runs/mine"),
        ("other", "other"),
        ("log.json", "log.json"),
        ("input", "runs/input"),  # a directory here that is no run hides none
        ("copied", "copied"),
        ("empty", "empty"),
    ],
)
def test_a_run_is_named_or_its_directory_is(tmp_path, monkeypatch, given, wanted):
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    (tmp_path / "runs" / "log.json").mkdir()
    (tmp_path / "log.json").write_text("{}")
    for run in ("runs/input", "runs/copied", "copied"):
        (tmp_path / run).mkdir()
        (tmp_path / run / "manifest.json").write_text("{}")
    for directory in ("input", "empty", "runs/empty"):
        (tmp_path / directory).mkdir()
    monkeypatch.chdir(tmp_path)
    assert str(RUN.convert(given, None, None)) == wanted
    assert RECORDING.convert(given, None, None) == wanted


def test_secrets_of_spark_and_of_applications_are_named(tmp_path, monkeypatch):
    (tmp_path / "secret").write_text("hush\n")
    monkeypatch.setenv("WORD", "quiet")
    given = {
        "spark.ssl.keyPassword": f"file:{tmp_path}/secret",
        "spark.eventLog.dir": "file:/var/log",
        "spark.x": "env:WORD",
        "spark.ssl.keyStore": "file:/etc/keys",
    }
    assert conf_of(given) == {**given, "spark.ssl.keyPassword": "hush", "spark.x": "quiet"}
    assert Parameter("password", "", "", ()).read("env:WORD") == "quiet"
    assert Parameter("path", "", "", ()).read("env:WORD") == "env:WORD"
    with pytest.raises(ConfigurationError, match="there is no variable NOWHERE"):
        Parameter("password", "", "", ()).read("env:NOWHERE")
