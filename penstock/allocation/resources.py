"""What tasks are placed on: resources with capacities, and bandwidths between them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from penstock.allocation.arcs import Floats, Ints
from penstock.allocation.graph import listed, number, positive, shown
from penstock.errors import ConfigurationError

MOST = 5000
"""Resources; every pair of them has an entry in a table of bandwidths."""


@dataclass(frozen=True)
class Resources:
    """Resources by name.

    Parameters
    ----------
    capacities: resource to speed, above zero: a task that costs d on capacity 1 costs d / 2 on capacity 2.
    bandwidths: (resource, resource) to bandwidth, above zero; b(e) is divided by it. 1 for pairs left out; a pair
        given one way holds for both, unless the other way is given too.

    Raises
    ------
    ConfigurationError: no resource, or a capacity or bandwidth that is no positive number.

    Examples
    --------
    >>> Resources({"big": 2.0, "small": 1.0}).names
    ('big', 'small')
    """

    capacities: Mapping[Any, float]
    bandwidths: Mapping[tuple[Any, Any], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.capacities, Mapping) or not isinstance(self.bandwidths, Mapping):
            raise ConfigurationError(
                f"capacities and bandwidths are mappings; got {self.capacities!r} and {self.bandwidths!r}."
            )
        if not 1 <= len(self.capacities) <= MOST:
            raise ConfigurationError(f"There are {len(self.capacities)} resources; give 1 to {MOST:,}.")
        for name, capacity in self.capacities.items():
            positive(f"The capacity of {name!r}", capacity)
        for pair, bandwidth in self.bandwidths.items():
            if not isinstance(pair, tuple) or len(pair) != 2 or pair[0] == pair[1] or not set(pair) <= set(self.names):
                raise ConfigurationError(
                    f"A bandwidth is given for {pair!r}; give pairs of different resources of {listed(self.names)}."
                )
            positive(f"The bandwidth between {pair[0]} and {pair[1]}", bandwidth)

    @classmethod
    def of(cls, given: Any) -> "Resources":
        """Resources from a number of equal ones (named R1, R2, ...), a mapping to capacities, or resources.

        Raises
        ------
        ConfigurationError: the number is not an integer of 1 or more, or as above.
        """
        if isinstance(given, Resources):
            return given
        if isinstance(given, Mapping):
            return cls(given)
        count = number(given)
        if not 1 <= count <= MOST or count % 1:
            raise ConfigurationError(
                f"resources is {shown(given)}; give an integer from 1 to {MOST:,}, or a mapping from resource to capacity."
            )
        return cls({f"R{index}": 1.0 for index in range(1, int(count) + 1)})

    @cached_property
    def names(self) -> tuple[Any, ...]:
        """The resources in the order given."""
        return tuple(self.capacities)

    @cached_property
    def index(self) -> dict[Any, int]:
        """The position of each resource."""
        return {name: position for position, name in enumerate(self.names)}

    @cached_property
    def speeds(self) -> Floats:
        """The capacities, one per resource."""
        return np.fromiter(self.capacities.values(), float, len(self.capacities))

    @cached_property
    def slowness(self) -> Floats:
        """What b(e) is multiplied by, resource by resource: 1 / bandwidth, and 0 where nothing is sent."""
        matrix = 1.0 - np.eye(len(self.names))
        for (start, end), bandwidth in self.bandwidths.items():
            matrix[self.index[start], self.index[end]] = 1 / bandwidth
            if (end, start) not in self.bandwidths:
                matrix[self.index[end], self.index[start]] = 1 / bandwidth
        return matrix

    @cached_property
    def kinds(self) -> Ints:
        """A number per resource, the same for resources that can be exchanged without any effect."""
        if self.bandwidths:
            return np.arange(len(self.names))
        return np.asarray(np.unique(self.speeds, return_inverse=True)[1], np.int64).reshape(-1)
