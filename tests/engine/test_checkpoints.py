"""How Spark makes a checkpoint's files on a disk: replaced where that is wanted, refused where not, with few programs."""

import os
import shutil
import subprocess
import sys

import pytest

from penstock.engine.session.checkpoint import on_disk
from penstock.engine.session.versions import installed

APP = """
from penstock import App, Event, ProcessingElement

class Word(Event):
    key: int

class Count(Event):
    key: int
    seen: int

app = App("counting")
counts = app.stream("Counts", Count)
app.sink("Out", counts)

@app.element(app.source("Words", Word), key="key", emits=counts)
class Counter(ProcessingElement):
    seen: int = 0

    def on_event(self, word):
        self.seen += 1
        yield counts(self.key, self.seen)
"""
NOTING = """#!/bin/sh
echo "$(basename "$0") $*" >> {notes}
exec {program} "$@"
"""


@pytest.mark.spark
def test_a_file_is_replaced_whole_where_that_is_wanted_and_else_refused(spark, tmp_path):
    jvm, path = spark.get()._jvm, tmp_path / "state" / "1.changelog"
    settings = jvm.org.apache.hadoop.conf.Configuration()
    settings.set("fs.file.impl", on_disk(installed())["spark.hadoop.fs.file.impl"])
    settings.set("fs.file.impl.disable.cache", "true")
    *packages, name = on_disk(installed())["spark.sql.streaming.checkpointFileManagerClass"].split(".")
    kind = jvm
    for part in (*packages, name):
        kind = getattr(kind, part)
    place = jvm.org.apache.hadoop.fs.Path(str(path))
    manager = kind(place.getParent(), settings)
    manager.mkdirs(place.getParent())

    def write(text, replacing):
        file = manager.createAtomic(place, replacing)
        file.writeBytes(text)
        file.close()

    for text in ("first", "of the micro-batch that is repeated"):
        write(text, True)
        assert path.read_text() == text
        assert manager.open(place).readLine() == text  # checked against its checksums
    with pytest.raises(Exception, match="already exists"):
        write("of another driver", False)
    assert path.read_text() == text


@pytest.mark.slow
def test_a_micro_batch_starts_few_programs(tmp_path):
    (tmp_path / "counting.py").write_text(APP)
    (tmp_path / "words").mkdir()
    (tmp_path / "programs").mkdir()
    for number in range(6):
        (tmp_path / "words" / f"{number}.jsonl").write_text(f'{{"key": {number}}}\n')
    notes = tmp_path / "notes"
    for name in ("chmod", "readlink"):
        program = tmp_path / "programs" / name
        program.write_text(NOTING.format(notes=notes, program=shutil.which(name)))
        program.chmod(0o755)
    command = [sys.executable, "-m", "penstock", "run", "counting.py", "--source", "Words=jsonl:words?max_files=1"]
    command += ["--until-idle", "--master", "local[1]"]
    path = os.pathsep.join([str(tmp_path / "programs"), os.environ["PATH"]])
    subprocess.run(command, cwd=tmp_path, env={**os.environ, "PATH": path}, check=True, stdout=subprocess.DEVNULL)
    noted = [line for line in notes.read_text().splitlines() if "/checkpoint/" in line]
    made = [line for line in noted if "/commits/" in line]
    assert not [line for line in noted if line.startswith("readlink")]
    assert len(made) <= 2 * len(list((tmp_path / "runs/counting/checkpoint/main/commits").glob("[0-9]*")))
