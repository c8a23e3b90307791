"""Fixtures of the paper tests: the Hypothesis profiles and hooks of the ordinary tests."""

from tests.conftest import pytest_collection_modifyitems, sift_small_batches

__all__ = ["sift_small_batches", "pytest_collection_modifyitems"]
