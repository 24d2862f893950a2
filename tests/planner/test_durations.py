"""The fit finds what durations were made of, says what it cannot find, and is not led astray by pauses."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.planner.durations import durations_of
from penstock.planner.series import Series


def series(rows, durations):
    """Micro-batches that begin every ten seconds."""
    rows, durations = np.asarray(rows, dtype=float), np.asarray(durations, dtype=float)
    started = np.arange(len(rows)) * 10.0
    return Series(
        numbers=np.arange(len(rows), dtype=float),
        started=started,
        admitted=started + 0.01,
        visible=started + durations - 0.05,
        ended=started + durations,
        rows=rows,
        waiting=np.zeros_like(rows),
        keys=np.full_like(rows, np.nan),
        whole=np.ones(len(rows), dtype=bool),
        outstanding=np.full_like(rows, np.nan),
        gated=np.ones(len(rows), dtype=bool),
        empty=np.full_like(rows, np.nan),
        again=np.full_like(rows, np.nan),
        since=np.full_like(rows, np.nan),
    )


def made(seed, rows, fixed, per_row, noise=0.05):
    random = np.random.default_rng(seed)
    drawn = random.poisson(rows, 80)
    return series(drawn, (fixed + per_row * drawn) * (1 + noise * random.standard_normal(80)))


@pytest.mark.slow
@given(fixed=st.floats(0.1, 2.0), per_row=st.floats(2e-5, 1e-3), seed=st.integers(0, 100))
def test_what_durations_were_made_of_is_found(fixed, per_row, seed):
    model = durations_of([made(seed, 500, fixed, per_row), made(seed + 1, 4000, fixed, per_row)], np.random.default_rng(0))
    assert model.identified
    for rows in (200, 1000, 4000, 12_000):
        assert model.duration(rows) * model.mean_ratio == pytest.approx(fixed + per_row * rows, rel=0.08)


def test_equal_batches_do_not_tell_a_row_from_a_batch():
    model = durations_of([made(1, 1000, 0.5, 5e-4, noise=0.1)], np.random.default_rng(0))
    assert not model.identified
    assert model.duration(1000) == pytest.approx(1.0, rel=0.05)
    spread = model.draws[:, 0] + model.draws[:, 1] * 4000
    assert spread.max() > 2 * spread.min()


def test_pauses_are_in_the_ratios_and_not_in_the_fit():
    one, two = made(1, 500, 0.5, 2e-4), made(2, 3000, 0.5, 2e-4)
    longer = np.where(np.arange(80) % 20 == 0, 4.0, 1.0)
    model = durations_of([series(two.rows, two.durations * longer), one], np.random.default_rng(0))
    assert model.fixed == pytest.approx(0.5, rel=0.1)
    assert model.mean_ratio == pytest.approx(1 + 3 / 20 / 2, rel=0.04)
    assert model.outliers == 4


def test_small_batches_that_are_slower_per_row_have_a_knee():
    def lasting(rows):
        return 0.3 + 1e-3 * np.minimum(rows, 500) + 5e-5 * rows

    random = np.random.default_rng(0)
    all_ = [
        series(rows := random.poisson(mean, 60), lasting(rows) * (1 + 0.03 * random.standard_normal(60)))
        for mean in (100, 300, 800, 3000, 9000)
    ]
    model = durations_of(all_, random)
    assert model.knee
    for rows in (150, 1000, 3000, 20_000):
        assert model.duration(rows) == pytest.approx(float(lasting(rows)), rel=0.12)


def test_blocks_keep_what_is_correlated():
    random = np.random.default_rng(0)
    level = np.cumsum(random.standard_normal(80)) * 0.05
    drawn = random.poisson(1000, 80)
    model = durations_of([series(drawn, np.exp(level))], random)
    ratios = model.work(random, 1.0, 4000.0, 4000).ratios
    assert model.correlation > 0.7
    assert np.corrcoef(ratios[:-1], ratios[1:])[0, 1] > 0.5
