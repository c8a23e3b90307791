"""Engine on Apache Spark: DataFrames in, a DataFrame of alerts out, streaming or bounded like its inputs."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tocsin.spark.alerts import row_outcomes
    from tocsin.spark.stateful import LOCAL_DISK_CONF, LOCAL_MASTER_CONF

__all__ = ["LOCAL_DISK_CONF", "LOCAL_MASTER_CONF", "row_outcomes"]

# Module of each public name. It is imported at the first use of the name, because the client and the spool of the
# source `mqtt` run without pyspark.
_MODULES = {
    "LOCAL_DISK_CONF": "tocsin.spark.stateful",
    "LOCAL_MASTER_CONF": "tocsin.spark.stateful",
    "row_outcomes": "tocsin.spark.alerts",
}


def __getattr__(name: str) -> Any:
    """Import the module of a public name at its first use, and bind the name here."""
    module = _MODULES.get(name)
    if module is None:
        message = f"module 'tocsin.spark' has no attribute {name!r}"
        raise AttributeError(message)
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value
