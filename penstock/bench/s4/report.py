"""The report: the paper's tables and figures from measured cells, beside the paper's numbers, as Markdown and as HTML."""

import json
import platform
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import pyspark
from scipy import stats

import penstock
from penstock.bench.figures.plots import COLOURS, MARKERS
from penstock.bench.s4.cells import LARGE, SMALL
from penstock.bench.s4.paper import AFTER_FAULT, CITATION, FINDINGS, KEYS, RESOURCES
from penstock.bench.s4.parts import Heading, Part, Picture, ReportTable, Text, html, markdown
from penstock.bench.s4.search import BOUND_S, Sustained, sustained
from penstock.web.document import document

Cell = dict[str, Any]


class CellReport:
    """A report on measured cells.

    Args:
        cells: results of the kinds grid, resources and faults; a failed cell has an ``error``.
        command: the command that measured them, for the last section.
    """

    def __init__(self, cells: Sequence[Cell], command: str) -> None:
        self._failed = [cell for cell in cells if "error" in cell and not cell["trial"]]
        good = [cell for cell in cells if "error" not in cell]
        self._grid = [cell for cell in good if cell["kind"] == "grid" and not cell["trial"]]
        self._resources = [cell for cell in good if cell["kind"] == "resources" and not cell["trial"]]
        self._trials = [cell for cell in cells if cell["kind"] == "grid" and cell["trial"]]
        self._faults = [cell for cell in good if cell["kind"] == "faults"]
        self._command = command

    def write(self, directory: Path) -> None:
        """Write report.md, report.html and the pictures."""
        parts = list(self._parts())
        (directory / "report.md").write_text("".join(markdown(part, directory) for part in parts))
        (directory / "report.html").write_text(document("The S4 evaluation on Penstock", map(html, parts)))

    def _parts(self) -> Iterable[Part]:
        measured = [*self._grid, *(cell for cell in self._trials if "error" not in cell), *self._faults]
        lost, doubled = (sum(cell[name] for cell in measured) for name in ("lost", "duplicated"))
        yield Heading(1, "The S4 evaluation on Penstock")
        yield Text(
            f"In 2012 a benchmark asked what Yahoo! S4 does when nodes and events are added, and when nodes are killed "
            f"({CITATION}). This is the same application on Penstock, in a real Spark cluster of several nodes on one machine. "
            "Words of 100 characters come in; each that is a number is checked for divisibility by 3 and by 11, under 1 to 8 "
            "keys; a last element counts what was found. What it counts is compared with what Python's own arithmetic says "
            "must come out."
        )
        yield Text(
            f"Of {sum(cell['events'] for cell in measured):,} words in {len(measured)} runs, {len(self._faults)} of them with "
            f"a kill, {lost} events were lost and {doubled} counted twice."
        )
        yield Text(" ".join(sorted({note for cell in measured for note in cell["notes"]})))
        if self._failed:
            yield Text(
                f"{len(self._failed)} cells failed: "
                + "; ".join(f"{c['name']}: {c['error'].partition('. ')[0]}" for c in self._failed)
            )
        yield Heading(2, "What the paper found, and what is found here")
        yield ReportTable(("the paper", "here (measured)"), [(finding, self._answer(about)) for finding, about in FINDINGS])
        yield from self._scalability()
        yield from self._search()
        yield from self._usage()
        yield from self._recovery()
        yield Heading(2, "What can be compared, and what cannot")
        yield Text(
            "The application, the words, the keys, the rates and the kinds of faults are the paper's. The machines are not: "
            "its nodes were computers, ours share one, each limited to a share of the processor (setting.json). S4 drops "
            "what it cannot process, so the paper counts events lost; Penstock lets events wait, so the question becomes how "
            "long they wait, which the paper did not measure. Percentages of the processor are of one core here and of two "
            "there."
        )
        yield Heading(2, "Made by")
        yield Text(
            f"`{self._command}`, Penstock {penstock.__version__}, PySpark {pyspark.__version__}, Python "
            f"{platform.python_version()}, {platform.platform()}. cells.parquet and cells/ hold the raw data."
        )

    def _answer(self, about: str) -> str:
        """The measured counterpart of one of the paper's findings, as a sentence."""
        most = self._most()
        if about == "lost":
            lost = sum(cell["lost"] for cell in self._grid)
            return f"{lost} events lost in {len(self._grid)} runs."
        if about == "nodes" and most:
            # If no trial failed, the rate is only a lower bound, so ratios of it mean nothing.
            rates = {where: result.rate for where, result in self._sustained().items() if result.rate and result.over}
            answers = [f"Throughput over that of one node: {_gains(most)}."]
            answers += [f"Sustainable throughput over that of one node: {_gains(rates)}."] if rates else []
            return " ".join(answers)
        if about == "balance":
            ratios = [
                max(loads) / (sum(loads) / len(loads))
                for cell in self._resources
                if cell["nodes"] == 3 and (loads := _processors(cell)) and sum(loads) > 0
            ]
            return f"The busiest of three nodes has {statistics.mean(ratios):.2f} times the mean." if ratios else "not measured"
        if about == "faults" and self._faults:
            pieces = [
                f"{cell['kill']}: {cell['recovery_seconds']:.0f} s" for cell in self._faults if "recovery_seconds" in cell
            ]
            return "No more words wait than before the kill (or all are processed) after " + ", ".join(pieces) + "."
        return "not measured"

    def _sustained(self) -> dict[tuple[int, int], Sustained]:
        """Sustainable throughput by searches, by (nodes, keys)."""
        groups = defaultdict[tuple[int, int], list[Cell]](list)
        for cell in self._trials:
            groups[cell["nodes"], cell["keys"]].append(cell)
        return {where: sustained(trials) for where, trials in sorted(groups.items())}

    def _most(self) -> dict[tuple[int, int], float]:
        """Mean throughput by (nodes, keys), of cells whose words came as fast as the broker takes them."""
        groups = defaultdict[tuple[int, int], list[float]](list)
        for cell in self._grid:
            if cell["rate"] is None:
                groups[cell["nodes"], cell["keys"]].append(cell["throughput"])
        return {where: statistics.mean(values) for where, values in sorted(groups.items())}

    def _scalability(self) -> Iterable[Part]:
        yield Heading(2, "Scalability and lost events (the paper's Figures 3 and 4)")
        groups = defaultdict[tuple[int, int, float, int], list[Cell]](list)
        for cell in self._grid:
            groups[cell["nodes"], cell["keys"], cell["rate"] or float("inf"), cell["events"]].append(cell)
        rows = []
        for (nodes, keys, rate, words), cells in sorted(groups.items()):
            counted, wanted = (statistics.mean(cell[name] for cell in cells) for name in ("processed", "expected"))
            p95 = [cell["latency"]["p95"] for cell in cells if cell["latency"]]
            rows.append(
                (
                    nodes,
                    keys,
                    _rate(rate),
                    f"{words:,}",
                    f"{counted:,.0f} of {wanted:,.0f}",
                    f"{sum(cell['lost'] for cell in cells)}",
                    _mean([cell["throughput"] for cell in cells]),
                    _mean([cell["seconds"] for cell in cells], ".1f"),
                    _mean(p95, ".1f"),
                )
            )
        head = ("nodes", "keys", "injected", "words", "counted divisible by 3", "lost", "words/s", "seconds", "p95 latency (s)")
        yield ReportTable(head, rows)
        yield Text("With several repetitions, +- is half of the 95% confidence interval of the mean.")
        most = self._most()
        if most:
            yield Picture("throughput", "Words per second by nodes, a line for each number of keys", _throughput_plot(most))

    def _search(self) -> Iterable[Part]:
        searched = self._sustained()
        if not searched:
            return
        yield Heading(2, "Sustainable throughput")
        yield Text(
            f"The greatest rate of a schedule at which no word waited {BOUND_S:.0f} seconds, found by trials that halve "
            "what is left. The paper has no such figure: S4 drops what it cannot process."
        )
        most = self._most()
        rows = [
            (
                nodes,
                keys,
                f"{'' if result.over else 'at least '}{result.rate:,.0f}" if result.rate else "none",
                f"{result.over:,.0f}" if result.over else "none",
                f"{most[nodes, keys]:,.0f}",
            )
            for (nodes, keys), result in searched.items()
        ]
        head = ("nodes", "keys", "sustained (words/s)", "the least that was not", "words that all wait already (words/s)")
        yield ReportTable(head, rows)

    def _usage(self) -> Iterable[Part]:
        yield Heading(2, "Resources of each node (the paper's Tables I to VI)")
        yield Text(
            "Averages over a cell: the processor in percent of a core, the memory as held. In brackets the paper's figures, "
            "where it has any: the processor in percent of two cores, the memory in percent of 2 GB."
        )
        for nodes in sorted({cell["nodes"] for cell in self._resources}):
            cells = [cell for cell in self._resources if cell["nodes"] == nodes]
            keys = sorted({cell["keys"] for cell in cells})
            groups = defaultdict[tuple[float, str], dict[int, list[Cell]]](lambda: defaultdict(list))
            for cell in cells:
                for name in cell["usage"]:
                    groups[cell["rate"] or float("inf"), name][cell["keys"]].append(cell)
            rows = [
                (f"{name}, {_rate(rate)}", *(_used(by_keys.get(number, []), name) for number in keys))
                for (rate, name), by_keys in sorted(groups.items(), key=lambda group: group[0][0])
            ]
            tables = dict.fromkeys(row.table for row in RESOURCES if row.nodes == nodes)
            yield Heading(3, f"{nodes} {'node' if nodes == 1 else 'nodes'} (Tables {' and '.join(tables)})")
            yield ReportTable(("node and rate", *(f"{number} {'key' if number == 1 else 'keys'}" for number in keys)), rows)
        yield Text("What the disks and the network have carried, averaged over the cells of a number of nodes:")
        yield ReportTable(
            ("nodes", "node", "disk KiB/s", "packets in/s", "out/s", "KiB in/s", "out/s"), list(_traffic(self._resources))
        )

    def _recovery(self) -> Iterable[Part]:
        yield Heading(2, "Faults (the paper's Figure 11)")
        yield Text(
            "Nodes are killed with kill -9 when half of the words are in. Recovered is a run once no more words wait than did "
            "before the kill."
        )
        rows = []
        for cell in self._faults:
            stated = AFTER_FAULT.get(cell["kill"])
            rows.append(
                (
                    f"{cell['kill']} ({cell['nodes']} nodes)",
                    *(f"{cell.get(f'throughput_{when}', 0):,.0f}" for when in ("before", "during", "after")),
                    f"{cell.get('recovery_seconds', float('nan')):.1f}",
                    cell["lost"],
                    cell["duplicated"],
                    "" if stated is None else f"{stated:.0%}",
                )
            )
        head = (
            "killed",
            "words/s before",
            "during",
            "after",
            "recovered (s)",
            "lost",
            "counted twice",
            "the paper: left of it",
        )
        yield ReportTable(head, rows)
        if any("course" in cell for cell in self._faults):
            yield Picture("faults", "Words processed over time; the vertical line is the kill", _fault_plot(self._faults))


def _mean(values: Sequence[float], form: str = ",.0f") -> str:
    if not values:
        return ""
    text = format(statistics.mean(values), form)
    if len(values) > 1:
        half = stats.t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
        text += f" +- {half:{form}}"
    return text


def _processors(cell: Cell) -> list[float]:
    return [load["processor"] for name, load in cell["usage"].items() if name.startswith("node-")]


def _gains(throughput: dict[tuple[int, int], float]) -> str:
    """Throughput relative to one node, by number of keys, as text."""
    return "; ".join(
        f"{keys} {'key' if keys == 1 else 'keys'}: "
        + ", ".join(
            f"{nodes} nodes {throughput[nodes, keys] / throughput[1, keys]:.2f}"
            for nodes in (2, 3)
            if (nodes, keys) in throughput
        )
        for keys in KEYS
        if (1, keys) in throughput
    )


def _rate(rate: float) -> str:
    return "as fast as it can" if rate == float("inf") else f"{rate:g}/s"


def _used(cells: Sequence[Cell], name: str) -> str:
    """A node's mean processor and memory over repetitions of a cell, with the paper's figures, as text."""
    if not cells:
        return ""
    loads = [cell["usage"][name] for cell in cells]
    processor, memory = (statistics.mean(load[of] for load in loads) for of in ("processor", "memory"))
    in_paper = {of: _stated(cells[0], name, of) for of in ("processor", "memory")}
    return f"{100 * processor:.0f}%{in_paper['processor']}, {memory / 2**20:,.0f} MB{in_paper['memory']}"


def _traffic(cells: Sequence[Cell]) -> Iterable[tuple[object, ...]]:
    groups = defaultdict[tuple[int, str], list[dict[str, float]]](list)
    for cell in cells:
        for name, load in cell["usage"].items():
            groups[cell["nodes"], name].append(load)
    for (nodes, name), loads in sorted(groups.items(), key=lambda group: group[0][0]):
        mean = {of: statistics.mean(load[of] for load in loads) for of in loads[0]}
        yield (
            nodes,
            name,
            f"{mean['written_bytes'] / 2**10:,.0f}",
            f"{mean['received_packets']:,.0f}",
            f"{mean['sent_packets']:,.0f}",
            f"{mean['received_bytes'] / 2**10:,.0f}",
            f"{mean['sent_bytes'] / 2**10:,.0f}",
        )


def _stated(cell: Cell, name: str, of: str) -> str:
    """The paper's percentage for a node in brackets, at the nearer of its two sizes, or nothing if there is none."""
    size = "100 MB" if cell["events"] > (SMALL * LARGE) ** 0.5 else "10 MB"
    for row in RESOURCES:
        same = (row.size, row.nodes, f"node-{row.node}", row.rate) == (size, cell["nodes"], name, cell["rate"])
        if same and cell["keys"] in KEYS:
            return f" ({getattr(row, of)[KEYS.index(cell['keys'])]:g}%)"
    return ""


def _throughput_plot(most: dict[tuple[int, int], float]) -> bytes:
    figure, axes = _figure()
    for index, keys in enumerate(sorted({keys for _, keys in most})):
        points = sorted((nodes, value) for (nodes, of), value in most.items() if of == keys)
        axes.plot(
            *zip(*points, strict=True),
            marker=MARKERS[index],
            color=COLOURS[index],
            label=f"{keys} {'key' if keys == 1 else 'keys'}",
        )
    axes.set_xticks(sorted({nodes for nodes, _ in most}))
    axes.set_xlabel("nodes")
    axes.set_ylabel("words per second (measured)")
    axes.set_ylim(bottom=0)
    return _png(figure)


def _fault_plot(cells: Sequence[Cell]) -> bytes:
    """Words processed over time as a PNG: a colour per kind of kill, dashed lines for repetitions."""
    figure, axes = _figure()
    drawn = [cell for cell in cells if "course" in cell]
    kinds = list(dict.fromkeys((cell["kill"], cell["nodes"]) for cell in drawn))
    for cell in drawn:
        kill, nodes = cell["kill"], cell["nodes"]
        times, words = zip(*cell["course"], strict=True)
        colour = COLOURS[kinds.index((kill, nodes)) % len(COLOURS)]
        first = cell["repetition"] == 1
        axes.step(
            times,
            words,
            where="post",
            color=colour,
            linestyle="-" if first else "--",
            label=f"{kill} ({nodes} nodes)" if first else None,
        )
        axes.axvline(cell["struck"], color="#888888", linestyle=":", linewidth=0.8)
    axes.set_xlabel("seconds since the first word (dashed: repeated)")
    axes.set_ylabel("words processed (measured)")
    return _png(figure)


def _figure() -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.6, 4.4), layout="constrained")
    axes = figure.subplots()
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _png(figure: Any) -> bytes:
    figure.legend(frameon=False, fontsize=9, loc="outside lower center", ncols=3)
    drawn = BytesIO()
    figure.savefig(drawn, dpi=130, format="png")
    return drawn.getvalue()


def write_parquet(directory: Path, cells: Sequence[Cell]) -> None:
    """Write all cells to cells.parquet: a row per cell, plain values as such, nested ones as JSON text."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = list(dict.fromkeys(name for cell in cells for name in cell))
    plain = [
        {
            name: value if isinstance(value := cell.get(name), str | int | float | bool | None) else json.dumps(value)
            for name in names
        }
        for cell in cells
    ]
    pq.write_table(pa.Table.from_pylist(plain), directory / "cells.parquet")
