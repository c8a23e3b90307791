"""Report: what a run over history found, added up, compared with another version of the rules, and drawn.

result    → alerts, counts and dead rows of one version, added up
compare   → two versions over the same history: alerts only in one, in both, and what moved
choose    → the alerts that are worth a picture
svg, axis → timeline, picture, bars   → page: one HTML file that needs nothing else
"""

from tocsin.report.choose import Pick, choose
from tocsin.report.compare import Difference, compare
from tocsin.report.result import DeadRows, Gatherer, Result, RuleSummary, StoreSummary

__all__ = [
    "DeadRows",
    "Difference",
    "Gatherer",
    "Pick",
    "Result",
    "RuleSummary",
    "StoreSummary",
    "choose",
    "compare",
]
