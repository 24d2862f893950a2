"""For tests: a driver that runs a topology in memory, and suites that tell whether a connector keeps its contract."""

import sys

if "pytest" in sys.modules:  # so that a failed assertion of the suites says what it found
    sys.modules["pytest"].register_assert_rewrite("penstock.testing.contracts")

from penstock.testing.contracts import SinkContract, SourceContract
from penstock.testing.driver import Crash, TopologyDriver

__all__ = ["Crash", "SinkContract", "SourceContract", "TopologyDriver"]
