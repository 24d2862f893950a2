"""Tuning: which options to set for a latency target, what limits the query, and what the choice is expected to do and cost."""

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.app.display import framed, rounded
from penstock.errors import ConfigurationError, PenstockError, UnstableServerError
from penstock.planner.calibration import Calibration, calibrate
from penstock.planner.logs import about_logs
from penstock.planner.observation import Observation
from penstock.planner.page import curve, page
from penstock.planner.prediction import LATENCIES, Prediction
from penstock.planner.setting import Setting
from penstock.planner.verdict import Verdict, verdicts

if TYPE_CHECKING:
    from penstock.queueing.plot import Plot

TARGETS = LATENCIES
STEPS = (
    *(0, 0.1, 0.2, 0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9, 10, 12, 15, 20, 25, 30, 40, 45),
    *(60, 90, 120, 180, 240, 300, 450, 600, 900, 1200, 1800, 3600),
)
"""Trigger intervals that are tried, in seconds."""
WIDEST = 0.98
"""The level of the band within which the recorded figures must lie, or the model is said to contradict them."""
UNIDENTIFIED = "the recording does not tell the cost per row from the cost per micro-batch."
SURE = 0.9
"""A choice is sure if the upper end of its band of this level meets the target."""
UNSETTLED = ("saturated", "working off")
"""Verdicts by which a recording shows how many rows the query takes, and not how many would arrive."""
POSSIBLE = 0.05
"""A setting may meet a target if this share of the runs of its band does."""
ALWAYS = 0.95
"""Above this share of runs that meet the target it is not told: the doubt then comes from elsewhere than their spread."""
BEYOND = 2.0
"""Micro-batches with more than this multiple of the rows that were recorded are no longer sure: their durations may curve."""
CONTRADICTS = 1.15
"""A figure of today is contradicted by its prediction if it is this factor outside the widest band."""
QUICK, FEW = 24, 4
"""Replicates of a band during a search; settings whose bands are looked at where no setting is expected to meet a target."""


@dataclass(frozen=True)
class Target:
    """A bound on a figure of the latency, such as a ``p95`` of 5 seconds.

    Examples:
        >>> Target("p95", 5.0)
        Target(name='p95', seconds=5.0)
    """

    name: str
    seconds: float

    def __post_init__(self) -> None:
        is_number = isinstance(self.seconds, Real) and not isinstance(self.seconds, bool)
        if self.name not in TARGETS or not is_number or not 0 < self.seconds < math.inf:
            raise ConfigurationError(
                f"The target is {self.name} {self.seconds} s: give one of {', '.join(TARGETS)}, and seconds above zero."
            )


@dataclass(frozen=True)
class Tuning:
    """The answer of `tune`.

    Args:
        target: the bound that was asked for.
        measured: today's latency by name, seconds; empty where it is not known.
        today, chosen: predictions; None where the recording allows none, the query does not keep up, or no setting will do.
        feasible: whether a setting of the gate meets the target; None where the recording does not tell.
        verdicts: what limits the query, the gravest first.
        sure: whether the whole band of the choice meets the target.
        reason: why this choice was made, or why none, in a sentence.
        max_rate: rows per second up to which the choice is expected to meet the target; None if the cost per row is not known.
        cores_missing: multiple of today's parallel speed at which the target could be met; None where it can be, or never.
        tried: predictions without bands for each trigger that was tried.
        besides: what else would make micro-batches shorter, in a sentence; mostly empty.
        doubted: whether the model does not reproduce what the recorded setting does.
        latency_kind: ``"measured"`` or ``"derived"``: how today's latency is known.
        latency_of: the kind in words, with counts.
    """

    target: Target
    measured: dict[str, float]
    today: Prediction | None
    chosen: Prediction | None
    feasible: bool | None
    verdicts: tuple[Verdict, ...]
    sure: bool
    reason: str
    max_rate: float | None
    cores_missing: float | None
    tried: tuple[Prediction, ...]
    besides: str = ""
    latency_kind: str = "measured"
    latency_of: str = ""
    doubted: bool = False

    @property
    def chance(self) -> float | None:
        """The share of runs, as long as the recording, in which the choice is expected to meet the target."""
        if self.chosen is None or not len(self.chosen.replicates[self.target.name]):
            return None
        return float(np.mean(self.chosen.replicates[self.target.name] <= self.target.seconds))

    @property
    def headline(self) -> str:
        """The answer in a sentence."""
        goal = f"A {self.target.name} of {self.target.seconds:g} s"
        if self.feasible is None:
            return f"Whether {goal[0].lower()}{goal[1:]} can be met is not known."
        if not self.feasible:
            return f"{goal} cannot be met by a trigger."
        if self.sure or self.chance is None:
            return f"{goal} can be met."
        if self.doubted or self.chance >= ALWAYS:
            return f"{goal} may be met."
        return f"{goal} may be met ({min(9, max(1, round(10 * self.chance)))} in 10)."

    @property
    def limits(self) -> str:
        """What limits the query, the gravest first, in one text."""
        return " ".join(map(str, self.verdicts))

    @property
    def options(self) -> dict[str, str]:
        """The options to set, named as in Spark's documentation."""
        return {} if self.chosen is None else self.chosen.setting.options()

    def _repr_html_(self) -> str:
        """HTML for notebooks: the page that explains the answer."""
        return framed(page(self, "query"))

    def plot(self) -> "Plot":
        """Draw the latency over the trigger interval: a matplotlib figure, which a notebook shows.

        Raises:
            ConfigurationError: no prediction can be made from the recording.
        """
        if not self.tried:
            raise ConfigurationError(f"There is no curve to draw. {self.reason}")
        return curve(self)

    def to_json(self) -> dict[str, Any]:
        """The answer as `penstock tune --json` prints it."""
        return {
            "target": {self.target.name: self.target.seconds},
            "today": None
            if self.today is None
            else {
                **self.today.to_json(),
                "measured": self.measured or None,
                "measured_kind": self.latency_kind,
                "measured_of": self.latency_of,
            },
            "chosen": None if self.chosen is None else self.chosen.to_json(),
            "headline": self.headline,
            "feasible": self.feasible,
            "chance": self.chance,
            "sure": self.sure,
            "limits": self.limits,
            "verdicts": [{"kind": v.kind, "text": v.text, "confident": v.confident} for v in self.verdicts],
            "options": self.options,
            "reason": self.reason,
            "max_rate": self.max_rate,
            "cores_missing": self.cores_missing,
            "besides": self.besides,
            "curve": [
                {
                    "trigger": p.setting.trigger,
                    **{name: getattr(p, name) for name in LATENCIES},
                    "files_per_day": p.files_per_day,
                }
                for p in self.tried
            ],
        }


def tune(observation: Observation, target: Target, what_if: Setting | None = None, *, now: float | None = None) -> Tuning:
    """Choose the gate that meets a target with the fewest micro-batches, which are what costs.

    Args:
        what_if: a rate, arrivals or cores other than those recorded.
        now: seconds since the epoch, if the recorded query goes on: it is then modelled at its present speed.

    Raises:
        ConfigurationError: the target or the setting is not valid.

    Examples:
        >>> from penstock.planner import Target, observe
        >>> recorded = [f"examples/recordings/digests-{number}.jsonl" for number in (1, 2)]
        >>> tune(observe(*recorded), Target("p95", 5.0)).headline
        'A p95 of 5 s can be met.'
    """
    limits = tuple(verdicts(observation))
    measured = observation.queries[-1].latency()
    besides = about_logs(observation)
    kind = observation.queries[-1].latency_kind
    words = observation.queries[-1].latency_words
    unknown = Tuning(target, measured, None, None, None, limits, False, "", None, None, (), besides, kind, words)
    if (reason := unfit(limits)) is not None:
        return replace(unknown, reason=reason)
    try:
        calibration = calibrate(observation)
        if now is not None:
            calibration = calibration.following(observation, now=now)
    except ConfigurationError as error:
        return replace(unknown, reason=str(error))
    answer = choose(calibration, target, what_if)
    if answer.feasible is False and (likeliest := _possible(calibration, answer.tried, target)) is not None:
        because = _because(likeliest, answer.today, target, False)
        answer = replace(answer, feasible=True, chosen=likeliest, reason=because, cores_missing=None)
    if answer.feasible and any(verdict.kind == "saturated" for verdict in limits) and (what_if is None or what_if.rate is None):
        return replace(
            unknown,
            reason="The query did not keep up in the recording (see what limits it), so how it does when it keeps up is not "
            "known: record it at a lower rate, or ask for one with --what-if rate=R.",
        )
    if (doubt := _contradiction(answer, measured, what_if)) is not None:
        feasible = answer.feasible or None  # what a model that misses today's figure denies may be
        answer = replace(answer, feasible=feasible, sure=False, doubted=True, reason=f"{answer.reason} {doubt}")
    return replace(answer, measured=measured, verdicts=limits, besides=besides, latency_kind=kind, latency_of=words)


def unfit(limits: Sequence[Verdict]) -> str | None:
    """Return why a recording, of which these are the verdicts, can judge no setting; None where it can."""
    if limits[0].kind in ("idle", "unclear"):
        return f"No prediction can be made from this recording: {limits[0].text}"
    for verdict in limits:  # sure saturation passes, for then it may be that no setting meets the target
        taken = verdict.kind in UNSETTLED and not (verdict.kind == "saturated" and verdict.confident)
        if taken or (verdict.kind == "source throttled" and not verdict.confident):
            return f"The recording shows rows as they are taken, not as they arrive; it cannot judge a setting: {verdict.text}"
    return None


def _contradiction(answer: Tuning, measured: dict[str, float], what_if: Setting | None) -> str | None:
    """Why the choice is not sure: today's setting is predicted to do other than it does; None where it is not."""
    name = answer.target.name
    if answer.today is None or (what_if or Setting()) != Setting() or name not in measured:
        return None
    low, high = answer.today.band(name, WIDEST)
    if low / CONTRADICTS <= measured[name] <= high * CONTRADICTS:
        return None
    return (
        f"It is not sure: the {name} of the recorded setting is {measured[name]:.2f} s, and the model has "
        f"{getattr(answer.today, name):.2f} s ({low:.2f} to {high:.2f} in {WIDEST:.0%}) for it, as where rows come at once."
    )


def choose(calibration: Calibration, target: Target, what_if: Setting | None = None, *, fine: bool = False) -> Tuning:
    """Answer as `tune` does, from a calibration; the answer has no measured figures and no verdicts.

    Args:
        fine: also search between the round trigger intervals for the longest that meets the target, within 2%.
    """
    base = calibration.complete(what_if)
    today = predicted(calibration, base)
    tried = list(_tried(calibration, base, target))
    chosen, sure = _chosen(calibration, tried, target)
    answer = Tuning(target, {}, today, chosen, True, (), sure, "", None, None, tuple(tried))
    if not tried:
        with suppress(UnstableServerError):
            calibration.predict(replace(base.ungated(), trigger=0.0), replicates=0)  # raises an error that says why
    if chosen is None:
        reason, missing = _missing(calibration, base, tried, target)
        # Without a prediction the query does not keep up, unless the recording leaves open what a row costs.
        unknown = not tried and calibration.chance_to_keep_up(replace(base, trigger=0.0)) >= POSSIBLE
        if unknown:
            reason = f"{_too_many(calibration, base)}; the recording leaves open which is more."
        return replace(answer, feasible=None if unknown else False, reason=reason, cores_missing=missing)
    if fine and sure:
        chosen = _longest(calibration, chosen, target)
    because = _because(chosen, today, target, sure)
    if sure and calibration.is_beyond(chosen.rows_per_batch, BEYOND):
        sure = False
        because += (
            f" It is not sure: micro-batches of {chosen.rows_per_batch:,.0f} rows are larger than those recorded, whose "
            "durations are assumed to go on as a straight line."
        )
    return replace(
        answer,
        chosen=chosen,
        sure=sure,
        reason=because,
        max_rate=_holds_until(calibration, chosen.setting, target) if calibration.is_identified else None,
    )


def _longest(calibration: Calibration, chosen: Prediction, target: Target) -> Prediction:
    """The longest interval that meets the target, from the chosen round one up to the next round one, within 2%."""
    low = chosen.setting.interval
    high = next((step for step in STEPS if step > low), 2 * low)
    while high - low > max(0.02 * low, 0.05):
        middle = round((low + high) / 2, 3)
        full = calibration.predict(replace(chosen.setting, trigger=middle), replicates=QUICK)
        meets = full.band(target.name, SURE)[1] <= target.seconds
        low, high = (middle, high) if meets else (low, middle)
    while low > chosen.setting.interval + 0.05:  # a band of all replicates may be wider than a quick one
        full = calibration.predict(replace(chosen.setting, trigger=low))
        if full.band(target.name, SURE)[1] <= target.seconds:
            return full
        low = round((low + chosen.setting.interval) / 2, 3)
    return chosen


def predicted(calibration: Calibration, setting: Setting, replicates: int | None = None) -> Prediction | None:
    """A prediction; None where the query does not keep up."""
    try:
        return calibration.predict(setting) if replicates is None else calibration.predict(setting, replicates=replicates)
    except PenstockError:
        return None


def _tried(calibration: Calibration, base: Setting, target: Target) -> Iterable[Prediction]:
    """Predictions without bands, for trigger intervals from 0 to beyond the target."""
    for trigger in STEPS:
        if trigger <= 1.5 * target.seconds + 1:
            prediction = predicted(calibration, replace(base.ungated(), trigger=float(trigger)), 0)
            if prediction is not None:
                yield prediction


def _chosen(calibration: Calibration, tried: list[Prediction], target: Target) -> tuple[Prediction | None, bool]:
    """The setting with the fewest micro-batches whose band meets the target, and True; else the one of the least latency."""
    meeting = [prediction for prediction in tried if getattr(prediction, target.name) <= target.seconds]
    for one in sorted(meeting, key=lambda one: one.batches_per_day)[:12]:
        quick = calibration.predict(one.setting, replicates=QUICK)
        if quick.band(target.name, SURE)[1] > target.seconds:
            continue
        full = calibration.predict(one.setting)  # with all replicates, as it is shown
        if full.band(target.name, SURE)[1] <= target.seconds:
            return full, True
    if not meeting:
        return None, False
    best = min(meeting, key=lambda one: float(getattr(one, target.name)))
    return calibration.predict(best.setting), False


def _possible(calibration: Calibration, tried: Sequence[Prediction], target: Target) -> Prediction | None:
    """Of the settings of the least latencies, none of which is expected to meet the target, the one that is likeliest to by its
    band; None where none may.
    """
    likeliest, chance = None, 0.0
    for one in sorted(tried, key=lambda one: float(getattr(one, target.name)))[:FEW]:
        full = calibration.predict(one.setting)
        share = float(np.mean(full.replicates[target.name] <= target.seconds))
        if share >= max(POSSIBLE, chance + 1e-9):
            likeliest, chance = full, share
    return likeliest


def _because(chosen: Prediction, today: Prediction | None, target: Target, sure: bool) -> str:
    reached = getattr(chosen, target.name)
    low, high = chosen.band(target.name, SURE)
    text = (
        f"{target.name} is expected to be {reached:.2f} s ({low:.2f} to {high:.2f} in 90%), with "
        f"{chosen.batches_per_day:,.0f} micro-batches a day"
    )
    if today is not None:
        text += f" instead of {today.batches_per_day:,.0f}"
    return text + ("." if sure else f"; the target of {target.seconds:g} s lies within the band, so it may be missed.")


def _missing(calibration: Calibration, base: Setting, tried: list[Prediction], target: Target) -> tuple[str, float | None]:
    """Why no trigger meets the target, in a sentence, and the multiple of the parallel speed that would; None if none does."""
    rate, limit = float(base.rate or 0.0), calibration.throughput_limit(base)
    best = min((float(getattr(prediction, target.name)) for prediction in tried), default=math.inf)
    if rate >= limit:
        reason = _too_many(calibration, base)
    else:
        reason = f"the best that a trigger can reach is a {target.name} of {best:.2f} s (predicted)"
    for times in (1.5, 2, 3, 4, 6, 8, 12, 16, 32, 64):
        faster = predicted(calibration.faster(times), replace(base, trigger=0.0), 0)
        if faster is not None and getattr(faster, target.name) <= target.seconds:
            return (
                f"No trigger meets the target: {reason}. About {times:g} times the cores would, if the time spent per row "
                "is divided among them (assumed).",
                float(times),
            )
    if not calibration.is_identified:
        return f"No trigger meets the target: {reason}. Whether more cores would is not known: {UNIDENTIFIED}", None
    fixed = sum(query.durations.fixed for query in calibration.queries)
    return (
        f"No trigger meets the target: {reason}. More cores would not either: a micro-batch costs {fixed:.2f} s whatever its "
        "rows.",
        None,
    )


def _too_many(calibration: Calibration, base: Setting) -> str:
    rate, limit = float(base.rate or 0.0), calibration.throughput_limit(base)
    return f"{rounded(rate)} rows arrive per second and the query keeps up with {rounded(limit)} (predicted)"


def _holds_until(calibration: Calibration, setting: Setting, target: Target) -> float | None:
    """The greatest rate at which a setting is expected to meet the target, by bisection to 2%."""
    low = float(setting.rate or 0.0)
    high = low
    for _ in range(12):
        high *= 2
        prediction = predicted(calibration, replace(setting, rate=high), 0)
        if prediction is None or getattr(prediction, target.name) > target.seconds:
            break
        low = high
    else:
        return low
    while high > 1.02 * low:
        middle = float(np.sqrt(low * high))
        prediction = predicted(calibration, replace(setting, rate=middle), 0)
        if prediction is None or getattr(prediction, target.name) > target.seconds:
            high = middle
        else:
            low = middle
    return low
