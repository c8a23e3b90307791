"""Fixtures of real servers for the delivery tests."""

from __future__ import annotations

from servers import alertmanager, kafka

__all__ = ["alertmanager", "kafka"]
