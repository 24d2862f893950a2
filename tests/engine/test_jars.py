"""Jars are fetched for a Spark that lacks them, and sent to no executor whose image has them."""

from penstock.connectors.declaration import Jars, Release
from penstock.engine.session import maven


def test_what_lies_among_sparks_own_jars_is_left_out(tmp_path, monkeypatch):
    fetched, own = tmp_path / "fetched", tmp_path / "spark" / "jars"
    for place in (fetched, own):
        place.mkdir(parents=True)
        (place / "here-1.jar").touch()
    (fetched / "lacking-1.jar").touch()
    monkeypatch.setattr(maven, "fetch", lambda jars: fetched)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    assert maven.jars_of([Jars("group", "artifact", (Release("1"),))]) == [fetched / "lacking-1.jar"]
