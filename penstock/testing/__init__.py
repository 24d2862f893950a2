"""For tests: a driver that runs a topology in memory, a prover, and suites that tell whether a connector keeps its contract."""

import sys
from typing import TYPE_CHECKING, Any

from penstock.testing.driver import Crash, TopologyDriver

if TYPE_CHECKING:
    from penstock.testing.contracts import SinkContract, SourceContract
    from penstock.testing.proof.helper import prove

if "pytest" in sys.modules:  # so that a failed assertion of the suites says what it found
    sys.modules["pytest"].register_assert_rewrite("penstock.testing.contracts")

__all__ = ["Crash", "SinkContract", "SourceContract", "TopologyDriver", "prove"]

_PLACES = {
    "SinkContract": "penstock.testing.contracts",
    "SourceContract": "penstock.testing.contracts",
    "prove": "penstock.testing.proof.helper",
}


def __getattr__(name: str) -> Any:
    """What is slow to import, once it is asked for: the prover's processes need none of it."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    globals()[name] = found = getattr(import_module(_PLACES[name]), name)
    return found
