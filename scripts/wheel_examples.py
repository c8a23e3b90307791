"""Build hook: add the example files to the wheel, for `tocsin examples`.

An editable installation has no copy, because `tocsin examples` finds the folder of the checkout.
"""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ExamplesHook(BuildHookInterface):
    """Hook of hatchling that includes the folder `examples` as `tocsin/examples`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Include the folder in a wheel, unless it is a wheel of an editable installation."""
        if version != "editable":
            build_data["force_include"]["examples"] = "tocsin/examples"
