"""The prover's findings on a query, as text, as JSON, and as an HTML page with a timeline for each schedule."""

import json
from html import escape
from typing import Any, Literal

import msgspec

from penstock.web.document import document

Guarantee = Literal["exactly once", "at least once", "lossy", "stuck", "differs"]
Rows = list[str]

Kind = Literal["repeat", "replay", "restart", "error", "cut"]
"""How the query is disturbed: it runs once more from the beginning; a kill makes a micro-batch run twice; it is stopped and
started again; a call fails; its input is cut into other micro-batches."""

SHOWN = 5
MEANINGS: dict[Guarantee, str] = {
    "exactly once": "each row is there once, whichever of these moments the driver was killed at",
    "at least once": "rows, or their effects, are there twice after a kill: make the sink idempotent by the number of the "
    "micro-batch",
    "lossy": "rows, or parts of sums, are missing after a restart, or after an error that nobody was told of",
    "stuck": "the query cannot go on after a restart",
    "differs": "rows are others when a micro-batch, or all of it, is run again: results depend on a clock, on chance, on the "
    "cut or on what "
    "the process keeps",
}
WORST_FIRST: tuple[Guarantee, ...] = ("lossy", "stuck", "at least once", "differs")

STEPS = {"offsets": "offsets written", "sink": "the sink's work", "commit": "commit written"}
"""The steps of Spark's protocol for each micro-batch."""


class Disturbance(msgspec.Struct, frozen=True):
    """One way to disturb a query.

    Args:
        kind, words: the disturbance, and its description.
        batch: the disturbed micro-batch; None if there is no particular one.
        step: the index in `STEPS` of the last step before the driver ends; None if it does not end.
    """

    kind: Kind
    words: str
    batch: int | None = None
    step: int | None = None


class TrialResult(msgspec.Struct):
    """The result of a schedule: how its rows differ from those of the undisturbed query.

    Args:
        doubled: rows that are there too often.
        missing: rows that are not there.
        other: rows that should not be there at all.
        failed: the error if the query could not go on; empty otherwise.
    """

    schedule: Disturbance
    doubled: Rows = []
    missing: Rows = []
    other: Rows = []
    failed: str = ""

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee that this trial shows."""
        if self.failed:
            return "stuck"
        if not (self.missing or self.doubled or self.other):
            return "exactly once"
        match self.schedule.kind:
            case "repeat" | "cut":
                return "differs"
            case "restart":  # nothing ran twice, so missing rows were only in the process's memory
                return "lossy" if self.missing else "at least once"
            case _ if self.missing:
                return "lossy" if is_lost(self.missing, self.other) else "at least once"
            case "replay":
                return "at least once"
            case _:
                return "differs" if self.other else "at least once"


class QueryVerdict(msgspec.Struct):
    """The result of the prover for a query.

    Args:
        rows: the number of rows of the undisturbed query.
        notes: which schedules were not tried, and why.
    """

    query: str
    rows: int
    microbatches: int
    trials: list[TrialResult]
    notes: list[str]

    @property
    def guarantee(self) -> Guarantee:
        """The worst guarantee of all trials; if two undisturbed runs differ, it is ``differs``: nothing else is known then."""
        if any(trial.schedule.kind == "repeat" and trial.guarantee == "differs" for trial in self.trials):
            return "differs"
        for guarantee in WORST_FIRST:
            if any(trial.guarantee == guarantee for trial in self.trials):
                return guarantee
        return "exactly once"

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as plain data for JSON."""
        data = msgspec.to_builtins(self)
        for trial, trial_data in zip(self.trials, data["trials"], strict=True):
            trial_data["guarantee"] = trial.guarantee
        return {"verdict": self.guarantee, **data}

    def to_text(self) -> str:
        """Return the verdict as text for a terminal."""
        lines = [
            f"{self.query}: {self.rows:,} rows in {self.microbatches} micro-batches; {len(self.trials)} schedules were tried."
        ]
        for trial in self.trials:
            lines.append(f"  {trial.guarantee:<14}  {trial.schedule.words}")
            lines += [f"    {line}" for line in _said(trial)]
        lines += [f"Note: {note}." for note in self.notes]
        return "\n".join([*lines, f"{self.guarantee.capitalize()}: {MEANINGS[self.guarantee]}."])

    def to_html(self) -> str:
        """Return the verdict as a self-contained HTML page."""
        whole = (
            f'<section class="{KINDS[self.guarantee]}"><h2>{escape(self.guarantee)}</h2>'
            f"<p>{escape(MEANINGS[self.guarantee])}.</p>"
            f"<p>{self.rows} rows in {self.microbatches} micro-batches when nothing disturbs it.</p></section>"
        )
        notes = [f"<p>{escape(note)}.</p>" for note in self.notes]
        parts = [STYLE, f"<h1>{escape(self.query)}</h1>", whole, *map(self._drawn, self.trials), *notes]
        return document(f"{self.query}: {self.guarantee}", parts)

    def _drawn(self, trial: TrialResult) -> str:
        """Draw a trial in HTML, with a timeline unless its micro-batches are cut differently."""
        schedule = trial.schedule
        batches = [] if schedule.kind == "cut" else range(self.microbatches)
        boxes = "".join(_box(batch, schedule.step if schedule.batch == batch else None) for batch in batches)
        differences = "".join(f"<li>{escape(line)}</li>" for line in _said(trial))
        return (
            f'<section class="{KINDS[trial.guarantee]}"><h2>{escape(trial.guarantee)}</h2><p>{escape(schedule.words)}</p>'
            f'<div class="time">{boxes}</div><ul>{differences}</ul></section>'
        )


def is_lost(missing: Rows, other: Rows) -> bool:
    """Whether rows, or parts of them, are lost: not where each missing row is there with a value that has grown,
    as a sum to which something was added twice.

    Rows are JSON texts. A row is known again by the values that it has kept, where no other missing row has these.
    """
    if len(other) < len(missing):
        return True
    wanted, known_again = [_leaves(json.loads(row)) for row in missing], set[int]()
    for now in (_leaves(json.loads(row)) for row in other):
        alike = max(wanted, key=lambda row: len(row.items() & now.items()))
        kept = alike.items() & now.items()
        if alike.keys() != now.keys() or any(row is not alike and kept <= row.items() for row in wanted):
            return True
        if not all(_has_grown(value, now[place]) for place, value in alike.items() if now[place] != value):
            return True
        known_again.add(id(alike))
    return len(known_again) < len(wanted)


def _leaves(value: Any, place: str = "") -> dict[str, Any]:
    """Return the values in a row by their places; of a list, its text."""
    if isinstance(value, dict):
        return {where: leaf for name, part in value.items() for where, leaf in _leaves(part, f"{place}/{name}").items()}
    if isinstance(value, list) and not place:  # a row that is given by its values alone
        return {where: leaf for number, part in enumerate(value) for where, leaf in _leaves(part, f"/{number}").items()}
    return {place: json.dumps(value) if isinstance(value, list) else value}


def _has_grown(before: Any, after: Any) -> bool:
    """Whether a text is no shorter, or a number farther from 0 on the same side."""
    if isinstance(before, int | float) and isinstance(after, int | float):
        return before * after >= 0 and abs(after) >= abs(before)
    return all(isinstance(value, str | None) for value in (before, after)) and len(after or "") >= len(before or "")


END = '<i class="end" title="the driver ends">&#10005;</i>'


def _box(batch: int, last: int | None) -> str:
    """Draw a micro-batch with its steps. If the driver ends after one of them, draw that end, and the repeated micro-batch."""
    whole = f'<div class="batch"><b>{batch}</b>{_steps(len(STEPS))}</div>'
    if last is None:
        return whole
    begun = f'<div class="batch"><b>{batch}</b>{_steps(last + 1)}{END}</div>'
    again = f'<div class="batch again"><b>{batch} again</b>{_steps(len(STEPS))}</div>'
    return begun + (again if last < len(STEPS) - 1 else "")


def _steps(count: int) -> str:
    return "".join(f'<span title="{escape(step)}">{name}</span>' for name, step in list(STEPS.items())[:count])


KINDS: dict[Guarantee, str] = {
    "exactly once": "good",
    "at least once": "double",
    "lossy": "bad",
    "stuck": "bad",
    "differs": "other",
}

STYLE = """<style>
section { border-left: .4rem solid #888; padding: .1rem 1rem; margin: 1.5rem 0 }
h2 { font-size: 1rem; margin: .3rem 0 } p { margin: .3rem 0 }
ul { font: 13px/1.5 ui-monospace, monospace; overflow-x: auto }
.time { display: flex; flex-wrap: wrap; gap: .5rem }
.batch { border: 1px solid #999; border-radius: .3rem; padding: .2rem .5rem }
.batch span { margin-left: .5rem; opacity: .75 } .again { border-style: dashed }
.end { color: #b3261e; font-weight: bold; margin-left: .5rem }
.good { border-color: #2e7d32 } .double { border-color: #b26a00 } .bad { border-color: #b3261e }
.other { border-color: #6a3fa0 }
@media (prefers-color-scheme: dark) { .end { color: #ff8a80 } }
</style>"""


def _said(trial: TrialResult) -> list[str]:
    lines = [f"the query failed: {trial.failed}"] if trial.failed else []
    for rows, word in ((trial.missing, "missing"), (trial.doubled, "too many"), (trial.other, "other")):
        lines += [f"{word}: {row}" for row in rows[:SHOWN]]
        if len(rows) > SHOWN:
            lines.append(f"{word}: {len(rows) - SHOWN} more")
    return lines
