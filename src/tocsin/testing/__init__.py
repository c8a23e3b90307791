"""Rule unit tests: test files in promtool's shape, run on the engine in this process.

load → scenario, expected     the file, every mistake at once; series.py has the notation of samples
units                         the rules planned as a run would plan them
rows → replay                 samples -> rows -> the alerts known at a time
compare, reason → report      what differs, and why nothing fired
"""

from tocsin.testing.load import CheckedSuite, SuiteLoader
from tocsin.testing.model import Scenario, Suite
from tocsin.testing.run import Result, run_suite

__all__ = ["CheckedSuite", "Result", "Scenario", "Suite", "SuiteLoader", "run_suite"]
