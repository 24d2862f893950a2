"""Kills of a run in real time, at the steps of Spark's own protocol: nothing is lost, and results come at least once."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer

from penstock.connectors.kafka.place import KafkaPlace
from penstock.connectors.kafka.topic import Topic
from penstock.runs.letters import topic_of_letters

APPS = Path(__file__).parent / "apps_words.py"
ROOT = Path(__file__).parent.parent.parent
PATIENCE_S = 120

QUERIES = ("sink-Out", "dead-letters-Words")


def noted(run, what, least):
    """For each query, whether its log of offsets or commits has so many entries."""
    return [len(list((run / "checkpoint" / name / what).glob("[0-9]*"))) >= least for name in QUERIES]


MOMENTS = {
    "one query has begun": lambda run, _: any(noted(run, "offsets", 1)),
    "one query has committed": lambda run, _: any(noted(run, "commits", 1)),
    "the next batch has begun": lambda run, before: any(noted(run, "offsets", before + 1)),
    "the next batch is committed": lambda run, before: any(noted(run, "commits", before + 1)),
    "both have gone on": lambda run, before: all(noted(run, "commits", before + 1)),
}


def words_of(part):
    """Ten good words and two that are no events."""
    return [*(json.dumps({"text": f"w{(part * 10 + number) % 7}"}) for number in range(10)), f"bad {part}", '{"size": 1}']


@pytest.mark.slow
@pytest.mark.servers
def test_a_run_in_real_time_loses_nothing_under_kills(broker, tmp_path):
    topics = [Topic(KafkaPlace(broker.brokers, name), create=True) for name in ("kills-in", "kills-out")]
    producer, run = Producer({"bootstrap.servers": broker.brokers}), tmp_path / "runs" / "run"
    command = [sys.executable, "-m", "penstock", "run", f"{APPS}:native", "--real-time", "--checkpoint-every", "5s"]
    command += ["--master", "local[8]", "--partitions", "1", "--runs", str(tmp_path / "runs"), "--name", "run"]
    command += ["--source", f"Words=kafka:{broker.brokers}/kills-in", "--sink", f"Out=kafka:{broker.brokers}/kills-out"]
    for part, (moment, came) in enumerate(MOMENTS.items()):
        for word in words_of(part):
            producer.produce("kills-in", word)
        producer.flush()
        before = max(len(list((run / "checkpoint" / name / "commits").glob("[0-9]*"))) for name in QUERIES)
        with started(command) as process:
            deadline = time.monotonic() + PATIENCE_S
            while process.poll() is None and not came(run, before):
                assert time.monotonic() < deadline, moment
                time.sleep(0.002)
            assert process.poll() is None, (moment, process.communicate())
            os.killpg(process.pid, signal.SIGKILL)
    done = subprocess.run([*command, "--until-idle"], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    good, bad = 10 * len(MOMENTS), 2 * len(MOMENTS)
    assert f"{good + bad} events accepted = {good} processed + {bad} dead-lettered + 0 queued" in done.stdout
    wanted = Counter(json.loads(word)["text"] for part in range(len(MOMENTS)) for word in words_of(part)[:10])
    found = [json.loads(message.value()) for message in all_of(topics[1])]
    for text, times in wanted.items():  # counts may come again, and are right
        assert {count["seen"] for count in found if count["text"] == text} >= {times}
        assert max(count["seen"] for count in found if count["text"] == text) == times
    letters = Topic(KafkaPlace(broker.brokers, topic_of_letters("kills-in")))
    raws = Counter(json.loads(raw)["raw"] for raw in {message.value(): None for message in all_of(letters)})
    assert raws.keys() == {*(f"bad {part}" for part in range(len(MOMENTS))), '{"size": 1}'}


def started(command):
    """A run in a process group of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, env=environment, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def all_of(topic):
    lows, ends = ({partition: place[side] for partition, place in topic.bounds().items()} for side in (0, 1))
    return [message for some in topic.read(lows, ends) for message in some]
