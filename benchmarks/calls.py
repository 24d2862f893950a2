"""What a store was asked for, by its server's own log: each call's kind, what it is about, and whether Spark or Penstock asked.

S3's log is the gateway's access log, whose entries name the client. HDFS's is the NameNode's audit log, whose entries name the
protocol: Spark comes by RPC, Penstock by WebHDFS, for which the DataNode that takes or gives a file's content asks the NameNode
once more, by RPC. That a block is added to a file, or the file closed, is in no audit log.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

KINDS = {
    "HeadObject": "HEAD",
    "GetObject": "GET",
    "PutObject": "PUT",
    "CopyObject": "COPY",
    "ListObjectsV2": "LIST",
    "ListObjects": "LIST",
    "DeleteObject": "DELETE",
    "DeleteObjects": "DELETE",
    "HeadBucket": "HEAD",
    "getfileinfo": "look",
    "open": "open",
    "create": "create",
    "rename": "rename",
    "listStatus": "list",
    "delete": "delete",
    "mkdirs": "mkdirs",
}
"""What servers call a call, in the words of the tables; others are told as they are."""
S3_ENTRY = re.compile(r"\] \S+ \S+ \S+ s3_(\w+) (\S+) (\S+) \d+ \S+ \S+ \S+ \S+ \S+ \S+ (\S+)")
HDFS_ENTRY = re.compile(r"cmd=(\w+)(?: \(.*?\))?\s+src=(\S+)\s+dst=(\S+).*proto=(\w+)")
ABOUT = (
    (r"/checkpoint/[^/]+/offsets", "checkpoint: offsets"),
    (r"/checkpoint/[^/]+/commits", "checkpoint: commits"),
    (r"/checkpoint/[^/]+/state", "checkpoint: state"),
    (r"/checkpoint/[^/]+/sources", "checkpoint: files seen"),
    (r"/checkpoint", "checkpoint: the rest"),
    (r"/batches-", "ledger"),
    (r"/progress\.jsonl", "progress"),
    (r"/\.staging", "staged files"),
    (r"/output", "output"),
    (r"/dead-letters", "dead letters"),
    (r"/in(/|$)", "input"),
)
OURS = {"ledger", "progress", "staged files", "output", "dead letters"}
LEDGER = re.compile(r"/batches-[^/]+/\d+\.line$")
WARM_UP = 3
"""Micro-batches that are left out."""


class Call(NamedTuple):
    """A call that a store has answered."""

    kind: str
    who: str
    path: str

    @property
    def about(self) -> str:
        """What of a run it is about."""
        return next((name for pattern, name in ABOUT if re.search(pattern, self.path)), "the rest")

    @property
    def commits(self) -> bool:
        """Whether it may be the one that makes a micro-batch's line in the ledger."""
        return self.kind in ("PUT", "rename") and LEDGER.search(self.path) is not None


def s3_calls(log: Path) -> Iterator[Call]:
    """By the gateway's access log."""
    for kind, key, asked, client in S3_ENTRY.findall(log.read_text(errors="replace")):
        prefix = re.search(r"prefix=([^&]*)", asked)
        path = unquote(prefix[1] if prefix else key)
        yield Call(KINDS.get(kind, kind), "Penstock" if "botocore" in client.lower() else "Spark", f"/{path.strip('/')}")


def hdfs_calls(log: Path) -> Iterator[Call]:
    """By the NameNode's audit log."""
    opening: Counter[str] = Counter()
    for kind, path, to, protocol in HDFS_ENTRY.findall(log.read_text(errors="replace")):
        call = Call(KINDS.get(kind, kind), "Spark", to if kind == "rename" else path)
        if protocol == "webhdfs":
            opening[path] += kind == "open"
        elif kind == "open" and opening[path]:
            opening[path] -= 1
        elif not (kind == "create" and (call.about in OURS or path.endswith(".draft"))):
            yield call
            continue
        yield call._replace(who="Penstock")


class Share(NamedTuple):
    """What a warm micro-batch asks for, in the mean."""

    batches: int
    calls: Counter[tuple[str, str, str]]
    """By who asks, what it is about, and the kind of the call."""

    def table(self) -> list[str]:
        """In Markdown, with sums."""
        kinds = sorted({kind for _, _, kind in self.calls})
        rows = sorted({(who, about) for who, about, _ in self.calls})
        lines = [f"| who asks, about what | {' | '.join(kinds)} | all |", f"| --- |{' --- |' * (len(kinds) + 1)}"]
        for who, about in rows:
            lines.append(self._row(f"{who}, {about}", [self.calls[who, about, kind] for kind in kinds]))
        for who in sorted({who for who, _ in rows}):
            own = [sum(self.calls[one, about, kind] for one, about in rows if one == who) for kind in kinds]
            lines.append(self._row(f"**{who}**", own))
        return [*lines, self._row("**all**", [sum(self.calls[(*row, kind)] for row in rows) for kind in kinds])]

    def _row(self, name: str, counts: Sequence[int]) -> str:
        cells = [f"{count / self.batches:.1f}" if count else "" for count in (*counts, sum(counts))]
        return f"| {name} | {' | '.join(cells)} |"


def between_commits(calls: Sequence[Call]) -> Share:
    """What is asked for between the ledger's entries: that of micro-batches, without a run's start and end."""
    at = [place for place, call in enumerate(calls) if call.commits][WARM_UP:]
    if len(at) < 2:
        raise SystemExit(f"There are too few micro-batches to count the calls of: take more than {WARM_UP + 2} --files.")
    counted = Counter((call.who, call.about, call.kind) for call in calls[at[0] : at[-1]])
    return Share(len(at) - 1, counted)
