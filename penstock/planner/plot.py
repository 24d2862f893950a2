"""Plots of recordings."""

from typing import TYPE_CHECKING

import numpy as np

from penstock.queueing.plot import BLUE, GREY, ORANGE, Plot

if TYPE_CHECKING:
    from penstock.planner.observation import QueryObservation


def over_time(query: "QueryObservation") -> Plot:
    """Plot duration, arrival rate and waiting rows over time of micro-batches since the last start in the last recording."""
    series = query.cold[-1]
    figure = Plot(height=5.4)
    lasted, arrived, waiting = figure.subplots(3, sharex=True)
    at = series.started - series.started[0]
    lasted.plot(at, series.ended - series.started, color=BLUE, marker=".", linestyle="none")
    interval = query.setting.interval
    if interval:
        lasted.axhline(interval, color=GREY, linestyle=":", linewidth=1)
        lasted.annotate(f"trigger {interval:g} s", (float(at[-1]), interval), ha="right", va="bottom", fontsize=9)
    lasted.set_ylabel("micro-batch (s)")
    arrived.plot(at[1:], series.rows[1:] / np.diff(series.admitted), color=ORANGE, drawstyle="steps-pre")
    arrived.set_ylabel("rows per second")
    waiting.plot(at, series.waiting, color=GREY, drawstyle="steps-post")
    waiting.set(ylabel="rows left waiting", xlabel="seconds since the start")
    for axes in (lasted, arrived, waiting):
        axes.set_ylim(0, max(1.0, axes.get_ylim()[1]))
        axes.spines[["top", "right"]].set_visible(False)
    return figure
