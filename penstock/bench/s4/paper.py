"""The paper's numbers: Tables I to VI, and those of the figures that its text states."""

from dataclasses import dataclass

CITATION = (
    "J. Chauhan, S. A. Chowdhury and D. Makaroff, Performance Evaluation of Yahoo! S4: A First Look, 2012 (3PGCIC), sections "
    "IV and V: S4 0.3.0 on Core 2 Duo machines of 2.4 GHz with 2 GB and 1 Gb/s"
)
KEYS = (1, 2, 4, 8)


@dataclass(frozen=True)
class UsageRow:
    """A node's use of processor and memory at a rate (events/s), in percent, by number of keys (1, 2, 4, 8)."""

    table: str
    size: str
    nodes: int
    node: int
    rate: int
    processor: tuple[float, ...]
    memory: tuple[float, ...]


def _rows(table: str, size: str, nodes: int, *values: tuple[int, int, tuple[float, ...], tuple[float, ...]]) -> list[UsageRow]:
    return [UsageRow(table, size, nodes, node, rate, processor, memory) for node, rate, processor, memory in values]


RESOURCES = [
    *_rows("I", "10 MB", 1, (1, 500, (17.5, 25, 50, 75), (65, 65, 65, 78)), (1, 1000, (22.5, 47.5, 70, 80), (65, 65, 74, 72))),
    *_rows(
        "II",
        "10 MB",
        2,
        (1, 500, (5, 15, 30, 50), (71, 71, 71, 71)),
        (1, 1000, (10, 25, 55, 80), (71, 71, 71, 78)),
        (2, 500, (15, 20, 40, 60), (88, 82, 92, 92)),
        (2, 1000, (20, 35, 70, 85), (96, 96, 96, 96)),
    ),
    *_rows(
        "III",
        "10 MB",
        3,
        (1, 500, (5, 12, 18, 40), (65, 65, 65, 65)),
        (1, 1000, (7, 25, 30, 70), (65, 65, 65, 68)),
        (2, 500, (8, 18, 35, 60), (88, 96, 90, 96)),
        (2, 1000, (15, 35, 70, 85), (95, 96, 96, 96)),
        (3, 500, (17, 15, 25, 40), (61, 64, 64, 64)),
        (3, 1000, (23, 20, 40, 60), (61, 62, 66, 66)),
    ),
    *_rows("IV", "100 MB", 1, (1, 500, (15, 25, 45, 70), (56, 57, 62, 87)), (1, 1000, (25, 45, 70, 70), (56, 60, 96, 70))),
    *_rows(
        "V",
        "100 MB",
        2,
        (1, 500, (5, 15, 28, 52), (51, 50, 48, 50)),
        (1, 1000, (8, 28, 55, 82), (53, 50, 52, 72)),
        (2, 500, (14, 20, 38, 75), (96, 96, 96, 96)),
        (2, 1000, (22, 35, 72, 85), (96, 96, 96, 96)),
    ),
    *_rows(
        "VI",
        "100 MB",
        3,
        (1, 500, (5, 12, 18, 40), (57, 58, 68, 70)),
        (1, 1000, (6, 25, 30, 70), (57, 68, 69, 75)),
        (2, 500, (8, 18, 35, 65), (96, 96, 96, 96)),
        (2, 1000, (12, 35, 60, 85), (96, 96, 96, 96)),
        (3, 500, (10, 8, 18, 35), (58, 60, 61, 62)),
        (3, 1000, (18, 12, 35, 60), (60, 63, 62, 66)),
    ),
]
"""Tables I to VI. The paper says that disks were used at 5% or less throughout."""

AFTER_FAULT = {"1 of 2": 0.55, "1 of 3": 0.68, "2 of 3": 0.5}
"""Section V-C: fraction of the events still processed after nodes were killed half-way (Figure 11; "around" for the last)."""

FINDINGS = (
    ("A third node made things worse, or no better, for 1, 2 and 4 keys; it helped with 8 (V-A, Figure 3).", "nodes"),
    ("A single node lost the most events (V-A, Figure 4).", "lost"),
    ("One of three nodes got twice the work of the others (V-B).", "balance"),
    ("When nodes were killed, throughput fell to 55% (1 of 2), 68% (1 of 3) and about 50% (2 of 3), for good (V-C).", "faults"),
)
"""The paper's findings, each with the name of the answer in our report."""
