"""A self-contained page on a tuning: present figures, what limits the query, the options, and the curve of latency and cost."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from penstock.app.display import rounded
from penstock.planner.prediction import LATENCIES, Prediction
from penstock.planner.verdict import Verdict
from penstock.web.document import document

if TYPE_CHECKING:
    from penstock.planner.tuning import Tuning
    from penstock.queueing.plot import Plot

TODAY, CHOSEN, CURVE, FILES = "#d55e00", "#009e73", "#0072b2", "#777777"


def page(tuning: "Tuning", source: str) -> str:
    """The page as HTML that needs no other file."""
    target = f"{tuning.target.name} of {tuning.target.seconds:g} s"
    parts = [f"<h1>{escape(source)}: options for a {target}</h1>", f"<p>{escape(_headline(tuning))}</p>"]
    if tuning.options:
        parts.append("<h2>What to set</h2>" + settings(tuning.options))
    parts += [limits(tuning.verdicts), figures(tuning.measured, tuning.today, tuning.chosen, tuning.latency_kind)]
    if len(tuning.tried) > 1:
        parts.append("<h2>Latency and files, by trigger interval</h2>" + curve(tuning).svg())
    if tuning.besides:
        parts.append(f"<h2>Besides</h2><p>{escape(tuning.besides)}</p>")
    shown = tuning.chosen or tuning.today
    parts.append(assumed(shown.assumptions if shown else ()))
    return document(f"{source}: {target}", parts)


def settings(options: Mapping[str, str]) -> str:
    """A table of options and their values, as HTML."""
    rows = "".join(f"<tr><td><code>{escape(n)}</code></td><td>{escape(v)}</td></tr>" for n, v in options.items())
    return f"<table>{rows}</table>"


def limits(verdicts: Iterable[Verdict]) -> str:
    """The verdicts on a query, the gravest first, as HTML."""
    return "<h2>What limits it</h2>" + "".join(
        f"<p><b>{escape(v.kind)}</b>: {escape(v.text)}{'' if v.confident else ' <span class=kind>(not sure)</span>'}</p>"
        for v in verdicts
    )


def assumed(texts: Sequence[str]) -> str:
    """The assumptions of predictions, as HTML; empty if there are none."""
    if not texts:
        return ""
    return "<h2>Assumed</h2><ul>" + "".join(f"<li>{escape(text)}</li>" for text in texts) + "</ul>"


def _headline(tuning: "Tuning") -> str:
    held = "" if tuning.max_rate is None else f" It is expected to hold up to {rounded(tuning.max_rate)} rows per second."
    return f"{tuning.headline} {tuning.reason}{held}"


def figures(measured: Mapping[str, float], today: Prediction | None, chosen: Prediction | None, kind: str = "measured") -> str:
    """A table, as HTML, of figures: measured, predicted for today, and predicted for the choice, side by side."""
    columns: list[tuple[str, dict[str, str]]] = []
    if measured:
        columns.append((f"today, {kind}", {name: f"{measured[name]:.2f} s" for name in LATENCIES}))
    for title, prediction in (("today, predicted", today), ("chosen, predicted", chosen)):
        if prediction is not None:
            columns.append((title, _shown(prediction)))
    if not columns:
        return ""
    names = list(dict.fromkeys(name for _, values in columns for name in values))
    head = "".join(f"<th>{escape(title)}</th>" for title, _ in columns)
    rows = "".join(
        f"<tr><td>{escape(name)}</td>" + "".join(f"<td>{escape(values.get(name, ''))}</td>" for _, values in columns) + "</tr>"
        for name in names
    )
    return f"<h2>Figures</h2><table><tr><th></th>{head}</tr>{rows}</table><p class=kind>In brackets: 90% bands.</p>"


def _shown(prediction: Prediction) -> dict[str, str]:
    values = {}
    for name in LATENCIES:
        low, high = prediction.band(name)
        values[name] = f"{getattr(prediction, name):.2f} s ({low:.2f} to {high:.2f})"
    return values | {
        "trigger": f"{prediction.setting.trigger:g} s",
        "rows per second": rounded(prediction.rate),
        "keeps up with": prediction.keeps_up,
        "utilisation": f"{prediction.utilisation:.0%}",
        "micro-batches a day": f"{prediction.batches_per_day:,.0f}",
        "files a day (one per partition and micro-batch)": f"{prediction.files_per_day:,.0f}",
        "rows per file": rounded(prediction.rows_per_file),
    }


def curve(tuning: "Tuning") -> "Plot":
    """Draw the latency and the files a day over the trigger interval, with today's point and the chosen one."""
    from penstock.queueing.plot import Plot  # which needs matplotlib

    figure = Plot(8, 4.2)
    axes = figure.add_subplot()
    name = tuning.target.name
    triggers = [point.setting.interval for point in tuning.tried]
    latencies = [getattr(point, name) for point in tuning.tried]
    axes.plot(triggers, latencies, color=CURVE, marker=".", label=f"{name} of the latency (predicted)")
    axes.axhline(tuning.target.seconds, color="#444444", linestyle=":", linewidth=1)
    axes.annotate(
        f"target {tuning.target.seconds:g} s", (triggers[-1], tuning.target.seconds), ha="right", va="bottom", fontsize=9
    )
    for point, color, label, marker in ((tuning.today, TODAY, "today", "s"), (tuning.chosen, CHOSEN, "chosen", "o")):
        if point is not None:
            low, high = point.band(name)
            at, height = point.setting.interval, getattr(point, name)
            axes.errorbar(
                [at],
                [height],
                yerr=[[height - low], [min(high, 4 * height) - height]],
                color=color,
                marker=marker,
                capsize=4,
                linestyle="none",
                label=f"{label}, with 90% band",
            )
    axes.set_xlabel("trigger interval (s)")
    axes.set_ylabel(f"{name} (s)")
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    files = axes.twinx()
    files.plot(
        triggers, [point.files_per_day for point in tuning.tried], color=FILES, linestyle="--", label="files a day (predicted)"
    )
    files.set_yscale("log")
    files.set_ylabel("files a day")
    files.spines[["top"]].set_visible(False)
    handles = [*axes.get_legend_handles_labels()[0], *files.get_legend_handles_labels()[0]]
    figure.legend(
        handles, [str(handle.get_label()) for handle in handles], loc="outside lower center", ncols=2, frameon=False, fontsize=9
    )
    return figure
