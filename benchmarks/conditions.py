"""What the numbers of a benchmark depend on besides it: when, on which machine, and how busy that was."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from typing import Any


def conditions() -> dict[str, Any]:
    """Tell date, machine and its load, right before anything is measured."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "load_before": os.getloadavg()[0],
    }
