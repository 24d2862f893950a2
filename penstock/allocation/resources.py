"""The resources on which tasks are placed: capacities, and bandwidths between resources."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from penstock.allocation.arcs import Floats, Ints
from penstock.allocation.graph import listed, number, positive, shown
from penstock.errors import ConfigurationError

MOST = 5000
"""Largest number of resources; it is limited because a table of bandwidths has an entry for every pair."""


@dataclass(frozen=True)
class Resources:
    """Named resources.

    Args:
        capacities: resource to speed, above zero: a task that costs d on capacity 1 costs d / 2 on capacity 2.
        bandwidths: (resource, resource) to bandwidth, above zero, by which b(e) is divided; 1 by default. A pair stands for
            both directions, unless the reverse pair is given, too.

    Raises:
        ConfigurationError: there is no resource, or a capacity or bandwidth is not a positive number.

    Examples:
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
        """Make resources from a number (of capacity 1, named R1, R2, ...) or a mapping to capacities; pass resources through.

        Raises:
            ConfigurationError: the number is not an integer from 1 to 5,000, or the mapping is not valid.
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
        """The names of the resources, in the order of ``capacities``."""
        return tuple(self.capacities)

    @cached_property
    def index(self) -> dict[Any, int]:
        """The position of each resource in ``names``."""
        return {name: position for position, name in enumerate(self.names)}

    @cached_property
    def speeds(self) -> Floats:
        """The capacities, one per resource."""
        return np.fromiter(self.capacities.values(), float, len(self.capacities))

    @cached_property
    def slowness(self) -> Floats:
        """The factor of b(e) from resource to resource: 1 / bandwidth, and 0 within a resource; shape (count, count)."""
        matrix = 1.0 - np.eye(len(self.names))
        for (start, end), bandwidth in self.bandwidths.items():
            matrix[self.index[start], self.index[end]] = 1 / bandwidth
            if (end, start) not in self.bandwidths:
                matrix[self.index[end], self.index[start]] = 1 / bandwidth
        return matrix

    @cached_property
    def kinds(self) -> Ints:
        """A number per resource, equal for resources that can be exchanged without any effect."""
        if self.bandwidths:
            return np.arange(len(self.names))
        return np.asarray(np.unique(self.speeds, return_inverse=True)[1], np.int64).reshape(-1)
