"""Prices of waiting rows and of micro-batches: equation (2) of the queueing paper, c1 L + c2 T, for a query."""

from dataclasses import dataclass

from penstock.planner.prediction import DAY_S, Prediction
from penstock.queueing import parameter


@dataclass(frozen=True)
class Prices:
    """Two prices in the same unit, whichever that is.

    Args:
        holding: c1, per second of a row that waits or is in a micro-batch; above 0, or else it would pay never to run one.
        transfer: c2, per micro-batch: its object-store calls, its files, its core-seconds.

    Raises:
        ConfigurationError: a price is out of its range.

    Examples:
        >>> Prices(holding=1e-6, transfer=0.002)
        Prices(holding=1e-06, transfer=0.002)
    """

    holding: float
    transfer: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "holding", parameter.rate("holding cost", self.holding))
        object.__setattr__(self, "transfer", parameter.rate("transfer cost", self.transfer, zero=True))

    def per_second(self, prediction: Prediction) -> float:
        """The cost per second, c1 L + c2 T."""
        return sum(self._parts(prediction))

    def _parts(self, prediction: Prediction) -> tuple[float, float]:
        """The cost per second of rows that wait, and that of micro-batches."""
        return self.holding * prediction.backlog, self.transfer * prediction.batches_per_day / DAY_S

    def shown(self, prediction: Prediction) -> str:
        """The two parts of the cost and their sum, in words."""
        held, moved = self._parts(prediction)
        return f"{held:.3g} a second for rows that wait and {moved:.3g} for micro-batches, {held + moved:.3g} together"

    def to_json(self) -> dict[str, float]:
        """The prices as a plan contains them."""
        return {"holding_cost": self.holding, "transfer_cost": self.transfer}
