"""Worker Python: check that the interpreter of Spark's Python workers imports Tocsin, before a query starts.

The caller is `alerts.prepare`. Only local sessions are checked, because the workers of a cluster run on other machines.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from pyspark import SparkFiles
from pyspark.sql import SparkSession

from tocsin.errors import PlanError

_TIMEOUT_S = 60.0


def check_worker_python(session: SparkSession) -> None:
    """Raise a PlanError if the workers of a local session run a Python that does not import Tocsin."""
    context = getattr(session, "_sc", None)
    if context is None or not str(context.master).startswith("local"):
        return
    python = str(context.pythonExec)
    if Path(shutil.which(python) or python) == Path(sys.executable):
        return
    shipped = [str(Path(SparkFiles.getRootDirectory()) / name) for name in context._python_includes or ()]
    paths = [*shipped, context.environment.get("PYTHONPATH", ""), os.environ.get("PYTHONPATH", "")]
    if failure := _import_failure(python, os.pathsep.join(filter(None, paths))):
        message = (
            f"the Python workers of Spark cannot import tocsin; `{python}` fails with: {failure}; "
            f"set the environment variable PYSPARK_PYTHON to {sys.executable} before the Spark session starts"
        )
        raise PlanError(message)


@lru_cache
def _import_failure(python: str, path: str) -> str:
    """Return the last line of the error of `import tocsin`, or an empty text."""
    command: Sequence[str] = [python, "-c", "import tocsin"]
    environment = {**os.environ, "PYTHONPATH": path}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", env=environment, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    lines = done.stderr.strip().splitlines()
    return (lines[-1] if lines else f"exit code {done.returncode}") if done.returncode else ""
