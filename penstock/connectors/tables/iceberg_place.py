"""Where an Iceberg table is found: a catalog by its name, what it is told, and the table's name in it."""

import re
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from penstock.connectors.tables.delta_place import SECRET
from penstock.connectors.uri import Uri
from penstock.errors import ConfigurationError
from penstock.extras import needs

with needs():
    from pyiceberg.catalog import Catalog, load_catalog
    from pyiceberg.io import PY_IO_IMPL, WAREHOUSE

CATALOG = "catalog."
"""Options of a URI that begin so are the catalog's properties."""

PLACE = re.compile(r"(?P<catalog>[^/.?]+)/(?P<table>[^/?]+\.[^/.?]+)")
CREDENTIAL = re.compile(f"credential|{SECRET.pattern}", re.IGNORECASE)
WITH_PASSWORD = re.compile(r"//[^/@]*:[^/@]+@")

DURABLE = "penstock.connectors.tables.iceberg_io.DurableFileIO"


class IcebergPlace(NamedTuple):
    """A table, by the names of its catalog, namespace and own."""

    catalog: str
    table: str
    properties: dict[str, Any]

    @classmethod
    def of(cls, what: str, uri: Uri) -> "IcebergPlace":
        """What a URI names; ``what`` is the sink.

        Raises
        ------
        ConfigurationError: it names no table, or would show a secret.
        """
        found = PLACE.fullmatch(uri.place)
        if found is None:
            raise ConfigurationError(f"{what}: '{uri}' names no table: write iceberg:CATALOG/NAMESPACE.TABLE.")
        properties = uri.named(CATALOG)
        for name, value in properties.items():
            if CREDENTIAL.search(name) or WITH_PASSWORD.search(value):
                variable = f"PYICEBERG_CATALOG__{found['catalog']}__{name.replace('.', '__').replace('-', '_')}".upper()
                raise ConfigurationError(
                    f"{what}: {CATALOG}{name} holds a secret, which others could read here: set {variable} in the "
                    "environment instead."
                )
        return cls(found["catalog"], found["table"], dict(properties))

    def __str__(self) -> str:
        return f"iceberg:{self.catalog}/{self.table}"

    @property
    def place(self) -> str:
        """What tells the table from those of other catalogs."""
        return "&".join([str(self), *(f"{name}={value}" for name, value in sorted(self.properties.items()))])

    @property
    def namespace(self) -> str:
        """What the table's name begins with."""
        return self.table.rpartition(".")[0]

    def open(self) -> Catalog:
        """The catalog, by the library's own configuration and what the URI says."""
        try:
            catalog = load_catalog(self.catalog, **self.properties)
        except Exception as error:
            if "already exists" not in str(error):
                raise
            catalog = load_catalog(self.catalog, **self.properties)  # another process has just made its tables
        warehouse = catalog.properties.get(WAREHOUSE, "")
        if urlsplit(warehouse).scheme == "file" or warehouse.startswith("/"):
            catalog.properties.setdefault(PY_IO_IMPL, DURABLE)
        return catalog
