"""Report: the results of a backtest, added up and compared with another version of the rules.

result    → alerts, counts and dead rows of one version, added up; recall: what share of results came in order
compare   → two versions over the same history: alerts only in one, in both, and what moved
choose    → the alerts that are drawn (`tocsin.dashboard.backtest_report` draws them)
"""

from tocsin.report.choose import Pick, choose
from tocsin.report.compare import Difference, compare
from tocsin.report.recall import Period, Recall
from tocsin.report.result import DeadRows, Gatherer, Limited, Result, RuleSummary, StoreSummary

__all__ = [
    "DeadRows",
    "Difference",
    "Gatherer",
    "Limited",
    "Period",
    "Pick",
    "Recall",
    "Result",
    "RuleSummary",
    "StoreSummary",
    "choose",
    "compare",
]
