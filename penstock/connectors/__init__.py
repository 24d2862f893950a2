"""Connectors: where events come from and where they go. Packages with connectors of their own import from here.

A connector is one file: a class derived from `BoundSource`, `Sequence` or `BoundSink`, and the
`SourceConnector` or `SinkConnector` that declares it. `penstock.testing` has a test suite that checks whether a
connector is exactly-once; CONTRIBUTING.md has a guide.
"""

from penstock.connectors.admission import ADMISSION, Admission
from penstock.connectors.checkpoint import Position
from penstock.connectors.declaration import (
    COUNT,
    DURATION,
    FIELD,
    NUMBER,
    TEXT,
    WHOLE,
    Jars,
    Option,
    OptionKind,
    Options,
    SinkConnector,
    SinkContext,
    SourceConnector,
    SourceContext,
    one_of,
)
from penstock.connectors.files.sink import Memory
from penstock.connectors.sequence import Sequence, SequenceSource, Slice
from penstock.connectors.sink import BoundSink, other_run, present
from penstock.connectors.source import BoundSource, Reading, Reckoning, SparkView
from penstock.connectors.uri import Uri
from penstock.runtime.output import SinkFiles, StagedFile, divided

__all__ = [
    "ADMISSION",
    "COUNT",
    "DURATION",
    "FIELD",
    "NUMBER",
    "TEXT",
    "WHOLE",
    "Admission",
    "BoundSink",
    "BoundSource",
    "Jars",
    "Memory",
    "Option",
    "OptionKind",
    "Options",
    "Position",
    "Reading",
    "Reckoning",
    "Sequence",
    "SequenceSource",
    "SinkConnector",
    "SinkContext",
    "SinkFiles",
    "Slice",
    "SourceConnector",
    "SourceContext",
    "SparkView",
    "StagedFile",
    "Uri",
    "divided",
    "one_of",
    "other_run",
    "present",
]
