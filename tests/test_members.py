"""Every public function, each class that users make, and each method by which they declare, has an example."""

import inspect
from collections.abc import Iterator
from importlib import import_module
from types import FunctionType

import pytest

from penstock import App
from penstock.testing import TopologyDriver

ROOMS = ("penstock", "penstock.allocation", "penstock.planner", "penstock.queueing")
WITHOUT = {
    "penstock.run",
    "penstock.watch",  # they need Spark; the tutorial and the guide to tuning run them
    "penstock.planner.read_plan",  # of a file that `Plan.write` made: the guide to plans
}
"""Functions whose examples are in documents, which the tests run as well."""
GIVEN = {
    "Calibration",
    "Observation",
    "Plan",
    "Planning",
    "Prediction",
    "Recovery",
    "Tuning",
    "Verdict",
    "Allocation",
    "LeastResources",
    "Shares",
    "SpdTree",
    "Distribution",
    "Estimate",
    "GateOptimum",
    "LingerBatch",
    "MicroBatchSimulation",
    "MicroBatchState",
    "Model",
    "NetworkSimulation",
    "NetworkState",
    "NodeState",
    "Optimum",
    "Recorded",
    "ResponseTime",
    "OptimumSetting",
    "Simulation",
    "Solution",
    "SteadyState",
    "Emission",
    "Sink",
    "Source",
    "States",
    "Stream",
    "Topology",
    "Window",
}
"""Classes whose objects users are given, by functions that have an example."""


def members() -> Iterator[tuple[str, object]]:
    for room in ROOMS:
        module = import_module(room)
        for name in module.__all__:
            member = getattr(module, name)
            is_given = inspect.isclass(member) and (issubclass(member, Exception) or name in GIVEN)
            if callable(member) and not is_given and f"{room}.{name}" not in WITHOUT:
                yield f"{room}.{name}", member
    for name, method in methods(App):
        yield f"App.{name}", method


def methods(owner: type) -> list[tuple[str, FunctionType]]:
    return [(name, one) for name, one in vars(owner).items() if isinstance(one, FunctionType) and not name.startswith("_")]


@pytest.mark.parametrize(("name", "member"), list(members()))
def test_it_has_an_example(name, member):
    assert ">>> " in (member.__doc__ or ""), f"{name} has no example in its docstring"


def test_the_drivers_example_has_all_its_methods():
    assert [name for name, _ in methods(TopologyDriver) if f"driver.{name}(" not in (TopologyDriver.__doc__ or "")] == []
