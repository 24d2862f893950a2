"""The files of a run, by their names."""

from pathlib import Path

MANIFEST, REPORT, LOG = "manifest.json", "report.json", "spark.log"
STARTS, PROGRESS, DECISIONS, MOVES = "starts.jsonl", "progress.jsonl", "decisions.jsonl", "moves.jsonl"
OUTPUT, HOPS, CHECKPOINT, MOVING = "output", "hops", "checkpoint", "moving"
SAID = r"elements\.log(?:\.\d)?"
OURS = (
    rf"manifest\.json|report\.json|spark\.log|{SAID}|log4j2\.properties|application-[0-9a-f]{{16}}\.(?:zip|draft)|"
    r"kafka~.*\.json"
)
DRAFTS = r"\.(?:manifest|report)\.json\..*\.draft"
NOTES = r"kafka~.*\.json"
JOURNALS = r"(?:batches-.*|progress|starts|moves|decisions)\.jsonl"
"""Names of what a run writes, as regular expressions. Nothing else in its directory is ever removed."""
BEFORE_MANIFEST = rf"spark\.log|log4j2\.properties|\.manifest\.json\.lock|{DRAFTS}"
"""What a start that was killed early may leave."""


def ledger_of(run: Path, group: str) -> Path:
    """The committed micro-batches of a group."""
    return run / f"batches-{group}.jsonl"
