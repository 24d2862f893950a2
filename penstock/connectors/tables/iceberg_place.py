"""The address of an Iceberg table: the name and the properties of a catalog, and the table's name in it."""

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
"""The prefix of a URI's options that are properties of the catalog."""

PLACE = re.compile(r"(?P<catalog>[^/.?]+)/(?P<table>[^/?]+\.[^/.?]+)")
CREDENTIAL = re.compile(f"credential|{SECRET.pattern}", re.IGNORECASE)
WITH_PASSWORD = re.compile(r"//[^/@]*:[^/@]+@")

DURABLE = "penstock.connectors.tables.iceberg_io.DurableFileIO"


class IcebergPlace(NamedTuple):
    """The address of a table: its catalog, its name with the namespace, and properties of the catalog."""

    catalog: str
    table: str
    properties: dict[str, Any]

    @classmethod
    def of(cls, what: str, uri: Uri) -> "IcebergPlace":
        """Parse a URI; ``what`` names the sink in error messages.

        Raises:
            ConfigurationError: the URI names no table, or holds a secret.
        """
        names = PLACE.fullmatch(uri.place)
        if names is None:
            raise ConfigurationError(f"{what}: '{uri}' names no table: write iceberg:CATALOG/NAMESPACE.TABLE.")
        properties = uri.named(CATALOG)
        for name, value in properties.items():
            if CREDENTIAL.search(name) or WITH_PASSWORD.search(value):
                variable = f"PYICEBERG_CATALOG__{names['catalog']}__{name.replace('.', '__').replace('-', '_')}".upper()
                raise ConfigurationError(
                    f"{what}: {CATALOG}{name} holds a secret, which others could read here: set {variable} in the "
                    "environment instead."
                )
        return cls(names["catalog"], names["table"], dict(properties))

    def __str__(self) -> str:
        return f"iceberg:{self.catalog}/{self.table}"

    @property
    def place(self) -> str:
        """A text that distinguishes the table from all others, also of other catalogs."""
        return "&".join([str(self), *(f"{name}={value}" for name, value in sorted(self.properties.items()))])

    @property
    def namespace(self) -> str:
        """The table's namespace: its name up to the last dot."""
        return self.table.rpartition(".")[0]

    def open(self) -> Catalog:
        """Return the catalog, configured by the library's own configuration and the properties in the URI."""
        try:
            catalog = load_catalog(self.catalog, **self.properties)
        except Exception as error:
            if "already exists" not in str(error):
                raise
            catalog = load_catalog(self.catalog, **self.properties)  # another process has just created the catalog's tables
        warehouse = catalog.properties.get(WAREHOUSE, "")
        if urlsplit(warehouse).scheme == "file" or warehouse.startswith("/"):
            catalog.properties.setdefault(PY_IO_IMPL, DURABLE)
        return catalog
