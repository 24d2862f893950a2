"""Schemas of other systems (Avro, Protobuf and JSON Schema): event types from schemas, and schemas from event types."""

from penstock.schemas.fitting import Leniency, misfits
from penstock.schemas.schema import FORMATS, Kind, Schema
from penstock.schemas.source_code import source_code

__all__ = ["FORMATS", "Kind", "Leniency", "Schema", "misfits", "source_code"]
