"""The paper's words and application, from the repository's examples, and the results that must come out."""

import importlib.util
from collections.abc import Iterable
from pathlib import Path

import penstock
from penstock.errors import ConfigurationError

EXAMPLE = Path(penstock.__file__).parent.parent / "examples" / "divisibility"
APP = EXAMPLE / "app.py"
SEED = 1


def require_example() -> None:
    """Raise ``ConfigurationError`` unless this is a clone of the repository, with the examples."""
    if not APP.exists():
        raise ConfigurationError("penstock bench s4 needs examples/divisibility; run it from a clone of the repository.")


def words_file(directory: Path, count: int) -> Path:
    """Return a file of at least ``count`` words, one per line, and write it if it does not exist."""
    count = 1 << (count - 1).bit_length()
    path = directory / f"words-{count}.txt"
    if path.exists():
        return path
    spec = importlib.util.spec_from_file_location("penstock_s4_words", EXAMPLE / "words.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    draft = path.with_suffix(".draft")
    draft.write_text("".join(f"{word}\n" for word in module.words(count, SEED)))
    draft.rename(path)
    return path


def expected(words: Iterable[str], keys: int) -> dict[str, int]:
    """The numbers of events that AggregationReceiver must count, by divisor, computed by plain Python."""
    numbers = [int(word) for word in words if word.isdigit()]
    return {
        "Three": keys * sum(number % 3 == 0 for number in numbers),
        "Eleven": keys * sum(number % 11 == 0 for number in numbers),
    }
