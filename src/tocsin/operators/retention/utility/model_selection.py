"""Which model fits a stream, and which policy follows from it: judged by whole lives of a random sample of rows.

Idea: ways to use memory for a number of rows are tried on the lives that `age_monitor` has: PROB keeps the rows whose
keys were most frequent in the other stream when they came; AGE keeps rows to the ages that the age curve of other lives
recommends; RECENT keeps the last rows; CHANCE any rows, for their whole lives. Each finds a share of the results.
The test: knowing the key explains results if rows of frequent keys give more than CHANCE. Knowing the age does if AGE
finds more than CHANCE, or more than all rows kept for the same time. PROB or AGE, whichever fits and finds more, is
chosen if it finds more than RECENT. Shares are compared in stretches of time as long as the window, as rows that live
together meet the same rows, by Student's t. AGE is tried on every second stretch with the curve of the others, so that
noise in a curve is no merit. In a stretch with many rows memory is for a smaller share of them.
Guarantee: where neither explains anything one is taken for fitting with probability `alpha` each (stretches taken for
independent, shares for normal). Neither fits, or too few stretches: nothing is predicted, and the policy is RECENT.
Drift: lives before and after every cut between stretches are compared: which share of results comes in each granule,
and which PROB keeps. If any has changed, what came before the clearest cut is to be forgotten. False alarms come with
`alpha` per check, divided among shares and cuts. How many results there are changes with the rates and is no drift; it
is taken from the newer half.
Cost: O(lives * granules) for a choice or a check.
Source: Srivastava, Widom, VLDB 2004, section 2.3; the tests are ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from tocsin.operators.retention.utility.age_model import AgeCurve
from tocsin.operators.retention.utility.key_recall import KeyRecall, no_key_recall
from tocsin.operators.retention.utility.lifetime_sample import Lives, ends_of_half_octaves
from tocsin.operators.retention.utility.memory_curves import envelope
from tocsin.runtime.contract import Float, Int

# Keys are ranked by so many lives.
_RANKED = 300
# Fewer stretches of time say nothing.
_FEWEST = 4
_ALPHA = 0.01
# The age explains results: AGE is used if it is probably better than RECENT.
_BETTER_ALPHA = 0.2
_DRIFT_ALPHA = 0.001
_ROUNDING = 1e-9
# Standard error of a recall that was not measured.
_UNKNOWN = 0.1
# Results of complete lives from which their share is better than a guess.
_FEWEST_RESULTS = 30


class Choice(NamedTuple):
    """The policy, whether key and age explain results, and then the recall of each policy with its standard error."""

    policy: str
    key_fits: bool
    age_fits: bool
    recall: Mapping[str, float] | None
    error: Mapping[str, float] | None = None

    @property
    def model(self) -> str:
        """The model that the policy is of, or `neither`."""
        if not (self.key_fits or self.age_fits):
            return "neither"
        return "frequency" if self.policy == "PROB" or not self.age_fits else "age"


def student(alpha: float, freedom: int) -> float:
    """What Student's t exceeds with probability alpha (Cornish and Fisher's expansion, for 3 or more)."""
    z = NormalDist().inv_cdf(1 - alpha)
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def age_curve(lives: Lives, window: int) -> AgeCurve:
    """The average life: p(k) by granule of age; its sum is n, which is that of the newer half."""
    granules = lives.met.shape[1]
    if not lives.met.any():
        return AgeCurve(np.zeros(granules), window / granules)
    newer = lives.met[lives.time >= middle_of(lives)]
    n = newer.sum() / max(len(newer), 1)
    return AgeCurve(n * lives.met.sum(axis=0) / lives.met.sum(), window / granules)


def kept_by_key(lives: Lives, rows: Int, share: float) -> Float:
    """How much of each of some rows PROB keeps, with memory for a share of them: keys by their average frequency."""
    number, count = np.unique(lives.key[rows], return_inverse=True, return_counts=True)[1:]
    frequency = np.bincount(number, lives.foretold[rows]) / count
    # Keys of which equally many were foretold are kept alike.
    place, rows_at = np.unique(-frequency, return_inverse=True)[1], np.zeros(len(count))
    np.add.at(rows_at, place, count)
    before = np.cumsum(rows_at) - rows_at
    kept = np.clip((share * len(rows) - before) / np.maximum(rows_at, 1), 0.0, 1.0)
    return np.asarray(kept[place[number]], np.float64)


def kept_by_age(curve: AgeCurve, share: float) -> Float:
    """How many rows AGE still has at each granule of age: some rows leave at one age, the others at a later one."""
    total, granules = curve.cumulative, len(curve.p)
    ages = np.arange(granules + 1)
    corners = envelope(ages.astype(np.float64), total)
    corners = corners[: int(np.argmax(total[corners])) + 1]
    stay = share * granules
    kept = np.zeros(granules)
    for begin, end in pairwise(corners.tolist()):
        kept[begin:end] = np.clip((stay - begin) / (end - begin), 0.0, 1.0)
    return kept


def kept_alike(granules: int, share: float) -> Float:
    """How many rows there are at each granule of age where all rows are kept for the same time."""
    return np.clip(share * granules - np.arange(granules), 0.0, 1.0)


def found_recent(lives: Lives, rows: Int, memory: float, whole: float) -> float:
    """The results of some rows that RECENT finds: those with rows that came less than `memory` rows before.

    In the half octave that memory cuts, results are spread as they are by age, of which a window has `whole` rows.
    """
    met, behind = lives.met[rows].sum(axis=0), lives.met_behind[rows].sum(axis=0)
    total, granules = np.concatenate([[0.0], np.cumsum(met)]), np.arange(len(met) + 1)
    ends = ends_of_half_octaves()
    memory = min(memory, float(ends[-1]) - 2)
    at = int(np.searchsorted(ends, memory + 1, "right")) - 1
    rows_since = np.array([ends[at], memory + 1, ends[at + 1]]) - 1
    begin, cut, end = np.interp(rows_since * len(met) / whole, granules, total)
    share = (cut - begin) / (end - begin) if end > begin else (memory + 1 - ends[at]) / (ends[at + 1] - ends[at])
    return float(behind[:at].sum() + share * behind[at])


def around(rows: Int, count: int) -> Int:
    """Some rows with those before and after, of `count`: enough of them to tell which keys are frequent."""
    more = max(0, _RANKED - len(rows)) // 2
    return np.arange(max(0, int(rows[0]) - more), min(count, int(rows[-1]) + 1 + more))


def found_by_key(lives: Lives, rows: Int, kept: Float, whole: float) -> float:
    """The results that PROB finds of some rows: of the last keys that it keeps, those of the latest rows.

    `whole` rows of all keys come in a window.
    """
    found = float(lives.met[rows[kept == 1]].sum())
    for part in np.unique(kept[(kept > 0) & (kept < 1)]):
        found += found_recent(lives, rows[kept == part], float(part) * whole, whole)
    return found


def stretches_of(lives: Lives, window: int) -> list[Int]:
    """The rows of each stretch of time as long as the window; the last one, which may go on, is left out."""
    number = (lives.time - lives.time[0]) // max(window, 1)
    return np.split(np.arange(len(number)), np.flatnonzero(np.diff(number)) + 1)[:-1]


def found(lives: Lives, window: int, memory: float) -> dict[str, Float]:
    """Per stretch of time, the share of its results that each way to use memory finds; and how many there are.

    AGE finds what RECENT does and what the age curve promises more than all rows kept alike.
    """
    stretches = stretches_of(lives, window)
    ends = [int(lives.number[rows[-1] + 1] - lives.number[rows[0]]) for rows in stretches]
    chosen = [(rows, whole) for rows, whole in zip(stretches, ends, strict=True) if lives.met[rows].any()]
    by_age = np.array([lives.met[rows].sum(axis=0) for rows, _ in chosen], np.float64)
    names = ("all", "CHANCE", "BY_KEY", "BY_AGE", "ALIKE", "PROB", "RECENT")
    shares = {name: np.zeros(len(chosen)) for name in names}
    for at, (rows, whole) in enumerate(chosen):
        share, n = min(1.0, memory / whole), lives.met[rows].sum(axis=1)
        curve, near = AgeCurve(by_age[1 - at % 2 :: 2].sum(axis=0)), around(rows, len(lives.time))
        kept = kept_by_key(lives, near, share)[rows[0] - near[0] :][: len(rows)]
        shares["all"][at], shares["CHANCE"][at] = n.sum(), share
        shares["BY_KEY"][at] = kept @ n / n.sum()
        shares["BY_AGE"][at] = by_age[at] @ kept_by_age(curve, share) / n.sum()
        shares["ALIKE"][at] = by_age[at] @ kept_alike(len(curve.p), share) / n.sum()
        shares["PROB"][at] = found_by_key(lives, rows, kept, whole) / n.sum()
        shares["RECENT"][at] = found_recent(lives, rows, memory, whole) / n.sum()
    shares["AGE"] = np.clip(shares["RECENT"] + shares["BY_AGE"] - shares["ALIKE"], 0.0, 1.0)
    return shares


def is_more(one: Float, other: Float, alpha: float = _ALPHA) -> bool:
    """Tell whether one share is larger than another, over all stretches, by more than chance allows."""
    gain = one - other
    spread = gain.std(ddof=1) / len(gain) ** 0.5
    # Shares that are equal but for rounding do not differ.
    return bool(gain.mean() > student(alpha, len(gain) - 1) * spread + _ROUNDING)


def choose(
    lives: Lives, window: int, memory: float, keys: KeyRecall | None = None, whole: float | None = None
) -> Choice:
    """Choose a policy for memory of so many rows.

    `keys` has the recall of PROB by the frequencies of both streams, `whole` the rows of a window.
    """
    keys, whole = keys or no_key_recall(), whole or memory
    nothing = Choice("RECENT", key_fits=False, age_fits=False, recall=None)
    share, results, untracked = min(1.0, memory / max(whole, 1e-9)), lives.met.sum(axis=1), 0.0
    if results.any():
        untracked = float(results[lives.foretold == 0].sum() / results.sum())
    key_fits, age_fits = keys.has_gain(share, untracked), False
    recall = {"PROB": keys.recall(share, untracked), "AGE": share, "RECENT": share}
    error = {"PROB": keys.error(share), "AGE": _UNKNOWN, "RECENT": _UNKNOWN}
    shares = found(lives, window, memory) if results.any() else {"all": np.zeros(0)}
    if len(shares["all"]) >= _FEWEST:
        age_fits = any(is_more(shares["BY_AGE"], shares[other], _ALPHA / 2) for other in ("CHANCE", "ALIKE"))
        weight = shares["all"] / shares["all"].sum()
        for policy in ("AGE", "RECENT"):
            recall[policy] = float(shares[policy] @ weight)
            error[policy] = float(np.sqrt(weight @ (shares[policy] - recall[policy]) ** 2 / len(weight)))
        age_fits = age_fits and (
            recall["AGE"] > recall["PROB"] or not key_fits or is_more(shares["BY_AGE"], shares["BY_KEY"])
        )
    elif results.sum() >= _FEWEST_RESULTS:
        recall["RECENT"] = found_recent(lives, np.arange(len(results)), memory, max(whole, 1e-9)) / float(results.sum())
    if not (key_fits or age_fits):
        return nothing
    fitting = [policy for policy, fits in (("PROB", key_fits), ("AGE", age_fits)) if fits]
    best = max(fitting, key=lambda policy: recall[policy])
    is_better = (
        recall["PROB"] > recall["RECENT"] if best == "PROB" else is_more(shares["AGE"], shares["RECENT"], _BETTER_ALPHA)
    )
    policy = best if is_better else "RECENT"
    return Choice(policy, key_fits, age_fits, recall, error)


def as_set(choice: Choice, by: str) -> Choice:
    """The choice where it is set by hand what rows are judged by, fits it or not; any other word changes nothing."""
    if by == "none":
        return Choice("RECENT", key_fits=False, age_fits=False, recall=None)
    policy = {"key": "PROB", "age": "AGE"}.get(by)
    return choice if policy is None else Choice(policy, by == "key", by == "age", choice.recall)


def begin_of_present(lives: Lives, window: int, alpha: float = _DRIFT_ALPHA) -> int | None:
    """Give the time since which results are spread as they are now, if they were spread otherwise before.

    Every cut between stretches is tried, for every share.
    """
    n = lives.met.sum(axis=1)
    rows_of = [rows for rows in stretches_of(lives, window) if n[rows].any()] if len(n) else []
    if len(rows_of) < 2 * _FEWEST:
        return None
    by_age = np.array([lives.met[rows].sum(axis=0) for rows in rows_of], np.float64)
    by_key = np.array([kept_by_key(lives, rows, 0.5) @ n[rows] for rows in rows_of])
    shares = np.column_stack([by_age, by_key]) / by_age.sum(axis=1, keepdims=True)
    cuts = range(_FEWEST, len(shares) - _FEWEST + 1)
    limit = student(alpha / (2 * shares.shape[1] * len(cuts)), len(shares) - 2)
    largest = [float(_differences(shares[:cut], shares[cut:]).max()) for cut in cuts]
    best = int(np.argmax(largest))
    return int(lives.time[rows_of[cuts[best]][0]]) if largest[best] > limit else None


def _differences(older: Float, newer: Float) -> Float:
    """Student's t of each column of two samples."""
    squares = ((older - older.mean(axis=0)) ** 2).sum(axis=0) + ((newer - newer.mean(axis=0)) ** 2).sum(axis=0)
    variance = squares / (len(older) + len(newer) - 2) * (1 / len(older) + 1 / len(newer))
    gap = np.abs(older.mean(axis=0) - newer.mean(axis=0))
    # A share that never varies, such as that of an age without results, has not changed.
    return np.where(variance > _ROUNDING**2, gap / np.sqrt(np.maximum(variance, _ROUNDING**2)), 0.0)


def middle_of(lives: Lives) -> int:
    """The time that cuts some lives into halves."""
    return int(lives.time[0] + lives.time[-1] + 1) // 2
