"""The code in the documents runs, and says what they say."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from adapters import RunningAdapter

from penstock.cli.main import cli

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(path, language):
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(), re.DOTALL)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_python_in_documents_runs(path, tmp_path, monkeypatch):
    if path.name in ("tutorial.md", "adapter.md", "session.md"):
        return  # below, as its reader would go through it
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    names = {"__name__": f"document_{path.stem}"}  # a page is read from its beginning
    for block in blocks(path, "python"):
        exec(compile(block, str(path), "exec"), names)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{path} links to {target}"


def shell(script, directory):
    binaries = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": binaries, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        ["sh", "-ec", script], cwd=directory, env=environment, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.slow
def test_the_tutorial_can_be_followed(tmp_path):
    tutorial = ROOT / "docs" / "tutorial.md"
    app, test, sampled = blocks(tutorial, "python")
    (tmp_path / "app.py").write_text(app)
    (tmp_path / "test_app.py").write_text(test)
    shell("python -m pytest -q", tmp_path)
    first, second, look = blocks(tutorial, "sh")
    summary, results = blocks(tutorial, "text")
    assert summary.strip() in shell(first, tmp_path)
    files = sorted((tmp_path / "runs/lengths/output/Output").glob("*.jsonl"))
    assert sorted(line for file in files for line in file.open()) == results.splitlines(keepends=True)
    assert "4 processed + 2 dead-lettered + 0 queued (lost 0, duplicated 0)" in shell(second, tmp_path)
    output = tmp_path / "runs" / "lengths"
    lines = [line for file in sorted((output / "output/Output").glob("*.jsonl")) for line in file.open()]
    assert json.loads(lines[-1]) == {"length": 4, "words": 3, "longest_run": 2}
    letters = [line.strip() for file in (output / "dead-letters").glob("*.jsonl") for line in file.open()]
    [shown] = blocks(tutorial, "json")
    assert shown.strip() in letters
    (tmp_path / "app.py").write_text(app.replace('words = app.source("Words", Word)\n', sampled))
    said = shell(look.replace("--ui", "--ui 0").replace("2 m", "15 s"), tmp_path)
    assert "0 dead-lettered" in said
    assert "lost 0, duplicated 0" in said


@pytest.mark.slow
def test_a_session_of_ones_own_runs_an_application(tmp_path):
    page = ROOT / "docs" / "how-to" / "session.md"
    application, session = blocks(page, "python")
    (said,) = blocks(page, "text")
    (tmp_path / "words.py").write_text(application)
    (tmp_path / "session.py").write_text(session)
    assert shell("python session.py", tmp_path) == said


@pytest.mark.slow
def test_the_commands_of_the_waiting_tutorial_run(tmp_path):
    solve, sweep, optimize, simulate = blocks(ROOT / "docs" / "waiting.md", "sh")
    assert "103.264" in shell(solve, tmp_path)
    assert "Wrote 180 of 180 settings" in shell(sweep, tmp_path)
    assert (tmp_path / "waiting.svg").exists()
    assert "9.8327  ms" in shell(optimize, tmp_path)
    assert "simulated, 95% confidence" in shell(simulate, tmp_path)


@pytest.mark.slow
def test_the_commands_of_the_tuning_page_run(tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    tune, *predict, observe = blocks(ROOT / "docs/how-to/tune.md", "sh")
    said = shell(tune, tmp_path)
    assert "A p95 of 5 s can be met." in said
    assert "trigger(processingTime=...)" in said
    assert (tmp_path / "tuning.html").exists()
    assert all("latency p95" in shell(asked, tmp_path) for asked in predict)
    assert "digests:" in shell(observe, tmp_path)


@pytest.mark.slow
def test_a_new_project_runs_and_its_test_passes(tmp_path):
    shell("penstock new hello", tmp_path)
    project = tmp_path / "hello"
    assert "passed" in shell("python -m pytest -q", project)
    assert "11 events accepted = 11 processed" in shell("penstock run app.py --until-idle", project)


def options(command, *path):
    if isinstance(command, click.Group):
        for name, verb in command.commands.items():
            yield from options(verb, *path, name)
    yield from ((path, part.opts + part.secondary_opts) for part in command.params if isinstance(part, click.Option))


def test_every_option_of_a_command_is_on_a_page():
    pages = "".join(path.read_text() for path in DOCUMENTS)
    named = set(re.findall(r"--[a-z][a-z0-9-]*", pages)) | {"--help", "--version"}
    missing = [(" ".join(path), spellings) for path, spellings in options(cli) if named.isdisjoint(spellings)]
    assert not missing


def test_every_public_name_is_documented():
    import penstock

    for name in penstock.__all__:
        if not name.startswith("__"):
            assert getattr(penstock, name).__doc__, f"{name} has no docstring"


def test_the_commands_of_the_placement_tutorial_run(tmp_path):
    placement = ROOT / "docs" / "placement.md"
    names = {"__name__": "placement"}
    exec(compile(blocks(placement, "python")[0], str(placement), "exec"), names)
    (tmp_path / "clicks.json").write_text(json.dumps(names["clicks"].to_json()))
    first, again = blocks(placement, "sh")
    assert "Proved optimal." in shell(first, tmp_path)
    assert "Moved: 3 tasks" in shell(again, tmp_path)
    assert (tmp_path / "clicks.svg").exists()


@pytest.mark.servers
def test_the_adapter_can_be_used_as_its_page_says(tmp_path):
    page = ROOT / "docs/how-to/adapter.md"
    app, send, receive = blocks(page, "python")
    (tmp_path / "app.py").write_text(app)
    with RunningAdapter(tmp_path / "spool", app=tmp_path / "app.py") as adapter:

        def here(text):
            return text.replace("http://127.0.0.1:8470", adapter.url)

        (curl,), (shown,) = blocks(page, "sh"), blocks(page, "json")
        assert shell(here(curl).replace("]}curl", "]}\ncurl"), tmp_path).replace("}{", "}\n{").strip() == shown.strip()
        names = {}
        exec(here(send), names)
        assert names["producer"].sent.accepted == 1000
        spool = "--source Words=log:spool --sink Output=log:spool"
        shell(f"penstock run app.py {spool} --until-idle", tmp_path)
        exec(here(receive), names)
        assert adapter.get("/results/Counts/gate").json() == {"text": "gate", "seen": 4}


@pytest.mark.parametrize("path", [*DOCUMENTS, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"], ids=lambda path: path.name)
def test_lines_of_prose_end_at_120_characters(path):
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    assert not [line for line in text.splitlines() if len(line) > 120 and not line.startswith(("|", "    "))]
