"""What a session's processes take of the memory: the JVM's collector, and what Python workers give back."""

import os
import subprocess
import sys

import pytest

from penstock.engine.session.memory import FILES, HEAP_IN, OPTIONS_IN, collector

SERIAL = "-XX:+UseSerialGC"


@pytest.fixture(autouse=True)
def _no_options_of_the_environment(monkeypatch):
    for name in (*OPTIONS_IN, *HEAP_IN, "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("master", "heap", "given", "wanted"),
    [
        ("local[2]", "1g", "", SERIAL),
        ("local", "512m", "", SERIAL),
        ("local[2,4]", "2048", "-Dmine=1", SERIAL),
        ("local[4]", "2gb", "", SERIAL),
        ("local[5]", "1g", "", ""),
        ("local[2]", "3g", "", ""),
        ("local[2]", "2049m", "", ""),
        ("local[2]", "much", "", ""),
        ("local[2]", "1g", "-XX:+UseParallelGC", ""),
        ("local[2]", "1g", "-Xmn8m -XX:+UseZGC", ""),
        ("local[2]", "1g", "-XX:-UseG1GC", ""),
        ("spark://host:7077", "1g", "", ""),
        ("local-cluster[2,1,1024]", "1g", "", ""),
        ("yarn", "1g", "", ""),
    ],
)
def test_a_small_heap_on_few_cores_gets_the_serial_collector(master, heap, given, wanted):
    assert collector(master, heap, given) == wanted


@pytest.mark.parametrize("cores", [1, 4, 5, None])
def test_all_cores_are_counted(monkeypatch, cores):
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert collector("local[*]", "1g", "") == (SERIAL if cores != 5 else "")


@pytest.mark.parametrize("name", OPTIONS_IN)
def test_a_collector_of_the_environment_is_left_alone(monkeypatch, name):
    monkeypatch.setenv(name, "-XX:+UseG1GC")
    assert collector("local[2]", "1g", "") == ""


@pytest.mark.parametrize("name", HEAP_IN)
def test_a_heap_of_the_environment_is_not_known(monkeypatch, name):
    monkeypatch.setenv(name, "16g")
    assert collector("local[2]", "1g", "") == ""


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("spark.driver.defaultJavaOptions -XX:+UseParallelGC", ""),
        ("spark.driver.memory 16g", ""),
        ("export SPARK_DRIVER_MEMORY=16g", ""),
        ("spark.executor.cores 2", SERIAL),
    ],
)
def test_what_files_of_configuration_choose_is_left_alone(monkeypatch, tmp_path, file, line, wanted):
    (tmp_path / file).write_text(line)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert collector("local[2]", "1g", "") == wanted


def test_java_starts_beside_a_collector_of_the_configuration(monkeypatch, tmp_path):
    """Spark's launcher puts these options before ours, and PySpark does not know them."""
    (tmp_path / "spark-defaults.conf").write_text("spark.driver.defaultJavaOptions -XX:+UseParallelGC\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    option = collector("local[2]", "1g", "")
    command = ["java", "-XX:+UseParallelGC", *option.split(), "-version"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc keeps free memory, and only Linux tells it so")
def test_a_process_gives_back_what_it_no_longer_needs():
    answer = subprocess.run([sys.executable, "-c", HOLDING], capture_output=True, text=True, check=True)
    assert int(answer.stdout) > 30 << 20


HOLDING = """
import os
from penstock.engine.session.memory import give_back

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

give_back()
block = b"x" * (30 << 20)
del block
kept = [b"x" * (2 << 20) for _ in range(20)]
most = resident()
kept.clear()
print(most - resident())
"""
"""Says how much of 40 MB comes back. By itself, glibc takes one large block as a sign to keep so much in the future."""
