"""What a start meets before Spark is up: signals, masters that are none, a Java that is not there."""

import os
import signal
import subprocess
import sys
import time

import pytest

from penstock.cli import main
from penstock.engine.session.java import java_home
from penstock.errors import JavaNotFoundError

APP = """
from penstock import App, Event

class Word(Event):
    text: str

app = App("starting")
app.sink("Out", app.source("Words", Word, sample=lambda n: Word(str(n)), uri="generator:constant?rate=5"))
"""


def children_of(number):
    """All processes below one."""
    asked = ["ps", "-o", "pid=", "--ppid", str(number)]
    below = [int(child) for child in subprocess.run(asked, capture_output=True, text=True).stdout.split()]
    return [each for child in below for each in (child, *children_of(child))]


def alive(number):
    asked = subprocess.run(["ps", "-o", "stat=", "-p", str(number)], capture_output=True, text=True).stdout.strip()
    return bool(asked) and not asked.startswith("Z")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("after", [0.5, 2.0])
def test_no_process_survives_a_start_that_is_interrupted(tmp_path, number, after):
    (tmp_path / "starting.py").write_text(APP)
    command = [sys.executable, "-m", "penstock", "run", "starting.py"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # which nohup has it ignore
    )
    deadline = time.monotonic() + 60
    while not children_of(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(after)
    below = children_of(process.pid)
    assert below
    os.kill(process.pid, number)
    process.communicate(timeout=60)
    time.sleep(1)
    assert [one for one in below if alive(one)] == []


COUNTING = """
from penstock import App, Event

class Word(Event):
    text: str

app = App("counting")
words = app.source("Words", Word)
seen = app.stream("Seen", Word)
app.sink("Out", seen)

@app.element(words, emits=seen)
def says(word):
    yield seen("{} " + word.text)
"""


@pytest.mark.slow
@pytest.mark.spark
def test_workers_run_the_file_that_was_named_and_not_its_namesake_here(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "app.py").write_text(COUNTING.format("wrong"))
    (tmp_path / "elsewhere" / "app.py").write_text(COUNTING.format("right"))
    (tmp_path / "words.jsonl").write_text('{"text": "a"}\n')
    command = [sys.executable, "-m", "penstock", "run", "elsewhere/app.py", "--source", "Words=jsonl:words.jsonl"]
    done = subprocess.run([*command, "--until-idle"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (line,) = [line for out in tmp_path.rglob("output/Out/*.jsonl") for line in out.read_text().splitlines()]
    assert "right a" in line


def sentence(capsys, *arguments):
    with pytest.raises(SystemExit) as exit_:
        main(["run", "starting.py", *arguments])
    said = capsys.readouterr().err
    assert exit_.value.code == 2, said
    return said


@pytest.mark.parametrize(
    ("master", "words"),
    [
        ("foo", "write local[*], local[2], spark://HOST:PORT"),
        ("spark://127.0.0.1:1", "Nothing answers at spark://127.0.0.1:1"),
        ("spark://127.0.0.1", "has no port"),
    ],
)
def test_a_master_that_is_none_is_refused_at_once(tmp_path, monkeypatch, capsys, master, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "starting.py").write_text(APP)
    assert words in sentence(capsys, "--master", master)


def test_a_java_home_that_leads_nowhere_is_said(monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/no/such/place")
    java_home.cache_clear()
    with pytest.raises(JavaNotFoundError, match="JAVA_HOME is /no/such/place, where there is no bin/java"):
        java_home()
    java_home.cache_clear()


@pytest.mark.slow
def test_options_for_java_are_given_besides_our_own(tmp_path):
    (tmp_path / "starting.py").write_text(APP)
    command = [sys.executable, "-m", "penstock", "run", "starting.py", "--conf", "spark.driver.extraJavaOptions=-Dmine=1"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline, seen = time.monotonic() + 60, ""
        while "-Dmine=1" not in seen and time.monotonic() < deadline:
            time.sleep(0.2)
            asked = ["ps", "-o", "args=", "-ww", "-p", ",".join(map(str, [os.getpid(), *children_of(process.pid)]))]
            seen = subprocess.run(asked, capture_output=True, text=True).stdout
        assert "-Dlog4j2.configurationFile=file:" in seen
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)
