"""The names of the files in a run's directory."""

from pathlib import Path

MANIFEST, REPORT, LOG = "manifest.json", "report.json", "spark.log"
STARTS, PROGRESS, DECISIONS, MOVES = "starts.jsonl", "progress.jsonl", "decisions.jsonl", "moves.jsonl"
OUTPUT, HOPS, CHECKPOINT, MOVING = "output", "hops", "checkpoint", "moving"
CHECKPOINTS = rf"{CHECKPOINT}(-[0-9a-f]{{8}})?"
SAID = r"elements\.log(?:\.\d)?"
OURS = (
    rf"manifest\.json|report\.json|spark\.log|{SAID}|log4j2\.properties|application-[0-9a-f]{{16}}\.(?:zip|draft)|"
    r"kafka~.*\.json"
)
DRAFTS = r"\.(?:manifest|report)\.json\..*\.draft"
NOTES = r"kafka~.*\.json"
JOURNALS = r"(?:batches-.*|progress|starts|moves|decisions)\.jsonl"
"""Regular expressions for the names of files that a run writes. No other file in its directory is ever removed."""
WORKSHOPS = r"[0-9a-f]{8}-\d+"
"""A regular expression for the names of directories below `MOVING`, in each of which a move works."""
BEFORE_MANIFEST = rf"spark\.log|log4j2\.properties|\.manifest\.json\.lock|{DRAFTS}"
"""A regular expression for the files that a start leaves if it is killed before it writes the manifest."""


def ledger_of(run: Path, group: str) -> Path:
    """Return the path of a group's ledger, which has its committed micro-batches."""
    return run / f"batches-{group}.jsonl"
