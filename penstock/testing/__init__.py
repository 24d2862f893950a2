"""For tests: a driver that runs a topology in memory, and suites that tell whether a connector keeps its contract."""

from penstock.testing.contracts import SinkContract, SourceContract
from penstock.testing.driver import Crash, TopologyDriver

__all__ = ["Crash", "SinkContract", "SourceContract", "TopologyDriver"]
