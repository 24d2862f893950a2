"""What latency and micro-batches cost: equation (2) of the queueing paper, c1 L + c2 T, for a query."""

from dataclasses import dataclass

from penstock.planner.prediction import DAY_S, Prediction
from penstock.queueing import parameter


@dataclass(frozen=True)
class Prices:
    """Prices in one unit, whichever.

    Parameters
    ----------
    holding: c1, of a row that waits or is in a micro-batch, per second; above 0, else it would pay never to run one.
    transfer: c2, of a micro-batch: its object-store calls, its files, its core-seconds.

    Raises
    ------
    ConfigurationError: a price is out of its range.

    Examples
    --------
    >>> Prices(holding=1e-6, transfer=0.002)
    Prices(holding=1e-06, transfer=0.002)
    """

    holding: float
    transfer: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "holding", parameter.rate("holding cost", self.holding))
        object.__setattr__(self, "transfer", parameter.rate("transfer cost", self.transfer, zero=True))

    def per_second(self, prediction: Prediction) -> float:
        """c1 L + c2 T."""
        return self.holding * prediction.backlog + self.transfer * prediction.batches_per_day / DAY_S

    def shown(self, prediction: Prediction) -> str:
        """The two parts and their sum, in words."""
        held = self.holding * prediction.backlog
        moved = self.transfer * prediction.batches_per_day / DAY_S
        return f"{held:.3g} a second for rows that wait and {moved:.3g} for micro-batches, {held + moved:.3g} together"

    def to_json(self) -> dict[str, float]:
        """As a plan keeps them."""
        return {"holding_cost": self.holding, "transfer_cost": self.transfer}
