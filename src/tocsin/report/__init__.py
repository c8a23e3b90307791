"""Report: what a run over history found, added up, compared with another version of the rules, and drawn.

result    → alerts, counts and dead rows of one version, added up; recall: what share of results came in order
compare   → two versions over the same history: alerts only in one, in both, and what moved
choose    → the alerts that are worth a picture
svg, axis → timeline, picture, bars, curve   → page: one HTML file that needs nothing else
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
