"""Conditions of a measurement: date, machine and load."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from typing import Any


def conditions() -> dict[str, Any]:
    """Return date, machine and load. Call it directly before the measurement."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "load_before": os.getloadavg()[0],
    }
