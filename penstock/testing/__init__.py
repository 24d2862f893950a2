"""Tools for tests: an in-memory driver for topologies, a prover, and suites that check the contracts of connectors."""

import sys
from typing import TYPE_CHECKING, Any

from penstock.testing.driver import Crash, TopologyDriver

if TYPE_CHECKING:
    from penstock.testing.contracts import SinkContract, SourceContract
    from penstock.testing.proof.helper import prove

if "pytest" in sys.modules:  # so that failed assertions of the suites show their values
    sys.modules["pytest"].register_assert_rewrite("penstock.testing.contracts")

__all__ = ["Crash", "SinkContract", "SourceContract", "TopologyDriver", "prove"]

_PLACES = {
    "SinkContract": "penstock.testing.contracts",
    "SourceContract": "penstock.testing.contracts",
    "prove": "penstock.testing.proof.helper",
}


def __getattr__(name: str) -> Any:
    """Import the slow modules on first use: the prover's processes do not need them."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    globals()[name] = attribute = getattr(import_module(_PLACES[name]), name)
    return attribute
