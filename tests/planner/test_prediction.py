"""Predictions against the made-up queries' own rows, and against recordings of real ones."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from planner.queries import progress, written

from penstock.errors import ConfigurationError, NotSolvableError, UnstableServerError
from penstock.planner import Setting, calibrate, observe, recover

RECORDINGS = Path(__file__).parent / "recordings"


@pytest.fixture(scope="module")
def calibration(tmp_path_factory):
    """Of two settings of one query."""
    path = tmp_path_factory.mktemp("recorded")
    first, _ = progress(trigger=1, rate=1000, seed=1)
    second, _ = progress(trigger=4, rate=1500, seed=2, seconds=200)
    return calibrate(observe(written(path / "a.jsonl", first), written(path / "b.jsonl", second)))


@pytest.mark.parametrize(
    ("setting", "made"),
    [
        (Setting(trigger=2, rate=1000), {"trigger": 2.0, "rate": 1000}),
        (Setting(trigger=0, rate=1000), {"trigger": 0.0, "rate": 1000}),
        (Setting(trigger="500 ms", rate=2500), {"trigger": 0.5, "rate": 2500}),
        (Setting(trigger=0, rate=3000), {"trigger": 0.0, "rate": 3000}),
        (Setting(trigger=10, rate="2x"), {"trigger": 10.0, "rate": 3000}),
        (Setting(trigger=1, rate=900, max_rows=1000), {"trigger": 1.0, "rate": 900, "cap": 1000}),
    ],
)
def test_a_setting_that_was_not_tried_is_predicted(calibration, setting, made):
    _, latencies = progress(seconds=900, seed=9, **made)
    found = calibration.predict(setting)
    assert found.mean == pytest.approx(latencies.mean(), rel=0.04)
    for name, p in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        assert getattr(found, name) == pytest.approx(np.quantile(latencies, p), rel=0.06)
    low, high = found.band("p95", 0.9)
    assert low < np.quantile(latencies, 0.95) < high


def test_solved_and_simulated_agree(calibration):
    """Two methods: the library's embedded chain, and micro-batch by micro-batch."""
    for setting in (Setting(trigger=0, rate=300), Setting(trigger=2, rate=300)):
        simulated, solved = (calibration.predict(setting, method=method, replicates=0) for method in ("simulated", "solved"))
        assert solved.method == "solved"
        assert simulated.mean == pytest.approx(solved.mean, rel=0.02)
        assert simulated.p95 == pytest.approx(solved.p95, rel=0.03)


def test_bursts_make_it_wait_longer(calibration):
    calm, bursty = (calibration.predict(Setting(trigger=0, rate=5000, arrivals=kind)) for kind in ("poisson", 400.0))
    assert bursty.p99 > 1.1 * calm.p99


def test_what_is_left_out_is_as_recorded(calibration):
    found = calibration.predict()
    assert found.setting.trigger == 4.0
    assert found.rate == pytest.approx(1500, rel=0.05)
    assert found.backlog == pytest.approx(found.rate * found.mean)
    assert found.batches_per_day == pytest.approx(86_400 / 4, rel=0.02)
    assert found.rows_per_file * found.files_per_day == pytest.approx(found.rate * 86_400)
    assert found.throughput_limit == pytest.approx(1 / 1e-4, rel=0.3)


def test_equal_calls_give_equal_answers(calibration):
    one, two = (calibration.predict(Setting(trigger=3)).to_json() for _ in range(2))
    assert json.dumps(one) == json.dumps(two)
    assert {"mean", "p50", "p95", "p99", "bands", "utilisation", "method"} <= set(one)
    assert set(one["bands"]) == {"mean", "p50", "p95", "p99"}


def test_a_rate_beyond_the_limit_is_refused(calibration):
    with pytest.raises(
        UnstableServerError, match=r"1,000,000 rows arrive per second and the query keeps up with [\d,]+ \(predicted\)"
    ):
        calibration.predict(Setting(rate=1_000_000))
    with pytest.raises(UnstableServerError, match="keeps up with"):
        calibration.predict(Setting(trigger=10, rate=200, max_rows=1000))


def test_more_cores_shorten_what_is_spent_per_row(tmp_path):
    told, _ = progress(trigger=2, rate=2000, per_row=3e-4)
    other, _ = progress(trigger=0, rate=500, per_row=3e-4)
    seen = observe(written(tmp_path / "a", other), written(tmp_path / "b", told), cores=2)
    model = calibrate(seen)
    slow, fast = (model.predict(Setting(rate=2000, trigger=2, cores=cores, partitions=8)) for cores in (2, 8))
    assert slow.mean - fast.mean == pytest.approx(3e-4 * 4000 * (1 - 2 / 8), rel=0.25)
    assert any("divided among the cores is assumed" in text for text in fast.assumptions)


def test_one_setting_alone_widens_the_band(tmp_path, calibration):
    told, _ = progress(trigger=1, rate=1000, seed=1, seconds=300)
    alone = calibrate(observe(written(tmp_path / "a.jsonl", told))).predict(Setting(trigger=10, rate=1000))
    low, high = alone.band("p95")
    both_low, both_high = calibration.predict(Setting(trigger=10, rate=1000)).band("p95")
    assert high - low > 1.2 * (both_high - both_low)
    assert any("does not tell the cost per row" in text for text in alone.assumptions)


@pytest.mark.parametrize(
    "given",
    [
        {"trigger": "soon"},
        {"trigger": -1},
        {"rate": 0},
        {"rate": "fast"},
        {"rate": "-1x"},
        {"min_rows": 0},
        {"min_rows": 10, "max_rows": 5},
        {"arrivals": "weekly"},
        {"arrivals": -2.0},
        {"arrivals": [1.0]},
        {"cores": 0.5},
        {"rate": float("nan")},
        {"max_rows": 1.5},
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(given):
    with pytest.raises(ConfigurationError):
        Setting(**given)


def test_what_cannot_be_solved_says_so(calibration):
    with pytest.raises(NotSolvableError):
        calibration.predict(Setting(trigger=5, rate=1000, min_rows=2000, max_delay=9), method="solved")
    with pytest.raises(ConfigurationError, match="without replicates"):
        calibration.predict(replicates=0).band("p95")
    with pytest.raises(ConfigurationError, match="name is 'p42'"):
        calibration.predict().band("p42")


def test_too_short_a_recording_carries_no_prediction(tmp_path):
    told, _ = progress(seconds=6)
    with pytest.raises(ConfigurationError, match="8 are needed: record for longer"):
        calibrate(observe(written(tmp_path / "a", told)))


def test_after_an_outage_the_backlog_is_worked_off_at_the_spare_speed(calibration):
    """Rows of the outage and of the recovery itself are done at the limit: (outage + t) rate = t limit, about."""
    setting = Setting(trigger=0, rate=6000)
    found = recover(calibration, setting, outage=60.0, restart=False)
    limit = calibration.throughput_limit(setting)
    assert found.seconds == pytest.approx(60 * 6000 / (limit - 6000), rel=0.5)
    assert found.low <= found.seconds <= found.high
    assert found.backlog[0] > 100_000
    assert found.latency[0] > 60 > found.latency[-1]
    faster = recover(calibration, Setting(trigger=0, rate=3000), outage=60.0, restart=False)
    assert faster.seconds < found.seconds
    with pytest.raises(UnstableServerError, match="never recovers"):
        recover(calibration, setting, step=3.0)
    with pytest.raises(ConfigurationError, match="an outage in seconds, or a step"):
        recover(calibration)
    assert math.isfinite(recover(calibration, setting, step=1.2).seconds)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.5, 0.8])
def test_the_time_to_recover_is_that_of_rows_one_by_one(tmp_path, share):
    """A query that begins with the rows of a minute before it: when a micro-batch is as fast as usual again.

    It was recorded under large micro-batches that differ little, so that the limit is known to a percent.
    """
    given = ({"trigger": 1, "rate": 1000}, {"trigger": 20, "rate": 5000, "seconds": 900})
    paths = [written(tmp_path / f"{n}.jsonl", progress(noise=0.01, seed=n, **of)[0]) for n, of in enumerate(given)]
    calibration = calibrate(observe(*paths))
    rate = share * calibration.throughput_limit(Setting(trigger=0))
    took = []
    for seed in range(6):
        born = np.cumsum(np.random.default_rng(seed).exponential(1 / rate, int(rate * 1500))) - 60.0
        told, latencies = progress(trigger=0, births=born, seconds=1400, seed=seed, noise=0.01)
        usual = np.quantile(latencies[len(latencies) // 2 :], 0.95)
        ends = np.cumsum([one["numInputRows"] for one in told])
        means = [part.mean() for part in np.split(latencies, ends[:-1])]
        first = next(i for i, (one, two) in enumerate(itertools.pairwise(means)) if max(one, two) <= usual)
        took.append(born[ends[first] - 1] + latencies[ends[first] - 1])
    found = recover(calibration, Setting(trigger=0, rate=rate), outage=60.0, restart=False)
    assert found.seconds == pytest.approx(np.median(took), rel=0.08)


@pytest.mark.parametrize("rate", [0.02, 0.005])
def test_rows_that_come_seldom_have_a_micro_batch_each(tmp_path, rate):
    seen = calibrate(observe(written(tmp_path / "progress.jsonl", progress(rate=1000.0)[0])))
    predicted = seen.predict(Setting(rate=rate))
    assert predicted.rows_per_batch == pytest.approx(1.0, abs=0.05)
    assert predicted.rows_per_batch >= 1
    assert predicted.batches_per_day == pytest.approx(rate * 86_400, rel=0.05)


def test_a_rate_too_low_to_be_simulated_is_refused(tmp_path):
    seen = calibrate(observe(written(tmp_path / "progress.jsonl", progress(rate=1000.0)[0])))
    with pytest.raises(ConfigurationError, match=r"At 0.0001 rows per second too few come .* ask for 0.0025 or more"):
        seen.predict(Setting(rate=0.0001))
    seen.predict(Setting(rate=0.0026))
