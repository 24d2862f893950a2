"""The model of the adapter's door beside closed forms, and the doors of a real adapter, chosen and kept."""

import json
import math
import time

import httpx
import pytest
from adapters import RunningAdapter
from planner.test_adapting import TARGET, Simulated

from penstock.errors import ConfigurationError, SourceError
from penstock.planner.door import MeasuredDoor
from penstock.planner.doors import Doors
from penstock.runs.decisions import decisions, in_force
from penstock.runs.gate import TransferGate

LARGE = 1_000_000


def door(**changed):
    return MeasuredDoor(
        **{
            "gate": TransferGate(),
            "request_rate": 100.0,
            "gap_scv": 1.0,
            "size_mean": 1.0,
            "size_scv": 0.0,
            "fixed": 1e-6,
            "per_event": 0.0,
            **changed,
        }
    )


@pytest.mark.parametrize(("fixed", "load"), [(0.002, 0.2), (0.005, 0.5), (0.007, 0.7)])
def test_transfers_of_one_event_are_the_queue_of_pollaczek_and_khinchine(fixed, load):
    passed = door(fixed=fixed).passed(TransferGate(1, 0.0))
    assert passed.latency["mean"] == pytest.approx(fixed + load * fixed / (2 * (1 - load)), rel=0.1)
    assert passed.busy == pytest.approx(load, rel=0.05)


@pytest.mark.parametrize("timer", [0.01, 0.1, 1.0])
def test_a_timer_alone_is_a_renewal_process(timer):
    """A cycle is a gap and the timer; of its events one waits for all of it, and those that come meanwhile for half."""
    passed = door().passed(TransferGate(LARGE, timer))
    came = 100 * timer
    assert passed.transfers == pytest.approx(100 / (1 + came), rel=0.03)
    assert passed.latency["mean"] == pytest.approx(timer * (1 + came / 2) / (1 + came), rel=0.03)
    assert passed.latency["p99"] <= timer + 0.001


def test_a_batch_size_alone_waits_for_the_last_of_it():
    passed = door(gap_scv=0.0).passed(TransferGate(10, 3600.0))
    assert passed.latency["mean"] == pytest.approx(4.5 / 100, rel=0.01)
    assert passed.transfers == pytest.approx(10, rel=0.01)


def test_whole_requests_are_transferred_together_and_no_more_than_fit():
    passed = door(gap_scv=0.0, size_mean=4.0).passed(TransferGate(10, 3600.0))
    assert passed.transfers == pytest.approx(50, rel=0.01)  # the third request fills it, and two of them fit


@pytest.mark.slow
def test_the_door_waits_for_what_transfers_cost_and_not_beyond():
    costly, gate = door(request_rate=1000.0, fixed=0.004), {}
    for interval in (0.5, 2.0, 8.0):
        gate[interval], passed = costly.best("p95", interval, fixed=0.3)
        assert passed.latency["p95"] < interval / 2
        assert passed.busy < costly.passed(TransferGate()).busy
    assert gate[0.5].flush_timer < gate[2.0].flush_timer <= gate[8.0].flush_timer
    cheap, _ = door(request_rate=2.0, fixed=1e-5).best("p95", 2.0, fixed=0.3)
    assert cheap.flush_timer == 0


class Kept:
    """Doors that note the gates they are given."""

    def __init__(self, gate=None):
        self.gates, self._gate = {}, gate or TransferGate()

    def measured(self):
        return {"Rows": door(gate=self.gates.get("Rows", self._gate), request_rate=1000.0, fixed=0.004)}

    def keep(self, gates):
        differed = self.gates != {**self.gates, **gates}
        self.gates.update(gates)
        return differed


def steered(directory, doors, **options):
    run = Simulated(directory, TARGET, rate=lambda at: 1000, **options)
    run.adapting._doors = doors
    return run.run(200)


def test_trigger_and_door_are_chosen_together(tmp_path):
    alone = Simulated(tmp_path, TARGET, rate=lambda at: 1000).run(200)
    (tmp_path / "with").mkdir()
    doors = Kept()
    run = steered(tmp_path / "with", doors)
    decided = in_force(tmp_path / "with")
    assert doors.gates == decided.doors
    assert decided.doors["Rows"].flush_timer >= 0.05
    assert run.trigger < alone.trigger  # what is waited for at the door is not there for micro-batches
    assert decided.expected["p95"] <= TARGET.seconds
    waited = decided.expected["doors"]["Rows"]["p95"]
    assert decided.expected["p95"] == pytest.approx(waited + 0.95 * run.trigger + 0.4, rel=0.15)


@pytest.mark.slow
def test_a_change_that_is_taken_back_gives_the_first_gate_back(tmp_path):
    doors = Kept()
    run = Simulated(tmp_path, TARGET, rate=lambda at: 1000)
    run.adapting._doors = doors
    run.hidden = lambda trigger: 5.0 if trigger > 2 else 0.0
    run.run(200)
    assert [one.kind for one in decisions(tmp_path)][:2] == ["apply", "revert"]
    assert doors.gates["Rows"] == TransferGate()


@pytest.mark.slow
def test_a_door_whose_clients_wait_for_their_answers_is_left_alone(tmp_path):
    """A longer timer is a slower client: the rate falls with the change, which is taken back for good."""
    doors = Kept()
    run = Simulated(tmp_path, TARGET, rate=lambda at: 1000 if at < 46 else 200)
    run.adapting._doors = doors
    run.run(200)
    reverted = next(one for one in decisions(tmp_path) if one.kind == "revert")
    assert "wait for their answers" in reverted.why
    assert doors.gates["Rows"] == TransferGate()
    assert all(not one.doors or one.doors == reverted.doors for one in decisions(tmp_path) if one.time > reverted.time)


@pytest.mark.slow
def test_an_adapter_that_dies_after_a_change_is_no_sign_of_waiting_clients(tmp_path):
    """Its gate is given again, and what did not arrive while it was away is not compared with the rate before."""

    class Mortal(Kept):
        dies_at = 58.0

        def keep(self, gates):
            if run.now > self.dies_at:
                self.gates, self.dies_at = {"Rows": TransferGate()}, math.inf
            return super().keep(gates)

    run = Simulated(tmp_path, TARGET, rate=lambda at: 200 if 46 < at < 60 else 1000)
    run.adapting._doors = doors = Mortal()
    run.run(100)
    assert [one.kind for one in decisions(tmp_path)][:2] == ["apply", "check"]
    assert doors.gates == in_force(tmp_path).doors != {"Rows": TransferGate()}


@pytest.mark.slow
def test_an_adapter_that_refuses_for_long_leaves_the_run_adapting(tmp_path):
    class Refusing(Kept):
        def keep(self, gates):
            if run.now > 100:
                raise SourceError("The adapter refuses PUT of the gate of Rows (403).")
            return super().keep(gates)

    run = Simulated(tmp_path, TARGET, rate=lambda at: 1000 if at < 150 else 4000)
    run.adapting._doors = Refusing()
    run.run(300)
    assert "rate" in [one.cause for one in decisions(tmp_path)]


def test_a_dry_run_leaves_the_door_alone(tmp_path):
    doors = Kept()
    steered(tmp_path, doors, dry_run=True)
    assert doors.gates == {}
    assert next(decisions(tmp_path)).doors["Rows"].flush_timer > 0


@pytest.fixture(scope="module")
def adapter(tmp_path_factory):
    with RunningAdapter(tmp_path_factory.mktemp("spool")) as running:
        yield running


def test_a_real_adapters_doors_are_measured_and_set(adapter):
    doors = Doors(adapter.url, ["Words"])
    assert doors.measured() == {}
    for number in range(30):
        adapter.post(json.dumps([{"text": f"w{number}"}] * (1 + number % 3)))
    seen = doors.measured()["Words"]
    assert seen.size_mean == pytest.approx(2.0)
    assert 0 < seen.fixed < 1
    transfers = adapter.get("/streams/Words/transfers").json()
    assert (transfers["transfers"], transfers["events"]) == (30, 60)
    assert doors.keep({"Words": TransferGate(2_000, 0.25)})
    assert not doors.keep({"Words": TransferGate(2_000, 0.25)})
    assert doors.gate("Words") == TransferGate(2_000, 0.25)
    began = time.monotonic()
    adapter.post(json.dumps([{"text": "late"}]))
    assert time.monotonic() - began >= 0.25
    doors.keep({"Words": TransferGate()})


def test_an_adapter_that_is_away_or_refuses_is_told_in_a_sentence(adapter):
    with pytest.raises(SourceError, match="refuses GET of the gate of Other \\(404"):
        Doors(adapter.url, ["Other"]).check()
    with pytest.raises(SourceError, match="does not answer"):
        Doors("http://127.0.0.1:9", ["Words"]).check()
    strange = httpx.MockTransport(lambda request: httpx.Response(200, json={"status": "maintenance"}))
    with pytest.raises(SourceError, match="no adapter of this version"):
        Doors("http://adapter", ["Words"], transport=strange).check()
    with pytest.raises(ConfigurationError, match="no address of an adapter"):
        Doors("http://[::1", ["Words"])
    refusing = httpx.MockTransport(lambda request: httpx.Response(401, text="a token is needed"))
    with pytest.raises(SourceError, match="PENSTOCK_TOKEN"):
        Doors("http://adapter", ["Words"], transport=refusing).check()
