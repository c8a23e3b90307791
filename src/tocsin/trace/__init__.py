"""Trace: what became of every row of one key, and why an alert was or was not there.

model, watched → run     rows of a key through the plan's own page, which is watched while it works
brackets                 which rows excuse one that was left out, by plain search
answer, silence          why, in words; `tocsin explain`, `tocsin test` and the report of a backtest use it
"""

from tocsin.trace.answer import Answer, Reason, why
from tocsin.trace.model import Dead, Evaluation, KeyRows, Life, StoreTrace, Traced
from tocsin.trace.run import trace
from tocsin.trace.silence import why_silent

__all__ = [
    "Answer",
    "Dead",
    "Evaluation",
    "KeyRows",
    "Life",
    "Reason",
    "StoreTrace",
    "Traced",
    "trace",
    "why",
    "why_silent",
]
