"""Rule unit tests: test files in promtool's shape, run on the engine in this process.

loader, scenario, expected    test file -> Suite, with all errors; series_notation has the notation of samples
rule_groups                   plan the rules as a run does
series_rows, replay           samples -> rows -> the alerts known at a time
compare, failure_reason       differences, and the reason why an alert is missing
report                        results as text and JSON
"""

from tocsin.testing.loader import CheckedSuite, SuiteLoader
from tocsin.testing.model import Scenario, Suite
from tocsin.testing.test_runner import Result, run_suite

__all__ = ["CheckedSuite", "Result", "Scenario", "Suite", "SuiteLoader", "run_suite"]
