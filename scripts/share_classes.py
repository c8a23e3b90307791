"""Write the class archive of Spark (`tocsin.jvm`), so that the JVMs of the tests start faster.

    python scripts/share_classes.py CACHE STAMP

The archive is written to the directory CACHE. STAMP is written at the end. The run takes half a minute and 170 MB.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tocsin.jvm import archive_name, find_archive

_TIMEOUT_S = 600.0
EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "factory.yaml"


def main(cache: Path, stamp: Path) -> None:
    """Run the example, and wait until its JVM has ended and the archive is complete."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache.absolute())}
    environment.pop("SPARK_SUBMIT_OPTS", None)
    name = archive_name(environment)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        command = [sys.executable, "-m", "tocsin", "run", str(EXAMPLE), "--once", "--run-dir", folder]
        # The JVM holds the pipe until it ends.
        subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, timeout=_TIMEOUT_S)
    if name is None or find_archive(name) is None:
        print("this Java writes no class archive; tests start without it")
    stamp.write_text(time.strftime("%Y-%m-%dT%H:%M:%SZ\n", time.gmtime()), "ascii")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
