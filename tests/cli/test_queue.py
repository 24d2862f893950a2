"""`penstock queue` and `penstock reproduce` as a user meets them."""

import json
import signal
import subprocess
import sys
import time

import pytest
from cli.command import complaint, said

from penstock.cli import main

SERVER = ["--arrival-rate", "750", "--service-rate", "1000"]
COSTS = ["--holding-cost", "1", "--transfer-cost", "0.1"]


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_solve_prints_a_table_with_units_and_says_that_it_predicts(capsys):
    text = said(capsys, "queue", "solve", *SERVER, "--batch-size", "25", "--timer-rate", "573", *COSTS)
    assert "predicted" in text
    assert "8.13522  jobs" in text
    assert "mean response time" in text


def test_solve_prints_json(capsys):
    text = said(capsys, "queue", "solve", *SERVER, "--batch-size", "inf", "--timer-rate", "inf", "--json")
    numbers = json.loads(text)
    assert numbers["kind"] == "predicted"
    assert numbers["mean_jobs"] == pytest.approx(3.0)
    assert numbers["p99"] > numbers["p50"] > 0


def test_a_file_gives_the_server_and_flags_come_first(capsys, directory):
    (directory / "server.toml").write_text(
        "[server]\narrival_rate = 750\nservice_rate = 1000\nbatch_size = 10\ntimer_rate = 0\n"
        "[cost]\nholding = 1\ntransfer = 0.1\n"
    )
    numbers = json.loads(said(capsys, "queue", "solve", "-f", "server.toml", "--json"))
    assert numbers["cost"] == pytest.approx(17.4216, abs=1e-4)
    other = json.loads(said(capsys, "queue", "solve", "-f", "server.toml", "--batch-size", "1", "--json"))
    assert other["mean_jobs"] == pytest.approx(3.0)


def test_a_micro_batch_server_is_solved_and_simulated_from_a_file(capsys, directory):
    (directory / "spark.toml").write_text(
        "[micro_batch]\narrival_rate = 500\ntrigger_interval = 1.0\nfixed = 0.2\nresidual_scv = 0.01\n"
    )
    solved = json.loads(said(capsys, "queue", "solve", "-f", "spark.toml", "--json"))
    assert solved["mean_latency"] == pytest.approx(0.7, rel=1e-3)
    run = json.loads(said(capsys, "queue", "simulate", "-f", "spark.toml", "--jobs", "50000", "--json"))
    assert run["mean_latency"]["value"] == pytest.approx(0.7, rel=0.02)


def test_optimize_finds_figure_7s_setting_and_draws_the_profile(capsys, directory):
    text = said(capsys, "queue", "optimize", *SERVER, "--transfer-rate", "900", *COSTS, "--plot", "best.svg", "--json")
    assert json.loads(text)["batch_size"] == 12
    assert (directory / "best.svg").read_text().startswith("<?xml")


def test_simulate_shows_intervals(capsys):
    arguments = [*SERVER, "--batch-size", "25", "--timer-rate", "573", "--jobs", "200000", "--service-scv", "0"]
    text = said(capsys, "queue", "simulate", *arguments)
    assert "95% confidence" in text
    assert " ± " in text


def test_jobs_that_are_too_few_near_saturation_are_told(capsys):
    arguments = [
        "queue",
        "simulate",
        "--service-rate",
        "1000",
        "--batch-size",
        "1",
        "--timer-rate",
        "0",
        "--json",
        "--jobs",
        "50000",
    ]
    run = json.loads(said(capsys, *arguments, "--arrival-rate", "500"))
    assert run["mean_jobs"]["independent"] > 200
    main([*arguments, "--arrival-rate", "990"])
    assert "The intervals are too narrow: near saturation a queue changes slowly" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--holding-cost", "--transfer-cost"])
@pytest.mark.parametrize("price", ["-1", "nan", "inf"])
def test_a_price_is_a_number(capsys, flag, price):
    for verb in ("solve", "simulate"):
        text = complaint(capsys, "queue", verb, *SERVER, "--batch-size", "5", "--timer-rate", "0", flag, price)
        assert f"cost is {float(price)}; give zero or a positive number" in text


def test_an_axis_is_given_once(capsys):
    text = complaint(capsys, "queue", "sweep", *SERVER, "--over", "batch-size=2", "--over", "batch_size=3")
    assert "The axis batch_size is given twice: give all its values in one." in text


def test_sweep_covers_the_grid_marks_unstable_settings_and_resumes(capsys, directory):
    arguments = ["queue", "sweep", *SERVER, "--transfer-rate", "600", *COSTS, "--over", "batch-size=2,5,20"]
    arguments += ["--over", "timer-rate=0:1000:3"]
    points = json.loads(said(capsys, *arguments, "--json"))
    assert len(points) == 9
    assert [point["stable"] for point in points[:3]] == [0, 0, 0]
    assert "unstable" in said(capsys, *arguments)
    said(capsys, *arguments, "--output", "out.jsonl", "--plot", "out.png")
    whole = (directory / "out.jsonl").read_text()
    assert (directory / "out.png").stat().st_size > 5000
    # as a killed run leaves it: some lines, the last of them half
    (directory / "out.jsonl").write_text(whole[: len(whole) // 2])
    assert "of 9 settings" in said(capsys, *arguments, "--output", "out.jsonl")
    lines = (directory / "out.jsonl").read_text().splitlines()
    assert sorted(lines) == sorted(whole.splitlines())


@pytest.mark.slow
@pytest.mark.spark
def test_a_sweep_runs_on_spark(capsys):
    arguments = ["queue", "sweep", *SERVER, *COSTS, "--over", "batch-size=1:12:4", "--over", "timer-rate=1,100"]
    here = json.loads(said(capsys, *arguments, "--json"))
    on_spark = subprocess.run(
        [sys.executable, "-m", "penstock", *arguments, "--master", "local[2]", "--json"],
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    for remote, local in zip(json.loads(on_spark.stdout), here, strict=True):
        assert remote == pytest.approx(local)


@pytest.mark.slow
def test_ctrl_c_ends_a_long_sweep_with_a_word_and_what_is_done_stays(directory):
    command = [sys.executable, "-m", "penstock", "queue", "sweep", *SERVER, *COSTS, "--batch-size", "900"]
    command += ["--over", "timer-rate=1:1000:3000", "--output", "out.jsonl"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=directory)
    deadline = time.monotonic() + 60
    while not (directory / "out.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors.strip() == "penstock: interrupted."
    about, first = (directory / "out.jsonl").read_text().splitlines()[:2]
    assert "sweep" in json.loads(about)
    assert json.loads(first)["stable"] == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["solve", *SERVER], "lacks batch_size, timer_rate; give --batch-size, --timer-rate"),
        (["solve", *SERVER, "--batch-size", "0", "--timer-rate", "1"], "batch_size is 0"),
        (["solve", *SERVER, "--batch-size", "many", "--timer-rate", "1"], "'many' is not a number"),
        (["solve", *SERVER, "--batch-size", "nan", "--timer-rate", "1"], "batch_size is nan"),
        (["solve", "--arrival-rate", "2", "--service-rate", "1", "--batch-size", "3", "--timer-rate", "1"], "unstable"),
        (["solve", "-f", "missing.toml"], "missing.toml cannot be read"),
        (["optimize", *SERVER], "Costs are missing"),
        (["optimize", *SERVER, *COSTS, "--plot", "x.pdf"], "ends in .svg or .png"),
        (["sweep", *SERVER, "--over", "batch-size=a"], "is not understood"),
        (["sweep", *SERVER, "--over", "colour=1,2"], "no parameter 'colour'"),
        (["sweep", *SERVER, "--over", "batch-size=1.5,2"], "batch_size is 1.5"),
        (["simulate", *SERVER, "--batch-size", "3", "--timer-rate", "1", "--jobs", "3"], "jobs is 3"),
        (["sweep", *SERVER, "--over", "batch-size=1,2", "--output", "no/such/place.jsonl"], "cannot be written"),
        (["sweep", *SERVER, "--over", "batch-size=1,2", "--output", "/dev/full"], "is not a file"),
    ],
)
def test_wrong_input_is_one_sentence(capsys, arguments, words):
    assert words in complaint(capsys, "queue", *arguments)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[server", "is not TOML"),
        ("[sever]\nx = 1\n", "give one of the tables"),
        ("[server]\nspeed = 1\n", "[server] may have arrival_rate"),
        ('[server]\narrival_rate = "fast"\nservice_rate = 1\nbatch_size = 1\ntimer_rate = 0\n', "arrival_rate is 'fast'"),
        ("[micro_batch]\nfixed = 1\n", "lacks arrival_rate"),
    ],
)
def test_a_wrong_file_is_one_sentence(capsys, directory, text, words):
    (directory / "server.toml").write_text(text)
    assert words in complaint(capsys, "queue", "solve", "-f", "server.toml")


def test_a_file_that_holds_another_sweep_is_not_touched(capsys, directory):
    (directory / "notes.txt").write_text("dear diary\n")
    arguments = ["queue", "sweep", *SERVER, "--over", "batch-size=1,2", "--output", "notes.txt"]
    assert "does not hold this sweep" in complaint(capsys, *arguments)
    assert (directory / "notes.txt").read_text() == "dear diary\n"


@pytest.mark.parametrize(
    ("figure", "words"),
    [
        ("fig2", ["around 600", "573", "14.536"]),
        ("fig4", ["(7, 0), 12.855", "(12, 0), 20.938"]),
        ("fig5", ["941", "908.33"]),
        ("fig7", ["(12, 242), 18.873", "(17, 629), 19.376", "(inf, inf), 20.304"]),
    ],
)
def test_figures_are_reproduced_with_the_papers_values_beside(capsys, directory, figure, words):
    text = said(capsys, "reproduce", figure, "-o", "figures")
    for word in words:
        assert word in text
    data = json.loads((directory / f"figures/{figure}.json").read_text())
    assert len(data["curves"]) >= 2
    assert (directory / f"figures/{figure}.png").stat().st_size > 5000


def test_a_rate_may_be_given_as_the_time_that_it_means(capsys):
    server = ["queue", "solve", "--arrival-rate", "750", "--service-rate", "1ms", "--batch-size", "10", "--json"]
    by_time = said(capsys, *server, "--timer-rate", "10ms")
    assert by_time == said(capsys, *server, "--timer-rate", "100")
    assert "ms" in said(capsys, *server[:-1], "--timer-rate", "10ms")


@pytest.mark.parametrize("flags", [["--batch-size", "7"], ["--timer-rate", "3"]])
def test_optimize_takes_nothing_that_it_finds_itself(capsys, flags):
    assert f"leave out {flags[0]}" in complaint(capsys, "queue", "optimize", *SERVER, *COSTS, *flags)


@pytest.mark.parametrize("content", ["server = 3", "server = 'abc'", "cost = 3\n[server]\narrival_rate = 1"])
def test_a_table_is_a_table(capsys, directory, content):
    (directory / "wrong.toml").write_text(content)
    assert "write a table, as [" in complaint(
        capsys, "queue", "solve", "-f", "wrong.toml", *SERVER, "--batch-size", "1", "--timer-rate", "0"
    )


def test_an_axis_that_is_drawn_has_a_finite_value(capsys):
    text = complaint(capsys, "queue", "sweep", *SERVER, "--over", "batch-size=inf", "--plot", "x.svg")
    assert "the last axis, batch_size, which has no finite value" in text
