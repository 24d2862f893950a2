"""All points of all workloads, and pairs of them by chance: in several processes, with a table at the end."""

import json
import os
import random
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from crashpoints.points import HOWS, KILL, PAUSE, POWER, TORN
from crashpoints.runner import Place, Start, Verdict, points_of, tried
from crashpoints.workloads import Workload

Try = tuple[str, tuple[Start, ...]]
"""A workload's name, and what befalls its starts."""


@dataclass
class Tally:
    """What has been tried of a workload."""

    points: list[str] = field(default_factory=list)
    singles: dict[str, int] = field(default_factory=dict)
    pairs: int = 0
    wrong: int = 0


class Campaign:
    """Tries of workloads.

    Args:
        base: a directory for worlds, in memory if there is one.
        jobs: processes.
        seed: of what is drawn.
        say: told of each failure, and of how far it is.
    """

    def __init__(self, workloads: Iterable[Workload], base: Path, jobs: int, seed: int, say: Callable[[str], None]) -> None:
        self._workloads = {workload.name: workload for workload in workloads}
        self._base, self._jobs, self._say = base, jobs, say
        self._draw = random.Random(seed)
        self.tallies = {name: Tally() for name in self._workloads}
        self.wrong: list[Verdict] = []
        self.missed = 0
        """Tries in which a point has not come."""
        self._after: dict[tuple[str, int], int] = {}

    def run(self, hows: Iterable[str], share: float, pairs: int) -> None:
        """Try.

        Args:
            hows: what befalls at single points.
            share: of the single points; 1 for all.
            pairs: how many pairs in all.
        """
        self._try([(name, ()) for name in self._workloads])
        singles = [
            (name, (Start(at, how, self._draw.randrange(1 << 16)),))
            for how in hows
            for name, tally in self.tallies.items()
            for at, point in enumerate(tally.points)
            if how != TORN or point.startswith("write")
            if self._draw.random() < share
        ]
        self._try(singles)
        self._try(list(self._pairs(pairs)))

    def again(self, tries: list[Try]) -> None:
        """Make tries that are given."""
        self._try(tries)

    def _pairs(self, wanted: int) -> Iterator[Try]:
        """Of a point that was tried alone, and one of the start after it."""
        known = [(place, points) for place, points in self._after.items() if points > 1]
        for _ in range(wanted if known else 0):
            (name, first), points = self._draw.choice(known)
            starts = [
                Start(at, self._draw.choice(hows), self._draw.randrange(1 << 16))
                for at, hows in ((first, (KILL, TORN, POWER)), (self._draw.randrange(points), HOWS))
            ]
            yield name, tuple(starts)

    def _try(self, tries: list[Try]) -> None:
        """Make tries, in processes of their own, which take turns."""
        answers = self._base / "answers"
        shutil.rmtree(answers, ignore_errors=True)
        answers.mkdir(parents=True)
        self._draw.shuffle(tries)
        children = [self._process(tries[job :: self._jobs], answers / str(job), job) for job in range(self._jobs)]
        begun = time.monotonic()
        seen = [0] * self._jobs
        while children:
            children = [child for child in children if not os.waitpid(child, os.WNOHANG)[0]]
            for job in range(self._jobs):
                seen[job] += self._heard(answers / str(job), seen[job])
            if sum(seen) and sys.stderr.isatty():
                print(f"\r{sum(seen):,} of {len(tries):,} tries, {time.monotonic() - begun:.0f} s ", end="", file=sys.stderr)
            time.sleep(0.05)
        if sum(seen) != len(tries):
            raise SystemExit(f"A process of the campaign has ended early; {self._base} has what it has said.")

    def _heard(self, answers: Path, after: int) -> int:
        """Take note of verdicts that have come."""
        lines = answers.read_bytes().split(b"\n")[after:-1] if answers.exists() else []
        for line in lines:
            name, what, *rest = json.loads(line)
            if rest:
                self._note(Verdict(name, tuple(Start(*start) for start in what), *rest))
            else:
                self.tallies[name].points = what
        return len(lines)

    def _note(self, verdict: Verdict) -> None:
        tally = self.tallies[verdict.workload]
        self.missed += not verdict.befell
        if not verdict.befell:
            pass  # a start that went on otherwise than the one before it: nothing was tried
        elif len(verdict.starts) == 1:
            start = verdict.starts[0]
            tally.singles[start.how] = tally.singles.get(start.how, 0) + 1
            if start.how != PAUSE and verdict.points:
                self._after[verdict.workload, start.at or 0] = verdict.points
        else:
            tally.pairs += 1
        if verdict.wrong:
            tally.wrong += 1
            self.wrong.append(verdict)
            self._say(f"{verdict.line}\n    {verdict.wrong.strip().splitlines()[-1][:600]}")

    def _process(self, tries: list[Try], answers: Path, job: int) -> int:
        number = os.fork()
        if number:
            return number
        try:
            self._make(tries, answers, job)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)  # and nothing of the parent's is closed

    def _make(self, tries: list[Try], answers: Path, job: int) -> None:
        place = Place(self._base / f"job-{job}")
        with answers.open("w", buffering=1) as file:
            for name, starts in tries:
                workload = self._workloads[name]
                if starts:
                    verdict = tried(place, workload, starts)
                    print(json.dumps([name, starts, verdict.wrong, verdict.points, verdict.befell]), file=file)
                else:
                    print(json.dumps([name, points_of(place, workload)]), file=file)


def table(campaign: Campaign) -> str:
    """What was tried, in Markdown."""
    hows = [how for how in HOWS if any(how in tally.singles for tally in campaign.tallies.values())]
    lines = [f"| workload | points | {' | '.join(hows)} | pairs | wrong |", "| --- |" + " ---: |" * (len(hows) + 3)]
    sums = Tally()
    for name, tally in campaign.tallies.items():
        lines.append(_row(name, tally, hows))
        sums.points += tally.points
        sums.pairs, sums.wrong = sums.pairs + tally.pairs, sums.wrong + tally.wrong
        for how, number in tally.singles.items():
            sums.singles[how] = sums.singles.get(how, 0) + number
    return "\n".join([*lines, _row("all", sums, hows)])


def _row(name: str, tally: Tally, hows: list[str]) -> str:
    singles = " | ".join(f"{tally.singles.get(how, 0):,}" for how in hows)
    return f"| {name} | {len(tally.points):,} | {singles} | {tally.pairs:,} | {tally.wrong:,} |"
