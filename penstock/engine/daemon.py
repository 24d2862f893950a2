"""What Spark forks its Python workers from: its own daemon, with everything that workers import loaded beforehand.

A worker then begins in milliseconds, and shares what is loaded with the others. Spark has Python import PySpark from
an archive that holds no compiled code, so that each process would compile it anew; where the archive is that of the installed
PySpark, the installed one is taken.
"""

import gc
import sys
from importlib.util import find_spec
from pathlib import Path


def leave_out_archive() -> None:
    """Take the archive of the installed PySpark from the path on which modules are looked for."""
    archives = [entry for entry in sys.path if Path(entry).name == "pyspark.zip"]
    sys.path[:] = [entry for entry in sys.path if entry not in archives]
    installed = find_spec("pyspark")
    home = Path(installed.origin).parent if installed is not None and installed.origin else None
    sys.path[:0] = [entry for entry in archives if home is None or home not in Path(entry).parents]


if __name__ == "__main__":
    leave_out_archive()
    from pyspark import daemon

    if sys.argv[1:] == ["pyspark.worker"]:  # and none of those that only ask a source for its offsets
        from pyspark import worker  # noqa: F401

        from penstock.engine import decode, stateful  # noqa: F401

    gc.freeze()  # so that a worker's search for garbage does not copy the pages that it shares
    daemon.manager()
