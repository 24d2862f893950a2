"""Recordings and settings at the edges: figures are of rows, plans can be read, and what cannot be answered is refused."""

from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from planner.queries import progress, written

from penstock.errors import ConfigurationError, NotSolvableError, SourceError, UnstableServerError
from penstock.planner import Setting, Target, calibrate, make_plan, observe, tune
from penstock.planner.arrivals import Flow
from penstock.planner.interference import load_of, shared
from penstock.planner.plan import read_plan
from penstock.planner.prices import Prices
from penstock.planner.recovery import recover


def recorded(directory, name="a", **how):
    told, latencies = progress(**how)
    return written(directory / f"{name}.jsonl", told), latencies


@pytest.fixture
def steady(tmp_path):
    """Two recordings of a query that keeps up with 5,000 rows per second."""
    return [
        recorded(tmp_path, str(trigger), trigger=trigger, fixed=0.3, per_row=2e-4, seconds=150, seed=int(trigger))[0]
        for trigger in (1.0, 3.0)
    ]


def test_the_latency_of_a_recording_with_a_gap_is_of_its_rows(tmp_path):
    usual, latencies = progress(trigger=1.0, seconds=300)
    slow, slower = progress(trigger=1.0, seconds=310, fixed=5.0, noise=0.0)
    late = [one for one in slow if one["batchId"] < 3]
    shifted = [{**one, "batchId": one["batchId"] + 400} for one in late]
    for one in shifted:
        one["timestamp"] = one["timestamp"].replace("2025-06-15T15", "2025-06-15T16")
    seen = observe(written(tmp_path / "gap.jsonl", [*usual, *shifted])).queries[0]
    few, many = sum(one["numInputRows"] for one in late[1:]), len(latencies)
    expected = (float(np.sum(latencies)) + few * float(np.mean(slower))) / (few + many)
    assert expected < 1.5 * float(np.mean(latencies)) < 0.5 * float(np.mean(slower))
    assert seen.latency()["mean"] == pytest.approx(expected, rel=0.15)


def test_a_plan_whose_band_is_infinite_can_be_read(tmp_path):
    near = [recorded(tmp_path, str(trigger), trigger=trigger, per_row=8.2e-4, seconds=200)[0] for trigger in (1.0, 3.0)]
    plan = make_plan(observe(*near), Target("p95", 25.0)).plan
    broken = replace_band(plan)
    broken.write(tmp_path / "plan.json")
    assert "Infinity" not in (tmp_path / "plan.json").read_text()
    assert read_plan(tmp_path / "plan.json").trigger_s == plan.trigger_s
    broken.write(tmp_path / "plan.json")  # over itself


def replace_band(plan):
    figures = dict(plan.expected["p95"], band=[1.0, float("inf")])
    plan.expected["p95"] = figures
    return plan


def test_a_flow_ends_where_it_is_cut():
    flow = Flow(np.array([0.0, 1.0, 2.0, 2.0, 4.0]), np.array([0.0, 10.0, 10.0, 15.0, 25.0]))
    for time in (0.5, 1.0, 2.0, 3.0, 9.0):
        cut = flow.until(time)
        assert (cut.times[-1], cut.counts[-1]) == (time, flow.count(time))
        assert all(cut.count(one) == flow.count(one) for one in np.linspace(0, time, 7)[:-1])


@pytest.mark.slow
@pytest.mark.parametrize("arrivals", [None, 200.0, 0.0])
def test_a_step_takes_effect_when_it_comes(tmp_path, arrivals):
    wave = [
        recorded(
            tmp_path,
            str(trigger),
            trigger=trigger,
            rate=lambda second: 400 + 300 * np.sin(second / 200),
            fixed=0.2,
            per_row=5e-4,
            seconds=1200,
        )[0]
        for trigger in (1.0, 3.0)
    ]
    calibration = calibrate(observe(*wave))
    setting = Setting(trigger=1.0, arrivals=arrivals)
    after, without = (recover(calibration, setting, outage=60, step=step) for step in (1.8, 1.0))
    assert after.seconds > 1.3 * without.seconds


def test_a_query_that_does_not_keep_up_cannot_share_a_driver(tmp_path):
    source, _ = recorded(tmp_path, trigger=1.0, rate=3000, per_row=4e-4, seconds=200)
    load = load_of("drowning", calibrate(observe(source)))
    assert load.rate * load.per_row >= 1
    assert shared([load], 8.0)["drowning"]["p95"] == np.inf


def test_a_plan_for_other_cores_says_so(steady):
    observation = observe(*steady, cores=2)
    assert make_plan(observation, Target("p95", 3.0), Setting(cores=8)).plan.cores == 8
    assert make_plan(observation, Target("p95", 3.0)).plan.cores is None
    with pytest.raises(ConfigurationError, match="The fewest cores are looked for, and cores are given, too"):
        make_plan(observation, Target("p95", 3.0), Setting(cores=8), fewest_cores=True)


def test_the_cheapest_setting_is_no_dearer_than_todays(steady):
    observation = observe(*steady)
    seen = observation.queries[0]
    gated = replace(observation, queries=(replace(seen, setting=replace(seen.setting, min_rows=12.0, max_delay=20.0)),))
    prices = Prices(0.1, 3.0)
    planning = make_plan(gated, prices)
    assert prices.per_second(planning.chosen) <= prices.per_second(planning.today) * 1.001


def test_a_gate_that_was_recorded_is_taken_away_by_name(steady):
    observation = observe(*steady)
    seen = observation.queries[0]
    gated = replace(observation, queries=(replace(seen, setting=replace(seen.setting, min_rows=3000.0, max_delay=10.0)),))
    assert tune(gated, Target("p95", 5.0)).options["minOffsetsPerTrigger"] == "1"
    assert "minOffsetsPerTrigger" not in tune(observation, Target("p95", 5.0)).options


def test_the_solved_model_refuses_arrivals_that_it_does_not_take(steady):
    calibration = calibrate(observe(*steady))
    with pytest.raises(NotSolvableError, match="assumes Poisson arrivals"):
        calibration.predict(Setting(arrivals=2000.0), method="solved")
    assert calibration.predict(Setting(arrivals="poisson"), method="solved").p95 > 0


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"arrivals": [[1.0, 2.0], [3.0, 4.0]]}, "two or more times"),
        ({"arrivals": [1.0, float("nan")]}, "two or more times"),
        ({"arrivals": [1.0, float("inf")]}, "two or more times"),
        ({"arrivals": True}, "squared coefficient of variation"),
        ({"arrivals": [[1], [2, 3]]}, "two or more times"),
        ({"arrivals": 1e12}, "squared coefficient of variation"),
        ({"arrivals": -1.0}, "squared coefficient of variation"),
        ({"arrivals": float("nan")}, "squared coefficient of variation"),
        ({"trigger": 1e300}, "365 days or less"),
        ({"max_delay": 1e300}, "365 days or less"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(setting, says):
    with pytest.raises(ConfigurationError, match=says):
        Setting(**setting)
    assert Setting(arrivals=0).arrivals == 0


def test_a_rate_that_is_too_low_has_the_reason_of_the_prediction(steady):
    with pytest.raises(ConfigurationError, match="too few come"):
        tune(observe(*steady), Target("p95", 1.0), Setting(rate=0.0005))
    with pytest.raises(UnstableServerError):
        calibrate(observe(*steady)).predict(Setting(rate=1e6))
    assert not tune(observe(*steady), Target("p95", 1.0), Setting(rate=1e6)).feasible


def test_a_chance_is_one_to_nine_in_ten(steady):
    answer = replace(tune(observe(*steady), Target("p95", 5.0)), feasible=True, sure=False)
    for met, says in ((3, "1 in 10"), (56, "9 in 10")):
        chosen = replace(
            answer.chosen, replicates={**answer.chosen.replicates, "p95": np.array([1.0] * met + [9.0] * (60 - met))}
        )
        assert says in replace(answer, chosen=chosen).headline


def seconds_of(entry):
    return datetime.fromisoformat(entry["timestamp"].replace("Z", "+00:00")).timestamp()


@pytest.mark.parametrize("order", ["newest first", "pairs swapped"])
@pytest.mark.parametrize("unit", [None, 1, 1e3, 1e6, 1e9])
def test_a_log_in_another_order_and_of_other_units_is_the_same_log(tmp_path, order, unit):
    told, _ = progress(trigger=3.0, seconds=200)
    usual = observe(written(tmp_path / "usual.jsonl", told)).queries[0]
    other = (
        told[::-1]
        if order == "newest first"
        else [told[place ^ 1] for place in range(len(told) // 2 * 2)] + told[len(told) // 2 * 2 :]
    )
    if unit is not None:
        other = [{**one, "timestamp": seconds_of(one) * unit} for one in other]
    seen = observe(written(tmp_path / "other.jsonl", other)).queries[0]
    assert (seen.batches, seen.setting) == (usual.batches, usual.setting)
    assert seen.latency() == pytest.approx(usual.latency(), rel=1e-3)


@pytest.mark.parametrize("way", ["each line twice", "all twice", "polled", "newest first, unnumbered"])
def test_a_micro_batch_that_is_there_twice_is_one(tmp_path, way):
    told, _ = progress(trigger=1.0, seconds=120)
    usual = observe(written(tmp_path / "usual.jsonl", told)).queries[0]
    other = {
        "each line twice": [one for one in told for _ in range(2)],
        "all twice": told * 2,
        "polled": [one for place in range(0, len(told), 5) for one in told[max(0, place - 5) : place + 5]],
        "newest first, unnumbered": [{name: one[name] for name in one if name != "batchId"} for one in told[::-1]],
    }[way]
    seen = observe(written(tmp_path / "other.jsonl", other)).queries[0]
    assert seen.latency() == pytest.approx(usual.latency(), rel=0.05)


def test_times_in_other_units_than_sparks_are_refused(tmp_path):
    told, _ = progress(trigger=1.0, seconds=200)
    lasting = [{**one, "durationMs": {name: 1000 * value for name, value in one["durationMs"].items()}} for one in told]
    closer = [{**one, "timestamp": seconds_of(one) / 1e3} for one in told]
    for wrong in (lasting, closer):
        with pytest.raises(SourceError, match="begin before the last one has ended"):
            observe(written(tmp_path / "wrong.jsonl", wrong))


def test_recordings_of_queries_of_two_names_are_noted(tmp_path):
    sources = [written(tmp_path / f"{name}.jsonl", progress(name=name, seconds=60)[0]) for name in ("orders", "clicks")]
    assert any("Recordings of orders, clicks are taken as of one query" in note.text for note in observe(*sources).notes)
    assert not any(note.kind == "names" for note in observe(sources[0]).notes)


def test_cores_that_contradict_the_recording_are_refused():
    run = Path(__file__).parents[1] / "ui" / "recorded" / "keyed"
    with pytest.raises(ConfigurationError, match="says that the query had 2 cores, and 8 were given"):
        observe(run, cores=8)
    assert observe(run, cores=2).queries[0].setting.cores == 2
