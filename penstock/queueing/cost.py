"""What waiting jobs and transfers cost: equation (2) of the queueing paper, C = c1 L + c2 T."""

from penstock.queueing import parameter


def cost_per_second(jobs: float, transfers: float, holding_cost: float, transfer_cost: float) -> float:
    """Return C = c1 L + c2 T.

    Args:
        jobs: L, the mean number of jobs present.
        transfers: T, transfers (or micro-batches) per second.
        holding_cost: c1, per job and second.
        transfer_cost: c2, per transfer.

    Raises:
        ConfigurationError: a cost is negative, infinite or not a number.
    """
    holding = parameter.rate("holding_cost", holding_cost, zero=True)
    return holding * jobs + parameter.rate("transfer_cost", transfer_cost, zero=True) * transfers
