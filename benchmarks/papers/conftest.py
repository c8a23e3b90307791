"""Fixtures of the paper tests: the Hypothesis profiles and hooks of the ordinary tests."""

from tests.conftest import pytest_collection_modifyitems, select_cells_of_small_batches

__all__ = ["select_cells_of_small_batches", "pytest_collection_modifyitems"]
