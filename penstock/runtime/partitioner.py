"""Partitioners: the rules by which integers that are keys are assigned to partitions, and to pages within a partition. Other
keys go by their hash.
"""

from typing import Literal

Partitioner = Literal["remainder", "blocks"]
"""``remainder``: the remainder of the key, divided by the number of partitions. Numbers with a common factor, such as ids that
end in zeros, share a few partitions or one. Runs that older versions have begun have it.

``blocks``: each block of consecutive integers, as many as there are partitions, has one integer for every partition, in an
order that a hash of the block turns; but of the `UNTURNED` blocks on each side of zero, all have the same order. So the first
few numbers are spread as evenly as by remainders, and numbers with a stride as by a hash. Within a partition, `TOGETHER` blocks
lie on one page, unless states are large: numbers that are given out one after the other are often needed at one time.
"""

UNTURNED = 16
LOG_TOGETHER = 6
TOGETHER = 1 << LOG_TOGETHER

PRESENT: Partitioner = "blocks"
"""The partitioner of runs that are begun now, or moved to another number of partitions."""
