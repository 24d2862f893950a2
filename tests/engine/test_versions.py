"""What Spark's versions can do, and the sentences for those that do not fit."""

import json
from importlib.metadata import version

import pyspark
import pytest
from crashpoints.runner import Place, Start, points_of
from crashpoints.workloads import WORKLOADS

from penstock.connectors.declaration import Jars, Release
from penstock.connectors.kafka.place import JARS
from penstock.connectors.sequence import with_ends
from penstock.engine.running import realtime
from penstock.engine.session import maven, stores
from penstock.engine.session.versions import Spark, installed, refuse_other_home, refuse_others
from penstock.errors import ConfigurationError


@pytest.fixture
def having(monkeypatch):
    """Lets another version of PySpark be installed."""

    def has(number):
        installed.cache_clear()
        monkeypatch.setattr(pyspark, "__version__", number)

    yield has
    monkeypatch.undo()
    installed.cache_clear()


@pytest.mark.parametrize("number", ["3.5.9", "2.4.8", "4.4.0", "5.0.0.dev1"])
def test_a_spark_that_is_too_old_or_too_new_is_refused_in_a_sentence(having, number):
    having(number)
    with pytest.raises(ConfigurationError, match="needs Spark 4.0 to 4.3") as refused:
        installed()
    assert f"this is {number} in " in str(refused.value)
    assert "penstock observe" in str(refused.value)


@pytest.mark.parametrize("number", ["4.0.5", "4.1.4", "4.2.1", "4.3.0"])
def test_each_version_between_is_taken(having, number):
    having(number)
    assert installed().version == number


def test_the_java_part_is_of_the_same_version(monkeypatch):
    monkeypatch.delenv("SPARK_HOME", raising=False)
    refuse_others(version("pyspark"))
    with pytest.raises(ConfigurationError, match=r"of the session that was given, is 3\.5\.1: pip install 'pyspark~=3\.5\.0'"):
        refuse_others("3.5.1")


def test_a_home_of_another_version_is_refused_before_anything_is_touched(tmp_path, monkeypatch):
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.13-3.5.0-vendor-7.jar").touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(ConfigurationError, match=r"of SPARK_HOME \(.*\), is 3\.5\.0-vendor-7: unset SPARK_HOME"):
        refuse_other_home()


@pytest.mark.parametrize(
    ("number", "minor"), [("4.1.0-amzn-1", (4, 1)), ("4.0.0.dev0", (4, 0)), ("4.1-vendor", (4, 1)), ("odd", (0, 0))]
)
def test_versions_of_vendors_are_read(number, minor):
    assert Spark(number).minor == minor


def test_capabilities_come_with_versions():
    known = [Spark(number) for number in ("4.0.5", "4.1.4", "4.2.1", "4.3.0")]
    assert [each.admits for each in known] == [False, False, True, True]
    assert [each.real_time for each in known] == [False, False, True, True]
    assert [each.real_time_state for each in known] == [False, False, False, True]
    assert ["streaming.checkpointing." in each.checkpoint_manager for each in known] == [False, True, True, True]


@pytest.mark.parametrize(
    ("number", "connector", "tokens"),
    [("4.0.5", "4.0.4", "4.0.0"), ("4.1.4", "4.1.3", "4.1.1"), ("4.2.1", "4.2.0", "4.0.0"), ("4.3.0", "4.2.0", "4.0.0")],
)
def test_the_connector_of_kafka_is_of_sparks_minor_version_where_its_own_is_not_published(having, number, connector, tokens):
    having(number)
    own, other = maven._artifacts(JARS)
    assert (own.version, own.overridden[0][2]) == (number, number)
    assert (other.version, other.overridden[0][2]) == (connector, tokens)


def test_a_release_for_any_spark_is_taken_by_all():
    [only] = maven._artifacts(Jars("group", "artifact", (Release("1"),)))
    assert only.version == "1"


def test_real_time_mode_needs_a_spark_that_has_it(having):
    having("4.1.4")
    with pytest.raises(ConfigurationError, match=r"needs Spark 4\.2 or newer, and this is 4\.1\.4"):
        realtime._refuse_old()
    having("4.2.1")
    realtime._refuse_old()


def test_the_parts_of_the_sdk_are_known_for_each_hadoop():
    assert set(stores.PARTS_OF_SDK) == {"3.4.1", "3.4.2", "3.5.0"}
    assert {len(parts) for parts in stores.PARTS_OF_SDK.values()} == {4, 5}


def test_what_waits_is_reckoned_where_spark_does_not_ask_for_it(tmp_path):
    from crashpoints.workloads import APPS

    from penstock.app.loader import load_app
    from penstock.connectors.declaration import SourceContext
    from penstock.connectors.log.log import EventLog
    from penstock.connectors.registry import bind_source

    EventLog(tmp_path).append("Words", [b'{"text": "a", "number": 1}'] * 7)
    app, reference = load_app(f"{APPS}:words")
    [source] = app.topology().sources
    bound = bind_source(source, f"log:{tmp_path}", SourceContext(reference))
    end = json.dumps({"first": 0, "end": 5, "started": 1.0})
    told = {"sources": [{"endOffset": end, "latestOffset": end}, {"endOffset": None}], "batchId": 3}
    ended = with_ends(told, ["Words"], {"Words": bound})
    assert ended["sources"][0]["latestOffset"] == {"first": 0, "end": 7, "started": 1.0}
    assert ended["sources"][1] == {"endOffset": None}
    assert ended["batchId"] == 3


@pytest.mark.servers  # which kills a process
def test_a_run_does_not_go_back_to_an_older_spark(tmp_path):
    workload = next(workload for workload in WORKLOADS if workload.name == "jsonl")
    place = Place(tmp_path)
    half = next(at for at, point in enumerate(points_of(place, workload)) if "commits/1" in point)
    place.anew(workload)
    assert place.start(workload, Start(half)).killed
    manifest = place.world / "runs" / "run" / "manifest.json"
    now = f'"spark": "{version("pyspark")}"'
    assert now in manifest.read_text()
    manifest.write_text(manifest.read_text().replace(now, '"spark": "4.9.1"'))
    refused = place.start(workload, Start()).error
    assert "was run on Spark 4.9.1, and this is" in refused
    assert "pip install pyspark==4.9.1" in refused
    manifest.write_text(manifest.read_text().replace('"spark": "4.9.1"', '"spark": "4.0.5"'))
    assert not place.to_the_end(workload).error
