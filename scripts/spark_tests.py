"""Which files of tests share a Spark, or start their own one after the other."""

from pathlib import Path

OF_THEIR_OWN = {"test_stores.py", "test_taking_over.py", "test_yarn.py"}
"""Which start each Spark that they need themselves, and so may run beside the others: both halves take as long then."""
TESTS = Path(__file__).parent.parent / "tests"
ON_SPARK = [str(path) for path in sorted(TESTS.glob("engine/test_*.py")) if path.name not in OF_THEIR_OWN]
ON_SPARK += [
    *(str(TESTS / name) for name in ("test_topologies.py", "test_examples.py", "crashpoints/test_stand_in.py")),
    *map(str, sorted(TESTS.glob("kinds/test_*_on_spark.py"))),
]
