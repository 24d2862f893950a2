"""Adapting on a simulated query with a clock of its own: it learns, keeps its bound through changes, and does not fidget."""

import math

import numpy as np
import pytest
from planner.queries import BEGAN, tell

from penstock.planner import Target
from penstock.planner.adapting import Adapting
from penstock.runs.batches import BatchRecord
from penstock.runs.decisions import DECISIONS, decisions, in_force


class Simulated:
    """Micro-batches of a query whose durations are known, as a run tells them to what steers it."""

    def __init__(
        self,
        directory,
        target,
        *,
        rate,
        fixed=0.3,
        per_row=1e-4,
        trigger=1.0,
        noise=0.05,
        seed=1,
        dry_run=False,
        timed=math.inf,
    ):
        self.now, self.trigger, self.number, self.seed = 0.0, trigger, 0, seed
        self._rate, self._fixed, self._per_row, self._noise = rate, fixed, per_row, noise
        self._random = np.random.default_rng(seed)
        self._taken, self._births = 0, np.empty(0)
        self._timed = timed
        """Micro-batches whose results have a latency; those of timers have none."""
        self.adapting = Adapting(directory, target, trigger, dry_run=dry_run, clock=lambda: BEGAN + self.now)
        self.visible, self.latencies, self.triggers = [], [], [(0.0, trigger)]
        self._next, self.hidden = 0.0, lambda trigger: 0.0

    def run(self, until, slower=1.0):
        cells = np.arange(self.now, until + 30, 0.1)
        counts = self._random.poisson([self._rate(cell) * 0.1 for cell in cells])
        births = np.sort(np.repeat(cells, counts) + self._random.random(int(counts.sum())) * 0.1)
        self._births = np.append(self._births[: self._taken], births[births >= self.now])
        while self.now < until:
            self._batch(slower)
        return self

    def _batch(self, slower):
        start = max(self.now, self._next)  # a micro-batch that outlasts its interval is followed at once
        self._ask(start)
        self.now = start
        there = int(np.searchsorted(self._births, start))
        self._next = (math.floor(start / self.trigger + 1e-9) + 1) * self.trigger if self.trigger else 0.0
        if there == self._taken:
            self.now += 0.1
            return
        own = self._births[self._taken : there]
        length = (self._fixed + self._per_row * len(own)) * slower * max(0.3, 1 + self._noise * self._random.standard_normal())
        ends = [np.array([count]) for count in (self._taken, there, there)]
        self._taken, self.number, self.now = there, self.number + 1, start + length
        own = own - self.hidden(self.trigger)
        record = BatchRecord(batch=self.number, committed_us=round((BEGAN + self.now) * 1e6))
        timed = (self.now - own)[:: max(1, len(own) // 50)] if self.number <= self._timed else np.empty(0)
        for latency in timed[: 2 if math.isfinite(self._timed) else None].tolist():
            record.latency_ms.add(latency * 1e3)
        record.source("Rows").accepted = len(own)
        self.adapting.committed("query", record)
        self.adapting.progressed(tell(start, self.number, len(own), length, ends, "query", "run", None))
        self.visible.append(self.now)
        self.latencies.append(self.now - own)

    def _ask(self, until):
        """The run asks what is wanted several times a second, here each second."""
        while self.now < until:
            self.now = min(self.now + 1.0, until)
            change = self.adapting.wanted()
            if change is not None:
                self.trigger = change.trigger
                self.triggers.append((self.now, change.trigger))
                self.adapting.changed(change, restarted=False)
                return
        change = self.adapting.wanted()
        if change is not None:
            self.trigger = change.trigger
            self.triggers.append((self.now, change.trigger))
            self.adapting.changed(change, restarted=False)

    def p95(self, since, until):
        """Of the rows whose micro-batches became visible in a span."""
        return float(
            np.quantile(
                np.concatenate([one for at, one in zip(self.visible, self.latencies, strict=True) if since <= at < until]), 0.95
            )
        )


TARGET = Target("p95", 4.0)


def kinds(directory):
    """What was decided, but for changes that were seen and did not pay."""
    return [one.kind for one in decisions(directory) if one.kind != "keep"]


def test_it_learns_and_takes_the_trigger_that_meets_the_bound(tmp_path):
    run = Simulated(tmp_path, TARGET, rate=lambda at: 1000).run(300)
    assert len(run.triggers) == 2
    assert 2.5 <= run.trigger <= 3.6
    assert run.p95(120, 300) <= 4.0
    assert kinds(tmp_path)[:2] == ["apply", "check"]
    check = next(one for one in decisions(tmp_path) if one.kind == "check")
    assert check.came["p95"] == pytest.approx(check.expected["p95"], rel=0.15)


def test_a_step_of_four_is_met_by_one_change_at_most(tmp_path):
    run = Simulated(tmp_path, TARGET, rate=lambda at: 1000 if at < 300 else 4000, per_row=1.5e-4).run(600)
    assert len(run.triggers) <= 3
    assert run.p95(380, 600) <= 4.0
    seen = [one for one in decisions(tmp_path) if one.cause == "rate"]
    assert seen
    assert seen[-1].evidence["rate"] == pytest.approx(4000, rel=0.1)


def test_what_was_before_a_change_is_known_where_results_have_no_times(tmp_path):
    run = Simulated(tmp_path, TARGET, rate=lambda at: 1000, timed=0)
    while run.adapting._pending is None:
        run.run(run.now + 2)
    assert 0.5 < run.adapting._pending.before["p95"] < 2.5


@pytest.mark.slow
def test_a_slow_wave_is_no_reason_to_fidget(tmp_path):
    run = Simulated(tmp_path, TARGET, rate=lambda at: 1000 * (1 + 0.4 * math.sin(2 * math.pi * at / 600))).run(1200)
    assert len(run.triggers) <= 3
    assert run.p95(120, 1200) <= 4.0


@pytest.mark.slow
def test_a_query_that_slows_down_is_noticed(tmp_path):
    run = Simulated(tmp_path, TARGET, rate=lambda at: 1500, per_row=3e-4).run(250)
    run.run(600, slower=1.6)
    assert any(one.cause == "speed" for one in decisions(tmp_path))
    assert run.p95(400, 600) <= 4.2


def test_what_cannot_be_met_is_said_and_made_as_good_as_it_gets(tmp_path):
    run = Simulated(tmp_path, Target("p95", 0.2), rate=lambda at: 1000, trigger=5.0).run(200)
    assert run.trigger < 1.0
    assert next(decisions(tmp_path)).kind == "apply"


def test_what_came_is_checked_where_results_are_of_timers(tmp_path):
    """Two results with a latency, and then none: the time of source events until they are processed is checked."""
    run = Simulated(tmp_path, Target("p95", 3.0), rate=lambda second: 1000.0, timed=1).run(400)
    checks = [one for one in decisions(tmp_path) if one.kind == "check"]
    assert checks
    assert checks[0].came["p95"] == pytest.approx(float(np.quantile(np.concatenate(run.latencies[-20:]), 0.95)), rel=0.25)
    assert checks[0].came["results"] == 0


def test_a_dry_run_touches_nothing(tmp_path):
    run = Simulated(tmp_path, TARGET, rate=lambda at: 1000, dry_run=True).run(300)
    assert run.triggers == [(0.0, 1.0)]
    assert "propose" in kinds(tmp_path)
    assert in_force(tmp_path) is None


def test_a_change_that_made_it_worse_is_taken_back(tmp_path):
    """Nothing that the model looks at has changed, and yet results come later with the longer interval."""
    run = Simulated(tmp_path, TARGET, rate=lambda at: 1000)
    run.hidden = lambda trigger: 5.0 if trigger > 2 else 0.0
    run.run(200)
    assert kinds(tmp_path)[:2] == ["apply", "revert"]
    assert in_force(tmp_path).trigger_s == run.trigger == 1.0


def test_a_run_that_died_resumes_on_what_was_decided(tmp_path):
    run = Simulated(tmp_path, TARGET, rate=lambda at: 1000).run(100)
    assert in_force(tmp_path).trigger_s == run.trigger != 1.0
    with (tmp_path / DECISIONS).open("ab") as file:
        file.write(b'{"time": 1, "kind": "app')  # torn by a kill: never carried out
    assert in_force(tmp_path).trigger_s == run.trigger


def test_a_saving_that_had_to_wait_is_taken_later(tmp_path):
    """The rate falls soon after a change: the longer interval comes once that change is a minute ago."""
    run = Simulated(tmp_path, TARGET, rate=lambda at: 3000 if at < 70 else 300, per_row=2.5e-4).run(300)
    told = [(one.kind, one.cause) for one in decisions(tmp_path)]
    assert ("keep", "rate") in told
    assert ("apply", "deferred") in told
    assert run.p95(200, 300) <= 4.0
